package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/internal/budget"
)

// Nothing is left of waiters that have gone.
func TestField18_WaitersLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	w := waiting{shares: budget.NewShares(10, 1)}
	a, b := w.join(numberedID(1), 2), w.join(numberedID(1), 2)
	if a == nil || b == nil || w.join(numberedID(1), 2) != nil || w.join(numberedID(2), 0) != nil {
		t.Fatal("two have no place, or others have one")
	}
	if len(w.keys) != 1 || w.count() != 2 {
		t.Errorf("%d keys, %d waiters; want 1 and 2", len(w.keys), w.count())
	}
	w.leave(a)
	w.leave(b)
	w.leave(nil)
	if len(w.keys) != 0 || len(w.shares.Held) != 0 || w.count() != 0 {
		t.Errorf("%d keys, %d principals, %d waiters are left", len(w.keys), len(w.shares.Held), w.count())
	}
}

// Nothing is left of claims that are over, nor of those that nobody waits for any more.
func TestField18_TurnsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	turns := turns{each: 1}
	ctx, p := t.Context(), numberedID(1).Scope()
	if !turns.take(ctx, p, 1, 0) || turns.take(ctx, p, 1, 0) || turns.take(ctx, p, 1, 0) {
		t.Fatal("the first has no turn, or others have one")
	}
	if l := turns.busy[p]; l.n != 1 || l.queue.Len() != 0 {
		t.Errorf("%d under way, %d wait; want 1 and none", l.n, l.queue.Len())
	}
	got := make(chan bool)
	go func() { got <- turns.take(ctx, p, 1, 1<<40) }()
	for waits := 0; waits == 0; {
		turns.mu.Lock()
		waits = turns.busy[p].queue.Len()
		turns.mu.Unlock()
	}
	turns.give(p, 1)
	if !<-got || turns.busy[p].n != 1 {
		t.Error("the turn was not handed on")
	}
	if turns.give(p, 1); len(turns.busy) != 0 {
		t.Errorf("%d principals are left", len(turns.busy))
	}
}

// Whoever leaves the queue lets those behind it have what is free.
func TestAttack05_WhoLeavesTheQueueHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := turns{each: 4}
		ctx, p := t.Context(), numberedID(1).Scope()
		if !turns.take(ctx, p, 3, 0) {
			t.Fatal("no turn though there is room")
		}
		large, small := make(chan bool, 1), make(chan bool, 1)
		go func() { large <- turns.take(ctx, p, 2, time.Second) }()
		synctest.Wait()
		go func() { small <- turns.take(ctx, p, 1, time.Hour) }()
		synctest.Wait()
		if len(small) != 0 {
			t.Error("the small one has overtaken the large one")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if <-large || !<-small || turns.busy[p].n != 4 {
			t.Errorf("%d under way, want 3 and the small one", turns.busy[p].n)
		}
		turns.give(p, 3)
		if turns.give(p, 1); len(turns.busy) != 0 {
			t.Errorf("%d principals are left", len(turns.busy))
		}
	})
}
