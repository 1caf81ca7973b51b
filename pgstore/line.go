package pgstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

const (
	// maxTrips is how many groups are under way at once. One more leaves the server no less idle, and makes groups smaller.
	maxTrips = 2
	// slowTrip is after what time a trip no longer counts: it waits for a lock, or for a network, and others need not.
	slowTrip = 50 * time.Millisecond

	// The most that one group holds, and of how many bytes a verb goes alone.
	groupVerbs = 128
	groupBytes = 4 << 20
	aloneBytes = 1 << 20
)

// A line is where the verbs of this process wait for each other. Whoever finds nobody under way goes at once, alone. What
// comes meanwhile goes together, as soon as there is a place: one statement for all of a kind, one round trip, one
// commit. There is no goroutine while nobody waits.
type line struct {
	execute func(*group) // in a goroutine of its own
	most    int          // trips

	mu      sync.Mutex
	waiting []*waiter // those that came first are first
	trips   int       // under way, without the slow ones; as many as there may be, if anybody waits
}

// A waiter is a verb in the line.
type waiter struct {
	kind *kindOfVerb
	one  *call // alone
	read func(row [][]byte) error

	claim *driver.Claim // of a claim

	f     found // of a verb that returns a record
	owned bool  // of another one
	err   error

	turn  chan turn // gets one
	trip  *trip     // what it leads, alone
	group *group    // what it is in
	over  bool      // the group has executed it, or nobody knows
}

type turn uint8

const (
	turnLead  turn = iota // go, alone; the trip is yours
	turnAlone             // go, alone: the group has left you out, or nothing of it was executed
	turnOver              // executed: see the waiter's result and error
)

// A trip is a place among those that are under way.
type trip struct {
	line *line
	slow *time.Timer
	over bool // it no longer counts
}

// enter takes a place for a verb that can go at once; else it returns nil, and the verb is in the line.
func (l *line) enter(w *waiter) *trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trips < l.most {
		return l.begin()
	}
	w.turn = make(chan turn, 1)
	l.waiting = append(l.waiting, w)
	return nil
}

// begin is called with the lock held.
func (l *line) begin() *trip {
	l.trips++
	t := &trip{line: l}
	t.slow = time.AfterFunc(slowTrip, t.end)
	return t
}

// end gives the place to those that wait. It may be called again.
func (t *trip) end() {
	l := t.line
	l.mu.Lock()
	defer l.mu.Unlock()
	t.slow.Stop()
	if t.over {
		return
	}
	t.over = true
	l.trips--
	if len(l.waiting) == 0 {
		return
	}
	next := l.begin()
	if len(l.waiting) == 1 {
		w := l.waiting[0]
		l.waiting = nil
		w.trip = next
		w.turn <- turnLead
		return
	}
	g := l.take()
	go func() {
		defer g.answer()
		defer next.end() // before that, so that the next group need not wait for it
		l.execute(g)
	}()
}

// take makes a group of those that came first. It is called with the lock held.
func (l *line) take() *group {
	n, size := 0, 0
	for n < len(l.waiting) && n < groupVerbs {
		size += l.waiting[n].one.size()
		if n > 0 && size > groupBytes {
			break
		}
		n++
	}
	g := newGroup(slices.Clone(l.waiting[:n]))
	l.waiting = slices.Delete(l.waiting, 0, n)
	return g
}

// wait waits for the turn of a verb, until ctx ends. With an error its caller has left: it is not executed, unless that
// had begun.
func (l *line) wait(ctx context.Context, w *waiter) (turn, error) {
	select {
	case t := <-w.turn:
		return t, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(l.waiting, w)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.mu.Unlock()
	if i >= 0 {
		return 0, ctx.Err()
	}
	select {
	case t := <-w.turn:
		if t == turnOver {
			return t, nil
		}
		if t == turnLead {
			w.trip.end()
		}
	default:
		w.group.leave()
	}
	return 0, ctx.Err()
}
