package semel_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// doing returns a guard's stats without what it holds of bodies.
func doing(g *semel.Guard) semel.Stats {
	s := g.Stats()
	return semel.Stats{Running: s.Running, OldestRun: s.OldestRun, Waiters: s.Waiters, Owed: s.Owed}
}

// Stats says what a guard, with all that were made from it, is doing: how many runs there are and how old the oldest
// is, in whatever order they end.
func TestR86_StatsOfRunsAndWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, semel.Policy{})
		check := func(when string, want semel.Stats) {
			t.Helper()
			synctest.Wait()
			for _, of := range []*semel.Guard{g, g.Route(semel.Policy{Wait: time.Minute})} {
				if got := doing(of); got != want {
					t.Errorf("%s: %+v, want %+v", when, got, want)
				}
			}
		}
		check("before", semel.Stats{})
		ends := map[string]chan struct{}{}
		running := map[string]*served{}
		start := func(g *semel.Guard, key string) {
			end := make(chan struct{})
			ends[key] = end
			running[key] = serve(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })), post(key, `{}`))
			synctest.Wait()
			time.Sleep(time.Second)
		}
		stop := func(key string) {
			close(ends[key])
			<-running[key].done
		}
		start(g, "a")
		start(g.Route(semel.Policy{OnLost: semel.Rerun}), "b")
		start(g, "c")
		start(g, "d")
		check("all run", semel.Stats{Running: 4, OldestRun: 4 * time.Second})
		waiter := serve(g.Route(semel.Policy{Wait: time.Minute}).Wrap(http.NotFoundHandler()), post("b", `{}`))
		other := serve(g.Route(semel.Policy{Wait: time.Minute}).Wrap(http.NotFoundHandler()), post("d", `{}`))
		check("two wait", semel.Stats{Running: 4, OldestRun: 4 * time.Second, Waiters: 2})
		stop("b") // in the middle
		check("one has ended", semel.Stats{Running: 3, OldestRun: 4 * time.Second, Waiters: 1})
		<-waiter.done
		stop("a") // the oldest
		check("the oldest has ended", semel.Stats{Running: 2, OldestRun: 2 * time.Second, Waiters: 1})
		stop("d") // the newest
		<-other.done
		check("the newest has ended", semel.Stats{Running: 1, OldestRun: 2 * time.Second})
		start(g, "e")
		check("another one", semel.Stats{Running: 2, OldestRun: 3 * time.Second})
		stop("c")
		check("the first of two", semel.Stats{Running: 1, OldestRun: time.Second})
		stop("e")
		check("none", semel.Stats{})
		for _, key := range []string{"f", "g", "h", "i"} {
			start(g, key)
		}
		stop("g")
		stop("h")
		check("two in the middle have ended", semel.Stats{Running: 2, OldestRun: 4 * time.Second})
		stop("i")
		check("the newest too", semel.Stats{Running: 1, OldestRun: 4 * time.Second})
		stop("f")
		check("none again", semel.Stats{})
		drained(t, g)
	})
}

// A run counts until its outcome is settled, and a claim that was given up until it has been released for good.
func TestR86_StatsOfSettlesAndReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		var up atomic.Bool
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if !up.Load() {
				return driver.Record{}, false, errDown
			}
			return f.Store.Settle(ctx, id, by, o)
		}
		g, _ := newGuard(t, f, shortLease(semel.Hold))
		answer(g.Wrap(say("paid")), post("k", `{}`))
		if got := doing(g); got != (semel.Stats{Running: 1, OldestRun: usualSettleWait}) {
			t.Errorf("while it is settled: %+v", got)
		}
		f.set(func(f *faulty) {
			f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
				return driver.Record{}, false, errDown
			}
		})
		answer(g.Wrap(say("paid")), post("other", `{}`))
		synctest.Wait()
		if got := g.Stats(); got.Owed != 1 || got.Running != 1 {
			t.Errorf("while one is owed: %+v", got)
		}
		up.Store(true)
		drained(t, g)
		if got := doing(g); got != (semel.Stats{}) {
			t.Errorf("in the end: %+v", got)
		}
	})
}

// An answer is held until it is stored, also when its client was told to come again, and until that has it.
func TestAttack05_R60_AnAnswerIsHeldUntilItIsStored(t *testing.T) {
	t.Parallel()
	const size = 100_000
	for _, ends := range []bool{true, false} { // its settle before MaxRun
		synctest.Test(t, func(t *testing.T) {
			f := &faulty{Store: memstore.New()}
			var up atomic.Bool
			f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
				if !up.Load() {
					return driver.Record{}, false, errDown
				}
				return f.Store.Settle(ctx, id, by, o)
			}
			g, _ := newGuard(t, f, shortLease(semel.Hold))
			wantRefused(t, answer(g.Wrap(say(strings.Repeat("x", size))), post("k", `{}`)), http.StatusServiceUnavailable, refusal.OutcomePending)
			if s := g.Stats(); s.BodyMemory < size || s.BodyMemory > 2*size || s.MaxBodyMemory != 256<<20 {
				t.Errorf("while it is settled: %+v", s)
			}
			up.Store(ends)
			time.Sleep(2 * defaults.MaxRun)
			if s := g.Stats(); s.BodyMemory != 0 || s.Running != 0 {
				t.Errorf("in the end: %+v", s)
			}
		})
	}
}

// What was stored when a route allowed more is still replayed, though it is more than one principal's share.
func TestAttack05_R60_AnAnswerAboveTheShareIsReplayed(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	store := memstore.New()
	before, _ := newGuard(t, store, semel.Policy{})
	answer(before.Wrap(say(strings.Repeat("x", size))), post("k", `{}`))
	small := semel.Policy{MaxRequestBody: 1 << 10, MaxResponseBody: 1 << 10}
	g, _ := newGuardWith(t, store, semel.Options{Policy: small, MaxBodyMemory: 1 << 10})
	for range 3 {
		if w := answer(g.Wrap(say("")), post("k", `{}`)); w.Code != http.StatusCreated || w.Body.Len() != size {
			t.Errorf("answered %d, %d bytes", w.Code, w.Body.Len())
		}
	}
	if s := g.Stats(); s.BodyMemory != 0 || s.MaxBodyMemory != 2*(2<<10+1) {
		t.Errorf("in the end: %+v", s)
	}
}
