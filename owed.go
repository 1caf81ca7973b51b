package semel

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

// owed holds the releases-by-token that this guard owes: of claims that it gave up, or sent more than once. Each is sent
// until acknowledged, and once more when a request's life has passed since the last copy of the claim was sent, because
// a copy that was under way may have been executed after the first release. The releases are detached from any request
// and counted as work.
type owed struct {
	core *core

	mu      sync.Mutex
	queue   dueHeap
	busy    int // being sent
	running bool
	wake    chan struct{} // tells the dispatcher that the head has changed or a sender is free
}

const (
	// A guard that owes so many releases claims nothing more until the store has taken some: its memory stays bounded, and
	// every one of them is kept.
	maxOwed     = 10_000
	owedSenders = 8
	owedBackoff = 5 * time.Second
)

type owedRelease struct {
	id    ID
	by    Owner
	sent  time.Time // the last copy of the claim
	due   time.Time
	again bool // the first release was acknowledged; this is the second copy
	tries int
}

func (o *owed) full() bool { return o.count() >= maxOwed }

func (o *owed) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) + o.busy
}

// add takes over a release. by.Fence is the last fence under which this guard started the handler, 0 for never.
func (o *owed) add(id ID, by Owner, sent time.Time) {
	o.core.work.add()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.push(&owedRelease{id: id, by: by, sent: sent, due: time.Now()})
	if !o.running {
		o.running = true
		o.wake = make(chan struct{}, 1)
		go o.dispatch()
	}
}

// push is called with o.mu held.
func (o *owed) push(r *owedRelease) {
	heap.Push(&o.queue, r)
	o.nudge()
}

func (o *owed) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// dispatch runs while anything is owed.
func (o *owed) dispatch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		o.mu.Lock()
		if len(o.queue) == 0 && o.busy == 0 {
			o.running = false
			o.mu.Unlock()
			return
		}
		wait := time.Hour
		if len(o.queue) > 0 && o.busy < owedSenders {
			wait = time.Until(o.queue[0].due)
			if wait <= 0 {
				o.busy++
				go o.send(heap.Pop(&o.queue).(*owedRelease))
				o.mu.Unlock()
				continue
			}
		}
		o.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-o.wake:
		}
	}
}

// send sends one release and says what is still owed of it.
func (o *owed) send(r *owedRelease) {
	ctx, cancel := context.WithTimeout(context.Background(), min(o.core.life, owedBackoff))
	_, _, err := o.core.store.Settle(ctx, r.id, r.by, Outcome{State: Free, Error: "claim given up"})
	cancel()
	if err != nil {
		o.core.storeFailed(context.Background(), "release", r.id, err)
	} else {
		o.core.waiting.wake(r.id)
	}
	if errors.Is(err, ErrUnreadable) {
		err = nil // an answer too, and no later one would differ
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy--
	switch {
	case err != nil:
		r.tries++
		r.due = time.Now().Add(jitter(min(owedBackoff, 20*time.Millisecond<<min(r.tries, 10))))
		o.push(r)
	case !r.again:
		r.again = true
		r.tries = 0
		r.due = r.sent.Add(o.core.life)
		o.push(r)
	default:
		o.core.work.done()
		o.nudge()
	}
}

type dueHeap []*owedRelease

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*owedRelease)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
