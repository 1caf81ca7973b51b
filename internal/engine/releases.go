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

// releases are the releases-by-token that this process owes, for claims that it gave up or sent more than once. Each is
// sent until it is acknowledged. It is sent once more when a request's life has passed since the last copy of the claim
// was sent. The reason is that a copy that was under way may have been executed after the first release. Releases are
// detached from any request and counted as work.
type releases struct {
	engine *Engine

	mu      sync.Mutex
	shares  budget.Shares // of all releases that are queued or being sent
	queue   dueHeap
	busy    int // number of releases being sent
	running bool
	wake    chan struct{} // tells the dispatcher that the first release has changed or a sender is free
}

const (
	releaseSenders      = 8
	longestReleasePause = 5 * time.Second
)

// A release is one release that is owed.
type release struct {
	id    driver.ID
	by    driver.Owner
	sent  time.Time // when the last copy of the claim was sent
	due   time.Time
	again bool // the first release was acknowledged; this is the second copy
	tries int
}

// full reports whether the principal may claim, since each claim may come to owe a release. So memory stays bounded,
// although every owed release is kept.
func (q *releases) full(p driver.ScopeID) budget.Fullness {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shares.Full(p)
}

func (q *releases) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shares.N
}

// add takes over the release of a claim that this process has not run.
func (q *releases) add(id driver.ID, t driver.Token, sent time.Time) {
	q.addAbove(id, driver.Owner{Token: t}, sent)
}

// addAbove takes over the release of copies of a claim. ran.Fence is the last fence under which this process has
// started the handler; 0 if it never has.
func (q *releases) addAbove(id driver.ID, ran driver.Owner, sent time.Time) {
	by := ran
	by.Above = true
	q.engine.work.add()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shares.Take(id.Scope(), 1)
	q.push(&release{id: id, by: by, sent: sent, due: time.Now()})
	if !q.running {
		q.running = true
		q.wake = make(chan struct{}, 1)
		go q.dispatch()
	}
}

// push is called with q.mu held.
func (q *releases) push(r *release) {
	heap.Push(&q.queue, r)
	q.nudge()
}

func (q *releases) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// dispatch runs while any release is owed.
func (q *releases) dispatch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		q.mu.Lock()
		if len(q.queue) == 0 && q.busy == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		wait := time.Hour
		if len(q.queue) > 0 && q.busy < releaseSenders {
			wait = time.Until(q.queue[0].due)
			if wait <= 0 {
				q.busy++
				go q.send(heap.Pop(&q.queue).(*release))
				q.mu.Unlock()
				continue
			}
		}
		q.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.wake:
		}
	}
}

// send sends one release.
func (q *releases) send(r *release) {
	err := errEnded
	defer func() { q.sent(r, err) }()
	err = q.free(context.Background(), longestReleasePause, r.id, r.by)
}

// sent decides what is still owed after a release was sent.
func (q *releases) sent(r *release, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	switch {
	case err != nil:
		r.tries++
		r.due = time.Now().Add(pause.Jitter(pause.Backoff(firstPause, longestReleasePause, r.tries)))
		q.push(r)
	case !r.again:
		r.again = true
		r.tries = 0
		r.due = r.sent.Add(q.engine.life)
		q.push(r)
	default:
		q.shares.Give(r.id.Scope(), 1)
		q.engine.work.done()
		q.nudge()
	}
}

// free sends one release. An error means that there was no reply.
func (q *releases) free(ctx context.Context, within time.Duration, id driver.ID, by driver.Owner) error {
	e := q.engine
	err := e.askUntil(ctx, e.within(within).until, request{verb: "release", id: id}, func(ctx context.Context) error {
		_, _, err := e.store.Settle(ctx, id, by, driver.Outcome{State: driver.Free, Error: "claim given up"})
		return err
	})
	if errors.Is(err, driver.ErrUnreadable) {
		return nil // this is an answer too, and a later one would be the same
	}
	if err == nil {
		e.waiting.wake(id)
	}
	return err
}

// giveBack releases a claim that was won and whose handler is not started. If the store replies, nothing is owed; but
// no other copy of the claim may be under way.
func (q *releases) giveBack(ctx context.Context, id driver.ID, token driver.Token, copies int, sent time.Time) {
	owe := true
	q.engine.work.add()
	defer q.engine.work.done()
	defer func() {
		if owe {
			q.add(id, token, sent)
		}
	}()
	if copies == 1 {
		by := driver.Owner{Token: token, Above: true}
		owe = q.free(context.WithoutCancel(ctx), claimWindow, id, by) != nil
	}
}

type dueHeap []*release

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*release)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
