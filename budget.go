package semel

import (
	"errors"
	"math"
	"sync"

	"github.com/semelhq/semel/driver"
)

// A budget is how many bytes the bodies in this process may take at once, of memory or of temporary files. It is safe for
// concurrent use. A nil one has no end.
type budget struct {
	mu sync.Mutex
	shares
}

var errNoRoom = errors.New("too much is held of requests and answers")

// atLeast makes room for two bodies of n bytes, whosever: what one route allows is no more than one principal's share.
func (b *budget) atLeast(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.each = max(b.each, 2*int(min(n, math.MaxInt/4)))
	b.total = max(b.total, b.each)
}

// take reports whether there was room. A principal that is not known yet, the zero one, has no share.
func (b *budget) take(p driver.ScopeID, n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n+n > b.total || p != (driver.ScopeID{}) && b.held[p]+n > b.each {
		return false
	}
	b.shares.take(p, n)
	return true
}

// give gives back what was taken.
func (b *budget) give(p driver.ScopeID, n int) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares.give(p, n)
}

// use returns how much is taken, and of how much.
func (b *budget) use() (taken, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.n), int64(b.total)
}

// some returns n, or what is left of it that fits twice into one principal's share: an answer that was stored under a higher
// limit is still replayed.
func (b *budget) some(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(n, b.each/2)
}
