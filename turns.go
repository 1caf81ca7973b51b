package semel

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// turns bounds how many claims of one principal are under way at once, in this process. More of them wait, and what others ask
// of the store is not queued behind them. Who waits has sent nothing: if its client goes, nothing is left to be done.
type turns struct {
	each int // 0 for any number

	mu   sync.Mutex
	busy map[ScopeID]*lane
}

// claimsAtOnce is each principal's number. A store that takes a millisecond for a claim does 16 000 of them a second.
const claimsAtOnce = 16

type lane struct {
	n     int       // under way
	queue list.List // of chan struct{}, closed when a turn comes
}

// take waits for a turn, until ctx ends or the time has come; then it reports false. Whoever has got one gives it back.
func (t *turns) take(ctx context.Context, p ScopeID, longest time.Duration) bool {
	if t.each == 0 {
		return true
	}
	t.mu.Lock()
	l := t.busy[p]
	if l == nil {
		l = &lane{}
		if t.busy == nil {
			t.busy = map[ScopeID]*lane{}
		}
		t.busy[p] = l
	}
	if l.n < t.each {
		l.n++
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	place := l.queue.PushBack(mine)
	t.mu.Unlock()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-mine:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine:
		return true // it has come meanwhile
	default:
		l.queue.Remove(place)
		return false
	}
}

// give hands a turn to who has waited longest.
func (t *turns) give(p ScopeID) {
	if t.each == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.busy[p]
	if first := l.queue.Front(); first != nil {
		close(l.queue.Remove(first).(chan struct{}))
		return
	}
	if l.n--; l.n == 0 {
		delete(t.busy, p)
	}
}

// myTurn waits for a turn to claim, or refuses.
func (g *Guard) myTurn(ctx context.Context, a *ask) *Problem {
	if g.turns.take(ctx, a.id.Scope(), min(claimWindow, g.life)) {
		return nil
	}
	if ctx.Err() != nil {
		return g.unavailable(ctx, ctx.Err())
	}
	return g.crowded(ctx, a, g.policy.FailOpen, "too many claims are under way")
}
