// Package rounds looks into a store again and again for operations that are due, and does them: a bounded number at a
// time, the oldest first. An operation that was done without success is tried again at growing intervals, so that it
// holds up nothing else.
package rounds

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/semelhq/semel/driver"
)

// Settings are the settings of [Rounds]. Unless a field says otherwise it is required, and called by [Rounds.Run]
// alone.
type Settings struct {
	Lister driver.Lister
	Query  driver.Query
	// Listing is the longest that one look may take. Operations that it has found before it was cut off are done all the
	// same.
	Listing time.Duration
	// Due says from what time, on the store's clock, an operation may be done; false if it must not be done. fence is the
	// fence that the operation's last Do without success has returned, 0 for none. Due may change rec; the operation's
	// name is taken from rec.
	Due func(id driver.ID, rec *driver.Record, fence uint64) (at driver.Time, due bool)
	// Do does one operation. It returns whether that failed, and the fence that it has raised, 0 for none. It is called
	// concurrently, but once at a time for one operation. If it ends its goroutine it has failed.
	Do func(ctx context.Context, o Operation) (again bool, fence uint64)
	// Concurrency is how many operations are done at once.
	Concurrency int
	// Most is how many operations a look finds at most. If more are due, the youngest are left for the next look.
	Most int
	// Delay is how long an operation rests after the given number of tries without success, from 1 on.
	Delay func(tries int) time.Duration
	// Least is the rest that [Rounds.Tell] does not shorten.
	Least time.Duration
	// Rest is how long to wait after a look, once all that it found was begun. took is how long the look took; more says
	// that there was more than it could find.
	Rest func(took time.Duration, more bool) time.Duration
	// Looked is told of each look that ctx has not cut off, and why the look failed.
	Looked func(ctx context.Context, err error)
}

// An Operation is an operation that has to be done.
type Operation struct {
	ID   driver.ID
	Name string
}

// Rounds are made by [New].
type Rounds struct {
	Settings
	told     chan Operation
	ended    chan ended
	doing    int
	round    uint64
	memories map[driver.ID]*memory
	kept     int // the most memories, besides those of operations that are being done
}

// A memory is what a process knows about an operation that it does, or has done without success. The record shows
// nothing of that.
type memory struct {
	busy  bool
	tries int       // tries without success
	at    time.Time // when the last try ended
	until time.Time // the operation rests until then
	fence uint64
	round uint64 // the round in which it was last seen
}

type ended struct {
	id    driver.ID
	again bool
	fence uint64
}

const (
	// maxMemories bounds what is remembered. While there is no room for more, due operations are taken in any order, so
	// that operations that are forgotten can't stay before the others for ever.
	maxMemories = 16_384
	maxTold     = 256
)

// New returns rounds that nothing has started yet.
func New(s Settings) *Rounds {
	return &Rounds{
		Settings: s, told: make(chan Operation, maxTold), ended: make(chan ended, s.Concurrency),
		memories: map[driver.ID]*memory{}, kept: maxMemories,
	}
}

// Tell says that somebody waits for an operation. It is done before all others, whether it rests or not. Tell never
// blocks; if there is no room, the operation is left to the next look. It may be called concurrently, also before Run.
func (r *Rounds) Tell(o Operation) {
	select {
	case r.told <- o:
	default:
	}
}

// Run works until ctx ends. It returns when everything that it has begun has ended. Run it once.
func (r *Rounds) Run(ctx context.Context) {
	var (
		found []found
		rest  time.Duration
		look  = time.NewTimer(0) // the timer runs while found is empty
	)
	defer look.Stop()
	defer func() {
		for ; r.doing > 0; r.doing-- {
			<-r.ended
		}
	}()
	for ctx.Err() == nil {
		told := r.told
		if r.doing == r.Concurrency {
			told = nil
		} else if len(told) == 0 && len(found) > 0 {
			if r.rested(found[0].ID) { // Tell has not been called for it since
				r.begin(ctx, found[0].Operation)
			}
			if found = found[1:]; len(found) == 0 {
				look.Reset(rest)
			}
			continue
		}
		select {
		case <-ctx.Done():
		case o := <-told:
			if m := r.memories[o.ID]; m == nil || !m.busy && time.Since(m.at) >= r.Least {
				r.begin(ctx, o)
			}
		case e := <-r.ended:
			r.end(e)
		case <-look.C:
			began := time.Now()
			var more bool
			found, more = r.look(ctx)
			if rest = r.Rest(time.Since(began), more); len(found) == 0 {
				look.Reset(rest)
			}
		}
	}
}

