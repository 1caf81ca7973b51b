package redisstore

import (
	"sync/atomic"
	"testing"
)

// A client that panics does so in the caller's goroutine, where it can be caught, once the other commands have
// returned.
func TestAPanicOfTheClientInAListingIsItsCallers(t *testing.T) {
	t.Parallel()
	var done atomic.Int64
	defer func() {
		if p := recover(); p != "no pool" {
			t.Errorf("the panic is %v", p)
		}
		if n := done.Load(); n < atOnce-1 {
			t.Errorf("%d commands have returned, want those of all other goroutines", n)
		}
	}()
	each(2*atOnce, func(i int) {
		if i == 0 {
			panic("no pool")
		}
		done.Add(1)
	})
	t.Error("it returned")
}
