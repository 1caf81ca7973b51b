package engine

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// turns limits how much each principal asks of the store at once, in this process. If a principal asks for more, the
// rest waits, and requests of others are not queued behind it. A request that waits for a turn has sent nothing.
type turns struct {
	each int // 0 for no limit

	mu   sync.Mutex
	busy map[driver.ScopeID]*lane
}

const (
	// claimsAtOnce is how many claims each principal may have under way. If a store takes a millisecond for a claim, this
	// allows 16 000 of them a second.
	claimsAtOnce = 16

	// answersAtOnce is how many bytes of each principal's answers may be on their way to the store. A larger answer goes
	// alone.
	answersAtOnce = 4 << 20
	smallAnswer   = 64 << 10 // in bytes; an answer up to this size needs no turn
)

type lane struct {
	n     int       // the amount under way
	queue list.List // elements are of type *turn
}

type turn struct {
	n    int
	come chan struct{} // closed when the turn has come
}

// take waits for a turn for the amount n. It reports false if ctx ends first, or longest has passed. A caller that has
// got a turn gives it back.
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
		return true // the turn has come meanwhile
	default:
		l.queue.Remove(place)
		t.next(l) // a smaller one may have waited behind it
		return false
	}
}

func (t *turns) fits(l *lane, n int) bool { return l.n == 0 || l.n+n <= t.each }

// next gives turns to those that have waited longest, as long as they fit. If some wait, something is under way.
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
