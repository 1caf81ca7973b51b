package redisstore

import (
	"sync"
	"testing"

	"github.com/semelhq/semel/driver"
)

// A client that panics does so in the caller's goroutine, where it can be caught, once the other commands have
// returned.
func TestAPanicOfTheClientInABatchIsItsCallers(t *testing.T) {
	t.Parallel()
	const claims = atOnce + 1 // more than one goroutine's
	var mu sync.Mutex
	sent := map[string]bool{}
	s := openFake(t, func(key string, _ []string) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		sent[key] = true
		if len(sent) == 1 {
			panic("no pool")
		}
		return []byte("01700000000 5 "), nil
	})
	batch := make([]driver.ClaimOf, claims)
	for i := range batch {
		batch[i].ID[0] = byte(i)
	}
	defer func() {
		if p := recover(); p != "no pool" {
			t.Errorf("the panic is %v", p)
		}
		if len(sent) < atOnce {
			t.Errorf("%d claims were sent, want those of all other goroutines too", len(sent))
		}
	}()
	s.ClaimAll(t.Context(), batch)
	t.Error("it returned")
}
