package budget

import (
	"github.com/semelhq/semel/driver"
)

// Shares bounds what a process keeps of one sort: in all, and for one principal, so that nobody takes the room of the
// others. Whoever has one guards it.
type Shares struct {
	Total, each int

	N    int
	Held map[driver.ScopeID]int // nil if one principal may have all: then nobody's part counts
}

// Fullness says who may still take something.
type Fullness uint8

// What shares can be.
const (
	HasRoom   Fullness = iota
	shareFull          // the principal's
	AllFull
)

// NewShares returns shares of a total, of which one principal may have that part, and one at least.
func NewShares(total int, share float64) Shares {
	s := Shares{Total: total, each: max(1, int(share*float64(total)))}
	if s.each < total {
		s.Held = map[driver.ScopeID]int{}
	}
	return s
}

// Full says whether the principal may take one more.
func (s *Shares) Full(p driver.ScopeID) Fullness {
	switch {
	case s.N >= s.Total:
		return AllFull
	case s.Held[p] >= s.each:
		return shareFull
	}
	return HasRoom
}

// Take takes n for a principal.
func (s *Shares) Take(p driver.ScopeID, n int) {
	s.N += n
	if s.Held != nil {
		s.Held[p] += n
	}
}

// Give gives back what was taken.
func (s *Shares) Give(p driver.ScopeID, n int) {
	s.N -= n
	if s.Held == nil {
		return
	}
	if s.Held[p] -= n; s.Held[p] == 0 {
		delete(s.Held, p)
	}
}
