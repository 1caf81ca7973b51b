package engine

import (
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
)

// waiting holds the requests that wait for another run of their operation. A waiter never writes. If the owner is in
// the same process, its settle wakes the waiters. For owners in other processes, one waiter for each key looks into the
// store for all of them.
type waiting struct {
	mu     sync.Mutex
	keys   map[driver.ID]*waitlist
	shares budget.Shares
}

type waitlist struct {
	n        int
	changed  chan struct{} // closed on a wake-up, then replaced
	turn     chan struct{} // holds a token: the waiter that takes it polls for the others
	interval time.Duration // until the next poll; owned by the holder of the turn
}

const (
	pollFirst = 25 * time.Millisecond
	pollLast  = 500 * time.Millisecond
)

// A ticket is one waiter's place. It knows which wake-ups the waiter has not seen.
type ticket struct {
	id      driver.ID
	list    *waitlist
	changed chan struct{}
}

// join takes a place for the operation, or returns nil if all places are taken. It is called before the record is read
// again, so that no wake-up is missed.
func (w *waiting) join(id driver.ID, limit int) *ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.keys[id]
	if l == nil {
		l = &waitlist{changed: make(chan struct{}), turn: make(chan struct{}, 1), interval: pollFirst}
		l.turn <- struct{}{}
		if w.keys == nil {
			w.keys = map[driver.ID]*waitlist{}
		}
		w.keys[id] = l
	}
	if l.n >= limit || w.shares.Full(id.Scope()) != budget.HasRoom {
		if l.n == 0 {
			delete(w.keys, id)
		}
		return nil
	}
	l.n++
	w.shares.Take(id.Scope(), 1)
	return &ticket{id: id, list: l, changed: l.changed}
}

// leave gives the place back.
func (w *waiting) leave(t *ticket) {
	if t == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shares.Give(t.id.Scope(), 1)
	if t.list.n--; t.list.n == 0 {
		delete(w.keys, t.id)
	}
}

func (w *waiting) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shares.N
}

// wake tells every waiter of the operation to look again.
func (w *waiting) wake(id driver.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.keys[id]; l != nil {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// wait returns true when the record may differ from rec, and false if the deadline or ctx came first.
func (w *waiting) wait(ctx context.Context, t *ticket, e *Engine, rec *driver.Record, deadline time.Time) bool {
	defer func() {
		w.mu.Lock()
		t.changed = t.list.changed
		w.mu.Unlock()
	}()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	select {
	case <-t.changed:
		return true
	case <-ctx.Done():
		return false
	case <-t.list.turn:
	}
	defer func() { t.list.turn <- struct{}{} }()
	for {
		poll := time.NewTimer(t.list.interval)
		select {
		case <-t.changed:
			poll.Stop()
			return true
		case <-ctx.Done():
			poll.Stop()
			return false
		case <-poll.C:
		}
		t.list.interval = min(2*t.list.interval, pollLast)
		now, err := e.Load(ctx, t.id)
		reading := now.Reads(now.OnLost)
		switch {
		case err != nil:
			continue
		case rec.Token == driver.Token{} && (reading == driver.ReadsAbsent || reading == driver.ReadsFree):
			return true // a transaction that has not committed holds the claim: only a claim can tell whether it has ended
		case now.Owner() != rec.Owner(), now.State != rec.State, reading != driver.ReadsRunning:
			t.list.interval = pollFirst
			w.wake(t.id)
			return true
		}
	}
}
