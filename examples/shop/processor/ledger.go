package processor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Kind says what an entry of the ledger stands for.
type Kind string

// The kinds of entries. Charge and Capture take money, Refund gives it back, and the others move none.
const (
	Authorization Kind = "authorization" // funds are held
	Capture       Kind = "capture"       // held funds are taken; Of is the authorization
	Void          Kind = "void"          // held funds are let go; Of is the authorization
	Charge        Kind = "charge"        // funds are taken at once
	Refund        Kind = "refund"        // Of is the charge or the capture
	Decline       Kind = "decline"       // an authorization or a charge was declined
	Closure       Kind = "closure"       // requests under a key are refused from now on, up to a fence
)

// An Entry is a line of the ledger. Entries are never changed.
type Entry struct {
	Seq       int       `json:"seq"` // from 1
	At        time.Time `json:"at"`
	Kind      Kind      `json:"kind"`
	ID        string    `json:"id"`           // of what the entry made
	Of        string    `json:"of,omitempty"` // what it acts on
	Amount    int64     `json:"amount"`       // in minor units, never negative
	Currency  string    `json:"currency,omitempty"`
	Card      string    `json:"card,omitempty"`
	Reference string    `json:"reference,omitempty"` // the caller's own name for it
	Key       string    `json:"key,omitempty"`       // the Idempotency-Key under which it came
	Fence     uint64    `json:"fence,omitempty"`     // of a closure

	Request string          `json:"request,omitempty"` // digest of the request
	Status  int             `json:"status,omitempty"`  // with which the request was answered
	Answer  json.RawMessage `json:"answer,omitempty"`
}

// A ledgerFile has one entry a line, as JSON. An entry that was appended survives the end of the process and of the
// machine.
type ledgerFile struct {
	f      *os.File
	size   int64
	broken error // after it what the file holds is not known, and nothing is written
}

// open opens or makes the file, and calls yield for each entry. A last line without its end is cut off.
func (l *ledgerFile) open(path string, yield func(Entry) error) (err error) {
	l.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.f.Close())
		}
	}()
	lines := bufio.NewReader(l.f)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		var e Entry
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		if err := yield(e); err != nil {
			return fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		l.size += int64(len(line))
	}
	if err := l.f.Truncate(l.size); err != nil {
		return err
	}
	if err := l.f.Sync(); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func (l *ledgerFile) append(e Entry) error {
	if l.broken != nil {
		return l.broken
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	info, err := l.f.Stat()
	if err == nil && info.Size() != l.size {
		err = errors.New("another process has written to the ledger")
	}
	if err == nil {
		_, err = l.f.Write(line)
	}
	if err == nil {
		err = l.f.Sync()
	}
	l.broken = err
	l.size += int64(len(line))
	return err
}

func (l *ledgerFile) close() error {
	if l.broken == nil {
		l.broken = errors.New("the ledger is closed")
	}
	return l.f.Close()
}

// syncFolder makes the name of a new file durable. Where folders can't be synced, it does nothing.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // it was only read
	if err := d.Sync(); err != nil && !errors.Is(err, os.ErrInvalid) {
		return err
	}
	return nil
}
