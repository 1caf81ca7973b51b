package semel

import (
	"context"
	"slices"
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
	n     int // under way
	queue []chan struct{}
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
	l.queue = append(l.queue, mine)
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
	if i := slices.Index(l.queue, mine); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		return false
	}
	return true // it has come meanwhile
}

// give hands a turn to who has waited longest.
func (t *turns) give(p ScopeID) {
	if t.each == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.busy[p]
	if len(l.queue) > 0 {
		close(l.queue[0])
		l.queue = slices.Delete(l.queue, 0, 1)
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
