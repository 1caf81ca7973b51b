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
	mu     sync.Mutex
	shares Shares
}

// ErrNoRoom means that the budget, or the share of one principal, is taken.
var ErrNoRoom = errors.New("too much is held of requests and answers")

// Set sets how much there is, of which one principal may have that part, before anything is taken.
func (b *Budget) Set(total int, share float64) { b.shares = NewShares(total, share) }

// AtLeast makes room for two bodies of n bytes, whosever: what one route allows is no more than one principal's share.
func (b *Budget) AtLeast(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares.each = max(b.shares.each, 2*int(min(n, math.MaxInt/4)))
	b.shares.Total = max(b.shares.Total, b.shares.each)
}

// Take reports whether there was room. A principal that is not known yet, the zero one, has no share.
func (b *Budget) Take(p driver.ScopeID, n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shares.N+n > b.shares.Total || p != (driver.ScopeID{}) && b.shares.Held[p]+n > b.shares.each {
		return false
	}
	b.shares.Take(p, n)
	return true
}

// Give gives back what was taken.
func (b *Budget) Give(p driver.ScopeID, n int) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares.Give(p, n)
}

// Use returns how much is taken, and of how much.
func (b *Budget) Use() (taken, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.shares.N), int64(b.shares.Total)
}

// Some returns n, or what is left of it that fits twice into one principal's share: an answer that was stored under a
// higher limit is still replayed.
func (b *Budget) Some(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(n, b.shares.each/2)
}
