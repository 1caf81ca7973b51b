package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A ledger is the payment service's own book: a file with one line a charge, which is only ever appended to. Counts are
// read from the file, so that they judge what was written and not what somebody remembers.
type ledger struct {
	path string

	mu   sync.Mutex
	file *os.File
	n    int
}

// A charge is one line of a ledger.
type charge struct {
	Time     time.Time `json:"time"`
	ID       string    `json:"charge"`
	Order    string    `json:"order"`
	Amount   int64     `json:"amount"`
	Currency string    `json:"currency"`
	// Operation is the id that the gateway gave the request, if it came through one.
	Operation string `json:"operation,omitempty"`
}

// openLedger opens a ledger, or goes on with one. A last line that whoever wrote it did not get to end was never
// acknowledged: it is cut off.
func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &ledger{path: path, file: f}
	written, err := io.ReadAll(f)
	if whole := bytes.LastIndexByte(written, '\n') + 1; err == nil && whole < len(written) {
		err = f.Truncate(int64(whole))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), f.Close())
	}
	l.n = bytes.Count(written, []byte{'\n'})
	return l, nil
}

// add writes a charge and returns it with its id, once it is on the disk.
func (l *ledger) add(c charge) (charge, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.ID = fmt.Sprintf("ch_%d", l.n+1)
	c.Time = time.Now().UTC()
	line, err := json.Marshal(c)
	if err != nil {
		return charge{}, fmt.Errorf("add to ledger: %w", err)
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return charge{}, fmt.Errorf("add to ledger: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return charge{}, fmt.Errorf("add to ledger: %w", err)
	}
	l.n++
	return c, nil
}

// ofOperation reads from the file the charge that an operation has made, if it has.
func (l *ledger) ofOperation(id string) (c charge, found bool, err error) {
	all, err := l.charges("")
	for _, c := range all {
		if id != "" && c.Operation == id {
			return c, true, err
		}
	}
	return charge{}, false, err
}

// lines reads from the file how many charges there are.
func (l *ledger) lines() (int, error) {
	written, err := os.ReadFile(l.path)
	if err != nil {
		return 0, fmt.Errorf("read ledger: %w", err)
	}
	return bytes.Count(written, []byte{'\n'}), nil
}

// charges reads from the file the charges for an order, or all for "".
func (l *ledger) charges(order string) ([]charge, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	var found []charge
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c charge
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("read ledger: %w", err)
		}
		if order == "" || c.Order == order {
			found = append(found, c)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	return found, nil
}

func (l *ledger) close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}
