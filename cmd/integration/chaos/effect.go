package chaos

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A payment is what is asked for. Its JSON is the request as the oracle knows it.
type payment struct {
	Order  string        `json:"order"`
	Amount int           `json:"amount"`
	Kind   kind          `json:"kind"`
	Takes  time.Duration `json:"takes,omitempty"` // in nanoseconds: how long the work takes before its effect, and each event of a stream
	// Of its transaction, in PostgreSQL.
	Isolation pgx.TxIsoLevel `json:"isolation,omitempty"`
	Accounts  []int          `json:"accounts,omitempty"` // that it changes, in this order: others change them in another one
}

type kind string

const (
	plain   kind = "plain"
	refused kind = "refused" // answered 422, without an effect
	failing kind = "failing" // fails now and then after its effect is written, which its transaction takes back
	stream  kind = "stream"  // answered as a stream of events
)

// An effect is one line of the ledger, or one row of the business table.
type effect struct {
	ID        string `json:"id"`
	Key       string `json:"key"`
	Request   string `json:"request"`
	Front     string `json:"front"` // whose run it was
	Operation string `json:"operation"`
	Attempt   int    `json:"attempt"`
	Fence     uint64 `json:"fence"`
	Began     int64  `json:"began"` // when its run began, in microseconds since the Unix epoch
	At        int64  `json:"at"`    // just before it was written
}

func newEffect(key, request, front string, began time.Time) effect {
	return effect{ID: rand.Text()[:16], Key: key, Request: request, Front: front, Began: began.UnixMicro(), At: time.Now().UnixMicro()}
}

// answer returns the body of the answer that tells of the effect.
func (e effect) answer(k kind) string {
	one := fmt.Sprintf("{\"effect\":%q}\n", e.ID)
	if k != stream {
		return one
	}
	return strings.Repeat("data: "+one+"\n", streamEvents)
}

const streamEvents = 4

// refusal is the answer to a payment that is refused.
const refusalBody = "{\"error\":\"refused\"}\n"

// readPayment reads what a request asks for. What can't be read is answered.
func readPayment(w http.ResponseWriter, r *http.Request) (p payment, request string, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err != nil {
		http.Error(w, "not a payment: "+err.Error(), http.StatusBadRequest)
		return p, "", false
	}
	return p, string(body), true
}

// A ledger is a file of effects, to which many processes append, each effect with one write, a line break and a line.
// The kernel may cut short the write of a process that is killed: what follows has its own line all the same.
type ledger struct{ file *os.File }

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &ledger{f}, nil
}

func (l *ledger) append(e effect) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("append to ledger: %w", err)
	}
	if _, err := l.file.Write(append([]byte{'\n'}, line...)); err != nil {
		return fmt.Errorf("append to ledger: %w", err)
	}
	return nil
}

// readLedger returns all effects in the order of their writes. A line that was cut short is none: nobody was told of
// it.
func readLedger(path string) ([]effect, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	var effects []effect
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var e effect
		err := json.Unmarshal(lines.Bytes(), &e)
		if syntax := new(json.SyntaxError); errors.As(err, &syntax) && syntax.Offset == int64(len(lines.Bytes())) {
			continue // it ended too soon
		}
		if err != nil {
			return nil, fmt.Errorf("read ledger: line %d: %w", n, err)
		}
		effects = append(effects, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	return effects, nil
}
