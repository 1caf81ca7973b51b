package semel

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// rounds look into the store again and again for what is due, and do it, a bounded number at a time, the oldest first.
// What fails is tried again ever more rarely, so that it holds up nothing else.
type rounds struct {
	c     *Completer
	query driver.Query
	due   func(*driver.Record) (driver.Time, bool)
	do    func(context.Context, driver.ID) bool // reports whether it failed

	maxDue, maxFailures int

	slots chan struct{}
	under sync.WaitGroup

	mu     sync.Mutex
	round  uint64
	busy   map[driver.ID]bool
	failed map[driver.ID]*failure
}

// A failure is what a process remembers of an operation that it could not run: its record shows nothing of that.
type failure struct {
	tries int
	at    driver.Time // on the store's clock
	round uint64      // in which it was last seen
}

const (
	// Of more that is due at once the youngest are left for the next look.
	maxDue = 1024
	// Past this number of failures nothing more is remembered, and what is due is taken in any order, so that failures
	// that are not remembered can't stand before the rest for ever.
	maxFailures = 16_384
	// A listing that takes longer is cut off: a store that gives no answer must not keep the completer from its work.
	longestList = 15 * time.Minute
)

func newRounds(c *Completer, q driver.Query, due func(*driver.Record) (driver.Time, bool), do func(context.Context, driver.ID) bool) *rounds {
	return &rounds{
		c: c, query: q, due: due, do: do, maxDue: maxDue, maxFailures: maxFailures,
		slots: make(chan struct{}, c.o.Concurrency), busy: map[driver.ID]bool{}, failed: map[driver.ID]*failure{},
	}
}

func (r *rounds) run(ctx context.Context) {
	defer r.under.Wait()
	for {
		began := time.Now()
		list, more := r.list(ctx)
		rest := jitter(r.c.o.Interval)
		if more {
			rest = min(rest, time.Since(began)) // so that a backlog does not keep the store busy with lists
		}
		if !r.start(ctx, list) || !pause(ctx, rest) {
			return
		}
	}
}

// start starts what is due, as slots come free. It returns false if ctx ends before.
func (r *rounds) start(ctx context.Context, list []dueOperation) bool {
	for _, d := range list {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return false
		}
		r.mark(d.id)
		r.under.Go(func() {
			failed := true // also if it ends its goroutine
			defer func() {
				r.note(d, failed)
				<-r.slots
			}()
			failed = r.do(ctx, d.id)
		})
	}
	return true
}

// list returns what is due, the oldest first; more says that this is not all. What a listing has shown before it failed
// is due all the same.
func (r *rounds) list(ctx context.Context) (list []dueOperation, more bool) {
	r.mu.Lock()
	r.round++
	full := len(r.failed) >= r.maxFailures
	r.mu.Unlock()
	var found dueOperations
	in := map[driver.ID]bool{} // found: a record that changes meanwhile may be listed twice
	bounded, cancel := context.WithTimeout(ctx, longestList)
	defer cancel()
	err := r.c.lister.List(bounded, r.query, func(id driver.ID, rec driver.Record) bool {
		at, due := r.due(&rec)
		if !due || !r.free(id, &rec) || rec.Now < at || id.Reserved() || in[id] {
			return true
		}
		d := dueOperation{id: id, rank: int64(at), now: rec.Now}
		if full {
			d.rank = rand.Int64()
		}
		heap.Push(&found, d)
		in[id] = true
		if len(found) > r.maxDue {
			delete(in, heap.Pop(&found).(dueOperation).id)
			more = true
		}
		return true
	})
	if err != nil && ctx.Err() == nil {
		r.c.guard.storeFailed(ctx, "list", driver.ID{}, err)
	}
	if err == nil || errors.Is(err, driver.ErrUnreadable) { // then only records that can't be read are missing
		r.forget()
	} else {
		more = false
	}
	list = make([]dueOperation, len(found))
	for i := len(list) - 1; i >= 0; i-- {
		list[i] = heap.Pop(&found).(dueOperation)
	}
	return list, more && !full
}

// free reports whether an operation is neither being done nor resting after a failure.
func (r *rounds) free(id driver.ID, rec *driver.Record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failed[id]
	if f != nil {
		f.round = r.round
	}
	return !r.busy[id] && (f == nil || rec.Now >= f.at.Add(r.c.delay(f.tries)))
}

func (r *rounds) mark(id driver.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[id] = true
}

// note remembers what became of an operation.
func (r *rounds) note(d dueOperation, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, d.id)
	f := r.failed[d.id]
	switch {
	case !failed:
		delete(r.failed, d.id)
	case f != nil:
		f.tries++
		f.at = d.now
	case len(r.failed) < r.maxFailures:
		r.failed[d.id] = &failure{tries: 1, at: d.now, round: r.round}
	}
}

// forget drops the failures of operations that are no longer listed.
func (r *rounds) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, f := range r.failed {
		if f.round < r.round && !r.busy[id] {
			delete(r.failed, id)
		}
	}
}

// A dueOperation is one that a look has found.
type dueOperation struct {
	id   driver.ID
	rank int64       // the least first
	now  driver.Time // the store's clock when it was found
}

// dueOperations are a heap, the last on top.
type dueOperations []dueOperation

func (h dueOperations) Len() int           { return len(h) }
func (h dueOperations) Less(i, j int) bool { return h[i].rank > h[j].rank }
func (h dueOperations) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueOperations) Push(x any)        { *h = append(*h, x.(dueOperation)) }
func (h *dueOperations) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
