// Package budget bounds what the requests of a process take together, and the share of it that one principal may have.
package budget

import (
	"errors"
	"math"
	"sync"

	"github.com/semelhq/semel/driver"
)

// A Budget is how many bytes the bodies in this process may take at once, of memory or of temporary files. It is safe
// for concurrent use. A nil one has no end.
type Budget struct {
	mu sync.Mutex
	Shares
}

// ErrNoRoom means that the budget, or the share of one principal, is taken.
var ErrNoRoom = errors.New("too much is held of requests and answers")

// AtLeast makes room for two bodies of n bytes, whosever: what one route allows is no more than one principal's share.
func (b *Budget) AtLeast(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.each = max(b.each, 2*int(min(n, math.MaxInt/4)))
	b.Total = max(b.Total, b.each)
}

// Take reports whether there was room. A principal that is not known yet, the zero one, has no share.
func (b *Budget) Take(p driver.ScopeID, n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.N+n > b.Total || p != (driver.ScopeID{}) && b.Held[p]+n > b.each {
		return false
	}
	b.Shares.Take(p, n)
	return true
}

// Give gives back what was taken.
func (b *Budget) Give(p driver.ScopeID, n int) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Shares.Give(p, n)
}

// Use returns how much is taken, and of how much.
func (b *Budget) Use() (taken, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.N), int64(b.Total)
}

// Some returns n, or what is left of it that fits twice into one principal's share: an answer that was stored under a
// higher limit is still replayed.
func (b *Budget) Some(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(n, b.each/2)
}
