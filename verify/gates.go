package verify

import (
	"slices"
	"time"
)

// Gates are bounds on what loads show.
type Gates struct {
	// MinSuccess is which part of the requests has to succeed, 0 to 1. Defaults to no bound.
	MinSuccess float64
	// MaxP99 bounds how long 99 % of the answered attempts take. It is held against loads without faults if there are any:
	// faults add their own time. Defaults to no bound.
	MaxP99 time.Duration
	// MaxDuplicates is how many duplicate effects a load may have.
	MaxDuplicates int
}

// check returns the gates, each with the worst that the loads show. One that nobody has to ask for is closed if an
// operation broke a promise. What could not be measured closes its gate. Without a load there are none.
func (g *Gates) check(loads []Load) (gates []Gate) {
	if len(loads) == 0 {
		return nil
	}
	if g.MinSuccess > 0 {
		got := loads[0].SuccessRate
		for i := range loads {
			got = min(got, loads[i].SuccessRate)
		}
		gates = append(gates, Gate{Name: "--min-success", Bound: g.MinSuccess, Got: got, Open: got >= g.MinSuccess})
	}
	if g.MaxP99 > 0 {
		got, known := slowest(loads)
		gates = append(gates, Gate{
			Name: "--max-p99", Bound: milliseconds(g.MaxP99), Got: milliseconds(got), Unit: "ms", Open: known && got <= g.MaxP99,
		})
	}
	duplicates, known := 0, true
	for i := range loads {
		duplicates = max(duplicates, loads[i].Duplicates)
		known = known && loads[i].Effects >= 0
	}
	if !known && duplicates <= g.MaxDuplicates {
		duplicates = -1
	}
	gates = append(gates, Gate{
		Name: "--max-duplicates", Bound: float64(g.MaxDuplicates), Got: float64(duplicates),
		Open: known && duplicates <= g.MaxDuplicates,
	})
	broken := 0
	for i := range loads {
		broken += loads[i].Broken
	}
	if broken > 0 && g.MaxDuplicates == 0 { // duplicates that are let pass contradict each other
		gates = append(gates, Gate{Name: "broken promises", Got: float64(broken)})
	}
	return gates
}

// slowest returns the longest P99, and whether every load that counts has one.
func slowest(loads []Load) (p99 time.Duration, known bool) {
	counts := slices.DeleteFunc(slices.Clone(loads), func(l Load) bool { return l.Faults > 0 })
	if len(counts) == 0 {
		counts = loads
	}
	known = true
	for i := range counts {
		p99 = max(p99, counts[i].P99)
		known = known && counts[i].P99 > 0
	}
	return p99, known
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
