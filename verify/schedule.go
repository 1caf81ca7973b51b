package verify

import (
	"math"
	"math/rand/v2"
	"time"
)

// A planned request is what a seed decides about it.
type planned struct {
	index     int           // of the request, from 0 on
	at        time.Duration // since the load began
	operation int           // from 0 on, in the order of their first requests
	repeat    bool
}

// A schedule is the requests of a load, in the order of their times. The same options make the same one.
type schedule struct {
	random     *rand.Rand
	rate       float64
	total      int
	next       int
	operations int
	previous   time.Duration // the time of the request before
}

const (
	repeated = 0.3 // which part of the requests are repeats
	recent   = 20  // operations that a repeat of a recent one is of
)

func newSchedule(o LoadOptions) *schedule {
	return &schedule{random: newRandom(o.Seed), rate: o.Rate, total: max(1, int(math.Round(o.Rate*o.Duration.Seconds())))}
}

// take returns the next request, or false after the last one. A third of the repeats are sent at once with the request
// before, of the newest operation; a third are of a recent one, and a third of any.
func (s *schedule) take() (planned, bool) {
	if s.next == s.total {
		return planned{}, false
	}
	p := planned{index: s.next, at: time.Duration(float64(s.next) / s.rate * float64(time.Second)), operation: s.operations}
	if s.random.Float64() < repeated && s.operations > 0 {
		p.repeat = true
		switch s.random.IntN(3) {
		case 0:
			p.operation, p.at = s.operations-1, s.previous
		case 1:
			p.operation = s.operations - 1 - s.random.IntN(min(recent, s.operations))
		default:
			p.operation = s.random.IntN(s.operations)
		}
	} else {
		s.operations++
	}
	s.next++
	s.previous = p.at
	return p, true
}

// fault returns the fault that an attempt of a request is to meet, or "". Attempts count from 1.
func (o *LoadOptions) fault(request, attempt int) string {
	random := rand.New(rand.NewPCG(o.Seed, uint64(request)<<20|uint64(attempt))) //nolint:gosec // repeats a run
	if random.Float64() >= o.Faults {
		return ""
	}
	return faultKinds[random.IntN(len(faultKinds))]
}
