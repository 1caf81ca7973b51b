package engine

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// turns bounds how much of one principal is asked of the store at once, in this process. More of it waits, and what
// others ask is not queued behind it. Who waits for a turn has sent nothing.
type turns struct {
	each int // 0 for any amount

	mu   sync.Mutex
	busy map[driver.ScopeID]*lane
}

const (
	// claimsAtOnce is each principal's number of claims. A store that takes a millisecond for one does 16 000 of them a
	// second.
	claimsAtOnce = 16

	// answersAtOnce is how many bytes of each principal's answers are on their way to the store. A larger one goes alone.
	answersAtOnce = 4 << 20
	smallAnswer   = 64 << 10 // in bytes; up to that an answer needs no turn
)

type lane struct {
	n     int       // under way
	queue list.List // of *turn
}

type turn struct {
	n    int
	come chan struct{} // closed when it has come
}

// take waits for a turn with n, until ctx ends or the time has come; then it reports false. Whoever has got one gives
// it back.
func (t *turns) take(ctx context.Context, p driver.ScopeID, n int, longest time.Duration) bool {
	if t.each == 0 {
		return true
	}
	t.mu.Lock()
	l := t.busy[p]
	if l == nil {
		l = &lane{}
		if t.busy == nil {
			t.busy = map[driver.ScopeID]*lane{}
		}
		t.busy[p] = l
	}
	if l.queue.Len() == 0 && t.fits(l, n) {
		l.n += n
		t.mu.Unlock()
		return true
	}
	mine := &turn{n, make(chan struct{})}
	place := l.queue.PushBack(mine)
	t.mu.Unlock()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-mine.come:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine.come:
		return true // it has come meanwhile
	default:
		l.queue.Remove(place)
		t.next(l) // a smaller one may have stood behind it
		return false
	}
}

func (t *turns) fits(l *lane, n int) bool { return l.n == 0 || l.n+n <= t.each }

// next hands turns to those who have waited longest, as far as they fit. Where some wait, there is something under way.
func (t *turns) next(l *lane) {
	for first := l.queue.Front(); first != nil && t.fits(l, first.Value.(*turn).n); first = l.queue.Front() {
		one := l.queue.Remove(first).(*turn)
		l.n += one.n
		close(one.come)
	}
}

// give gives a turn back.
func (t *turns) give(p driver.ScopeID, n int) {
	if t.each == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.busy[p]
	l.n -= n
	if t.next(l); l.n == 0 {
		delete(t.busy, p)
	}
}

// large returns the size of an answer that needs a turn, else 0.
func (r *Run) large(o *driver.Outcome) int {
	if r.Policy.OneCommit || o.Response == nil || len(o.Response.Body) <= smallAnswer {
		return 0
	}
	return len(o.Response.Body)
}
