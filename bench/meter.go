package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// A meter times two pieces of work in turn, so that whatever else the machine does touches both alike.
type meter struct {
	rounds int
	span   time.Duration
	least  int // operations that a span must hold
	doubts *[]doubt
}

// each returns a meter for works with so many callers, in which each of them has several turns.
func (m *meter) each(callers int) *meter {
	return &meter{m.rounds, m.span, 4 * callers, m.doubts}
}

// A work does n operations.
type work func(n int)

// A measurement is the median of the rounds.
type measurement struct {
	a, b  time.Duration // an operation
	ratio float64       // a : b, the median of each round's
}

// A doubt is of a measurement that did not settle: the quartiles of one of its sides are further apart than allowed,
// however often it was repeated.
type doubt struct {
	measurement
	spread float64
}

const (
	spreadAllowed = 0.25 // of the quartiles, as a share of the median
	triesAllowed  = 3
)

// compare times a and b, again if one of them does not settle, and returns the steadiest try. Each is first run until a
// span is known to hold enough operations, and then once more: the second look at a server whose connections were just
// opened is slow too.
func (m *meter) compare(a, b work) measurement {
	m.calibrate(a)
	m.calibrate(b)
	na, nb := m.calibrate(a), m.calibrate(b)
	var best doubt
	for try := range triesAllowed {
		var as, bs, ratios []float64
		for range m.rounds {
			ta, tb := timed(a, na), timed(b, nb)
			as, bs, ratios = append(as, ta), append(bs, tb), append(ratios, ta/tb)
		}
		spread := max(spread(as), spread(bs))
		if try == 0 || spread < best.spread {
			best = doubt{measurement{time.Duration(median(as)), time.Duration(median(bs)), median(ratios)}, spread}
		}
		if spread <= spreadAllowed {
			return best.measurement
		}
	}
	*m.doubts = append(*m.doubts, best)
	return best.measurement
}

// settled raises a doubt of all that a suite has measured, if its floor did not settle.
func (m *meter) settled(floor []float64) {
	if s := spread(floor); s > spreadAllowed {
		*m.doubts = append(*m.doubts, doubt{spread: s})
	}
}

func (m *meter) calibrate(w work) int {
	n := max(1, m.least)
	for {
		t := timed(w, n) * float64(n)
		if t >= float64(m.span)/4 {
			return max(1, m.least, int(float64(n)*float64(m.span)/t))
		}
		n *= 4
	}
}

// timed returns nanoseconds an operation.
func timed(w work, n int) float64 {
	runtime.GC()
	start := time.Now()
	w(n)
	return float64(time.Since(start)) / float64(n)
}

// allocations returns heap allocations an operation.
func allocations(w work) float64 {
	const n = 2000
	w(n)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// spread is how far the quartiles are apart, as a share of the median.
func spread(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[len(s)*3/4] - s[len(s)/4]) / s[len(s)/2]
}

func perOp(d time.Duration) string {
	if d < 10*time.Microsecond {
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	}
	return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1000)
}

func times(r float64) string { return fmt.Sprintf("%.2f×", r) }