// rested reports whether an operation is neither being done nor resting.
func (r *Rounds) rested(id driver.ID) bool {
	m := r.memories[id]
	return m == nil || !m.busy && !time.Now().Before(m.until)
}

func (r *Rounds) begin(ctx context.Context, o Operation) {
	m := r.memories[o.ID]
	if m == nil {
		r.makeRoom()
		m = &memory{}
		r.memories[o.ID] = m
	}
	m.busy, m.round = true, r.round
	r.doing++
	go func() {
		e := ended{id: o.ID, again: true}
		defer func() { r.ended <- e }()
		e.again, e.fence = r.Do(ctx, o)
	}()
}

// makeRoom forgets any one operation if there are too many. That operation is then tried again sooner.
func (r *Rounds) makeRoom() {
	if len(r.memories)-r.doing < r.kept {
		return
	}
	for id, m := range r.memories {
		if !m.busy {
			delete(r.memories, id)
			return
		}
	}
}

// end takes note of what became of an operation.
func (r *Rounds) end(e ended) {
	r.doing--
	if !e.again {
		delete(r.memories, e.id)
		return
	}
	m := r.memories[e.id]
	m.busy, m.at = false, time.Now()
	m.tries++
	m.until = m.at.Add(r.Delay(m.tries))
	if e.fence != 0 {
		m.fence = e.fence
	}
}

// look returns the operations that are due, the oldest first; more says that these are not all.
func (r *Rounds) look(ctx context.Context) (list []found, more bool) {
	r.round++
	full := len(r.memories)-r.doing >= r.kept
	var due oldest
	in := map[driver.ID]bool{} // ids that are due: a record that changes meanwhile may be listed twice
	bounded, cancel := context.WithTimeout(ctx, r.Listing)
	defer cancel()
	err := r.Lister.List(bounded, r.Query, func(id driver.ID, rec driver.Record) bool {
		fence := uint64(0)
		if m := r.memories[id]; m != nil {
			m.round, fence = r.round, m.fence
		}
		at, ok := r.Due(id, &rec, fence)
		if !ok || !r.rested(id) || rec.Now < at || id.Reserved() || in[id] {
			return true
		}
		f := found{Operation: Operation{ID: id, Name: rec.Operation}, rank: int64(at)}
		if full {
			f.rank = rand.Int64()
		}
		heap.Push(&due, f)
		in[id] = true
		if len(due) > r.Most {
			delete(in, heap.Pop(&due).(found).ID)
			more = true
		}
		return true
	})
	if ctx.Err() == nil {
		r.Looked(ctx, err)
	}
	if err == nil || errors.Is(err, driver.ErrUnreadable) { // in this case only records that can't be read are missing
		r.forget()
	} else {
		more = false
	}
	list = make([]found, len(due))
	for i := len(list) - 1; i >= 0; i-- {
		list[i] = heap.Pop(&due).(found)
	}
	return list, more && !full
}

// forget drops operations that are no longer listed, except those that Tell has just named.
func (r *Rounds) forget() {
	for id, m := range r.memories {
		if m.round < r.round && !m.busy && time.Since(m.at) >= r.Least {
			delete(r.memories, id)
		}
	}
}

// A found is an operation that is due.
type found struct {
	Operation
	rank int64 // the lowest comes first
}

// oldest is a heap with the youngest on top.
type oldest []found

func (h oldest) Len() int           { return len(h) }
func (h oldest) Less(i, j int) bool { return h[i].rank > h[j].rank }
func (h oldest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *oldest) Push(x any)        { *h = append(*h, x.(found)) }
func (h *oldest) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
