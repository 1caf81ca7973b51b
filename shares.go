package semel

import (
	"github.com/semelhq/semel/driver"
)

// shares bounds what a process keeps of one sort: in all, and for one principal, so that nobody takes the room of the
// others. Whoever has one guards it.
type shares struct {
	total, each int

	n    int
	held map[driver.ScopeID]int
}

type fullness uint8

const (
	hasRoom   fullness = iota
	shareFull          // the principal's
	allFull
)

func newShares(total int, share float64) shares {
	return shares{total: total, each: max(1, int(share*float64(total))), held: map[driver.ScopeID]int{}}
}

func (s *shares) full(p driver.ScopeID) fullness {
	switch {
	case s.n >= s.total:
		return allFull
	case s.held[p] >= s.each:
		return shareFull
	}
	return hasRoom
}

func (s *shares) take(p driver.ScopeID, n int) {
	s.n += n
	s.held[p] += n
}

func (s *shares) give(p driver.ScopeID, n int) {
	s.n -= n
	if s.held[p] -= n; s.held[p] == 0 {
		delete(s.held, p)
	}
}
