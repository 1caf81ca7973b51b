package retry

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// A bank charges once for each key.
type bank struct {
	mu      sync.Mutex
	asked   int
	charged map[string]bool
	fate    func(asked int) int // status, or 0: the answer is lost
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	status := b.fate(b.asked)
	if status < 300 {
		b.charged[r.Header.Get("Idempotency-Key")] = true
	}
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

// Check says what is wrong with Pay, or nil.
func Check(ctx context.Context, solution bool) error {
	pay := Pay
	if solution {
		pay = solved
	}
	ask := func(fate func(asked int) int) (status int, b *bank, err error) {
		b = &bank{charged: map[string]bool{}, fate: fate}
		server := httptest.NewServer(b)
		defer server.Close()
		status, err = pay(ctx, server.URL, `{"amount":4900}`)
		return status, b, err
	}
	lost := func(asked int) int {
		if asked == 1 {
			return 0
		}
		return http.StatusCreated
	}
	status, b, err := ask(lost)
	switch {
	case err != nil || status != http.StatusCreated:
		return fmt.Errorf("an answer was lost: a retry has to get it, not %s", drill.Told(status, err))
	case len(b.charged) != 1:
		return fmt.Errorf("the answer was lost, and the retry charged again: the bank has charged %d times, under as many keys", len(b.charged))
	}
	busy := func(asked int) int {
		if asked == 1 {
			return http.StatusServiceUnavailable
		}
		return http.StatusCreated
	}
	if status, b, err = ask(busy); err != nil || status != http.StatusCreated || len(b.charged) != 1 {
		return fmt.Errorf("the bank said 503 once: a retry has to end in 201, not %s", drill.Told(status, err))
	}
	status, b, err = ask(func(int) int { return http.StatusPaymentRequired })
	if err != nil || status != http.StatusPaymentRequired || b.asked != 1 {
		return fmt.Errorf("the card was declined, which is definite, but the bank was asked %d times, and the end was %s", b.asked, drill.Told(status, err))
	}
	return nil
}
