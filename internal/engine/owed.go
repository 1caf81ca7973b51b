package engine

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/internal/pause"
)

// owed holds the releases-by-token that this guard owes: of claims that it gave up, or sent more than once. Each is
// sent until acknowledged, and once more when a request's life has passed since the last copy of the claim was sent,
// because a copy that was under way may have been executed after the first release. The releases are detached from any
// request and counted as work.
type owed struct {
	engine *Engine

	mu      sync.Mutex
	shares  budget.Shares // of all that is queued or being sent
	queue   dueHeap
	busy    int // being sent
	running bool
	wake    chan struct{} // tells the dispatcher that the head has changed or a sender is free
}

const (
	owedSenders = 8
	owedBackoff = 5 * time.Second
)

type owedRelease struct {
	id    driver.ID
	by    driver.Owner
	sent  time.Time // the last copy of the claim
	due   time.Time
	again bool // the first release was acknowledged; this is the second copy
	tries int
}

// full reports whether the principal may claim: what it claims may come to be owed. So memory stays bounded, although
// whatever is owed is kept.
func (o *owed) full(p driver.ScopeID) budget.Fullness {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shares.Full(p)
}

func (o *owed) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shares.N
}

// add takes over the release of a claim that this process has not run.
func (o *owed) add(id driver.ID, t driver.Token, sent time.Time) {
	o.addAbove(id, driver.Owner{Token: t}, sent)
}

// addAbove takes over the release of copies of a claim. ran.Fence is the last fence under which this process has started
// the handler, 0 for never.
func (o *owed) addAbove(id driver.ID, ran driver.Owner, sent time.Time) {
	by := ran
	by.Above = true
	o.engine.work.add()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shares.Take(id.Scope(), 1)
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

// send sends one release.
func (o *owed) send(r *owedRelease) {
	err := errEnded
	defer func() { o.sent(r, err) }()
	err = o.release(context.Background(), owedBackoff, r.id, r.by)
}

// sent says what is still owed of a release that was sent.
func (o *owed) sent(r *owedRelease, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy--
	switch {
	case err != nil:
		r.tries++
		r.due = time.Now().Add(pause.Jitter(pause.Backoff(firstPause, owedBackoff, r.tries)))
		o.push(r)
	case !r.again:
		r.again = true
		r.tries = 0
		r.due = r.sent.Add(o.engine.life)
		o.push(r)
	default:
		o.shares.Give(r.id.Scope(), 1)
		o.engine.work.done()
		o.nudge()
	}
}

// release sends one release. An error means that there was no reply.
func (o *owed) release(ctx context.Context, within time.Duration, id driver.ID, by driver.Owner) error {
	e := o.engine
	err := e.askUntil(ctx, e.within(within).until, request{verb: "release", id: id}, func(ctx context.Context) error {
		_, _, err := e.store.Settle(ctx, id, by, driver.Outcome{State: driver.Free, Error: "claim given up"})
		return err
	})
	if errors.Is(err, driver.ErrUnreadable) {
		return nil // an answer too, and no later one would differ
	}
	if err == nil {
		e.waiting.wake(id)
	}
	return err
}

// giveBack releases a claim that was won and whose handler is not started. Nothing is owed if the store replies, and no
// other copy of the claim may be under way.
func (o *owed) giveBack(ctx context.Context, id driver.ID, token driver.Token, copies int, sent time.Time) {
	owe := true
	o.engine.work.add()
	defer o.engine.work.done()
	defer func() {
		if owe {
			o.add(id, token, sent)
		}
	}()
	if copies == 1 {
		by := driver.Owner{Token: token, Above: true}
		owe = o.release(context.WithoutCancel(ctx), claimWindow, id, by) != nil
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
