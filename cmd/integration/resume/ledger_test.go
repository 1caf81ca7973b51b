package resume

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// ledgerNames are the three systems that an order reaches, and the steps in which it does.
var ledgerNames = []string{"charge", "reserve", "notify"}

// ledgers are systems that deduplicate by key, as a card processor does: each writes down what comes with a new key,
// and repeats its receipt to a known one.
type ledgers struct {
	url  string
	gate chan struct{} // if set, nothing is written down before it is closed

	mu       sync.Mutex
	receipts map[string]string   // by ledger and key
	entries  map[string][]string // orders, by ledger
	calls    map[string]int      // by ledger, those that wait at the gate included
}

func newLedgers(t testing.TB) *ledgers {
	l := &ledgers{receipts: map[string]string{}, entries: map[string][]string{}, calls: map[string]int{}}
	s := httptest.NewServer(l)
	t.Cleanup(s.Close)
	l.url = s.URL
	return l
}

func (l *ledgers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	order, err := io.ReadAll(r.Body)
	name, key := strings.TrimPrefix(r.URL.Path, "/"), r.Header.Get("Idempotency-Key")
	if err != nil || key == "" {
		http.Error(w, "a body and a key are needed", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	l.calls[name]++
	l.mu.Unlock()
	if l.gate != nil {
		<-l.gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	receipt, known := l.receipts[name+key]
	if !known {
		l.entries[name] = append(l.entries[name], string(order))
		receipt = fmt.Sprintf("%s %d", name, len(l.entries[name]))
		l.receipts[name+key] = receipt
	}
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, receipt)
}

// called returns how often a ledger was reached.
func (l *ledgers) called(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[name]
}

// check fails unless each ledger has one entry for an order.
func (l *ledgers) check(t testing.TB, order string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range ledgerNames {
		n := 0
		for _, entry := range l.entries[name] {
			if entry == order {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the ledger %s has %d entries for %s, want 1", name, n, order)
		}
	}
}
