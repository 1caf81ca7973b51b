package semel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// waits is a policy under which repeats wait.
func waits(onLost semel.LostPolicy, wait time.Duration) semel.Policy {
	p := shortLease(onLost)
	p.Wait = wait
	return p
}

// paused is a handler that takes its time and then pays.
func paused(l *ledger, d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(d)
		l.pay(w, r)
	})
}

func TestR28_WaitersAreWokenAtOnceWithinAProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var paid ledger
		g, _ := newGuard(t, nil, waits(semel.Hold, time.Minute))
		route := g.Route(waits(semel.Hold, time.Minute)) // shares the process's waiters
		start := time.Now()
		const takes = 7123456789 * time.Nanosecond
		first := serve(g.Wrap(paused(&paid, takes)), post("k", `{}`))
		synctest.Wait()
		var all []*served
		for i := range 20 {
			h := g.Wrap(paused(&paid, 0))
			if i%2 == 1 {
				h = route.Wrap(paused(&paid, 0))
			}
			all = append(all, serve(h, post("k", `{}`)))
			time.Sleep(100 * time.Millisecond)
		}
		wantAnswer(t, first.answer(), http.StatusCreated, "payment 1", false)
		for _, s := range all {
			wantAnswer(t, s.answer(), http.StatusCreated, "payment 1", true)
			if at := s.at.Sub(start); at != takes {
				t.Errorf("answered after %v, want as the run ended, after %v", at, takes)
			}
		}
	})
}

// Across processes one waiter of a key asks the store for all, after 25 ms, growing to 500 ms.
func TestR28_WaitersPollAcrossProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		seen := &counting{Store: store}
		var paid ledger
		g, _ := newGuard(t, store, waits(semel.Hold, 0))
		other, _ := newGuard(t, seen, waits(semel.Hold, time.Minute))
		start := time.Now()
		first := serve(g.Wrap(paused(&paid, 4*time.Second)), post("k", `{}`))
		synctest.Wait()
		var all []*served
		for range 10 {
			all = append(all, serve(other.Wrap(paused(&paid, 0)), post("k", `{}`)))
		}
		wantAnswer(t, first.answer(), http.StatusCreated, "payment 1", false)
		for _, s := range all {
			wantAnswer(t, s.answer(), http.StatusCreated, "payment 1", true)
			if late := s.at.Sub(start) - 4*time.Second; late < 0 || late > 500*time.Millisecond {
				t.Errorf("answered %v after the run's end, want within half a second", late)
			}
		}
		var want []time.Duration
		at := time.Duration(0)
		for step := 25 * time.Millisecond; at < 4*time.Second; step = min(2*step, 500*time.Millisecond) {
			at += step
			want = append(want, at)
		}
		if got := since(start, seen.load); !reflect.DeepEqual(got, want) {
			t.Errorf("asked the store at %v, want at %v", got, want)
		}
		if n := seen.writes(); n != 0 {
			t.Errorf("waiters wrote %d times", n)
		}
	})
}

func TestR28_WaitIsBounded(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		wait, most time.Duration
		prefer     []string
		want       time.Duration
		applied    string
		why        string
	}{
		{0, 0, nil, 0, "", "no waiting by default"},
		{3 * s, 0, nil, 3 * s, "", "the route waits"},
		{0, 0, []string{"wait=3"}, 0, "", "the route does not let clients wait"},
		{0, 5 * s, nil, 0, "", "only if the client prefers it"},
		{0, 5 * s, []string{"wait=2"}, 2 * s, "wait=2", "as the client prefers"},
		{0, 5 * s, []string{"wait=10"}, 5 * s, "wait=5", "bounded by the route"},
		{0, 5 * s, []string{"wait=2147483647"}, 5 * s, "wait=5", "bounded by the route"},
		{3 * s, 0, []string{"wait=1"}, s, "wait=1", "shorter than the route's"},
		{3 * s, 0, []string{"wait=0"}, 0, "wait=0", "the client won't wait"},
		{3 * s, 0, []string{"wait=9"}, 3 * s, "wait=3", "the route's wait is the bound by default"},
		{0, 5 * s, []string{"respond-async", `foo="x", wait=4`}, 4 * s, "wait=4", "among others"},
		{3 * s, 0, []string{"wait=soon"}, 3 * s, "", "not a number"},
		{3 * s, 0, []string{"wait=-1"}, 3 * s, "", "not a number"},
	} {
		t.Run(fmt.Sprint(c.wait, " ", c.most, " ", c.prefer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				seen := &counting{Store: store}
				p := waits(semel.Hold, c.wait)
				p.MaxWait = c.most
				g, _ := newGuard(t, store, p)
				other, _ := newGuard(t, seen, p)
				end := make(chan struct{})
				first := serve(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })), post("k", `{}`))
				synctest.Wait()
				for _, guard := range []*semel.Guard{g, other} { // in the owner's process and in another
					r := post("k", `{}`)
					for _, line := range c.prefer {
						r.Header.Add("Prefer", line)
					}
					start := time.Now()
					w := answer(guard.Wrap(say("again")), r)
					wantProblem(t, w, http.StatusConflict, refusal.InProgress)
					if took := time.Since(start); took != c.want {
						t.Errorf("waited %v, want %v: %s", took, c.want, c.why)
					}
					if got := w.Header().Get("Preference-Applied"); got != c.applied {
						t.Errorf("Preference-Applied: %q, want %q", got, c.applied)
					}
				}
				if n := seen.writes(); n != 0 {
					t.Errorf("waiters wrote %d times", n)
				}
				close(end)
				first.answer()
			})
		})
	}
}

func TestR28_R60_Case25_ThousandWaiters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limit, want int }{{0, 64}, {5, 5}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := waits(semel.Hold, 20*time.Second)
				p.MaxWaiters = c.limit
				g, _ := newGuardWith(t, nil, semel.Options{Policy: p, MaxAttempts: -1})
				var paid ledger
				h := g.Wrap(paused(&paid, 10*time.Second))
				start := time.Now()
				first := serve(h, post("k", `{}`))
				synctest.Wait()
				all := make([]*served, 1000)
				for i := range all {
					all[i] = serve(h, post("k", `{}`))
				}
				waited := 0
				for _, s := range all {
					w := s.answer()
					if w.Code == http.StatusCreated {
						wantAnswer(t, w, http.StatusCreated, "payment 1", true)
						waited++
						continue
					}
					wantProblem(t, w, http.StatusConflict, refusal.InProgress)
					if took := s.at.Sub(start); took != 0 {
						t.Errorf("refused after %v, want at once", took)
					}
				}
				if waited != c.want || paid.count() != 1 {
					t.Errorf("%d waited, %d effects; want %d and 1", waited, paid.count(), c.want)
				}
				first.answer()

				// The places are free again.
				again := serve(h, post("next", `{}`))
				synctest.Wait()
				wantAnswer(t, answer(h, post("next", `{}`)), http.StatusCreated, "payment 2", true)
				again.answer()
			})
		})
	}
}

func TestR28_OneWaiterTakesOverWhenTheOwnerReleases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		shared bool // the waiters are in the owner's process
	}{
		{"in the same process", true},
		{"in another process", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				g, _ := newGuard(t, store, waits(semel.Hold, time.Minute))
				other := g
				if !c.shared {
					other, _ = newGuard(t, store, waits(semel.Hold, time.Minute))
				}
				first := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(2 * time.Second)
					w.WriteHeader(http.StatusTooManyRequests)
				})), post("k", `{}`))
				synctest.Wait()
				var paid ledger
				h := other.Wrap(paused(&paid, 2*time.Second))
				all := make([]*served, 30)
				for i := range all {
					all[i] = serve(h, post("k", `{}`))
				}
				if w := first.answer(); w.Code != http.StatusTooManyRequests || refusalCode(w) != "" {
					t.Errorf("the owner's client was told %d %s", w.Code, w.Body)
				}
				took := 0
				for _, s := range all {
					w := s.answer()
					if !replayed(w) {
						took++
					}
					wantAnswer(t, w, http.StatusCreated, "payment 1", replayed(w))
				}
				if took != 1 || paid.count() != 1 {
					t.Errorf("%d took over, %d effects; want 1 and 1", took, paid.count())
				}
			})
		})
	}
}

// A waiter sees that a lease has run out, which nobody tells it.
func TestR28_R46_WaiterTakesOverALapsedRun(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				way := &mortal{Store: store}
				dead, _ := newGuard(t, way, waits(onLost, 0))
				g, _ := newGuard(t, store, waits(onLost, time.Minute))
				end := make(chan struct{})
				start := time.Now()
				lost := serve(dead.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })), post("k", `{}`))
				synctest.Wait()
				way.dead.Store(true)
				w := answer(g.Wrap(say("next")), post("k", `{}`))
				if took := time.Since(start); took < 3*time.Second || took > 3500*time.Millisecond {
					t.Errorf("answered after %v, want soon after the lease", took)
				}
				if onLost == semel.Hold {
					wantProblem(t, w, http.StatusConflict, refusal.OutcomeUnknown)
				} else {
					wantAnswer(t, w, http.StatusCreated, "next", false)
				}
				way.dead.Store(false)
				close(end)
				lost.answer()
			})
		})
	}
}

func TestCase05_WaiterThatTimesOutLeavesTheClaimAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		seen := &counting{Store: store}
		g, _ := newGuard(t, store, waits(semel.Rerun, 0))
		other, _ := newGuard(t, seen, waits(semel.Rerun, 2500*time.Millisecond))
		var paid ledger
		first := serve(g.Wrap(paused(&paid, 10*time.Second)), post("k", `{}`))
		time.Sleep(200 * time.Millisecond)
		h := other.Wrap(paused(&paid, 0))
		before := loaded(t, store, "k")
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress)
		after := loaded(t, store, "k")
		after.LeaseEnd = before.LeaseEnd // the owner's own renewals
		sameRecord(t, before, after)
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress) // a third caller

		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // and one that goes
		defer cancel()
		start := time.Now()
		answer(h, post("k", `{}`).WithContext(ctx))
		if took := time.Since(start); took != time.Second {
			t.Errorf("a waiter whose client went waited on, for %v", took)
		}
		wantAnswer(t, first.answer(), http.StatusCreated, "payment 1", false)
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
		if n := seen.writes(); n != 0 || paid.count() != 1 {
			t.Errorf("waiters wrote %d times, %d effects; want 0 and 1", n, paid.count())
		}
	})
}

// A store that does not answer one poll holds up neither the polls of later ones nor the wake-up.
func TestR28_PollThatHangsOrFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		polls := 0
		f.load = func(ctx context.Context, id driver.ID) (driver.Record, error) {
			switch polls++; polls {
			case 1:
				<-ctx.Done()
				return driver.Record{}, ctx.Err()
			case 2:
				return driver.Record{}, errDown
			}
			return store.Load(ctx, id)
		}
		var paid ledger
		g, _ := newGuard(t, store, waits(semel.Hold, 0))
		other, seen := newGuard(t, f, waits(semel.Hold, time.Minute))
		start := time.Now()
		first := serve(g.Wrap(paused(&paid, 3*time.Second)), post("k", `{}`))
		synctest.Wait()
		wantAnswer(t, answer(other.Wrap(paused(&paid, 0)), post("k", `{}`)), http.StatusCreated, "payment 1", true)
		if took := time.Since(start); took > 3500*time.Millisecond {
			t.Errorf("answered after %v, want within half a second of the run's end", took)
		}
		if n := seen.count(event.StoreError); n != 2 {
			t.Errorf("%d failed polls reported, want 2", n)
		}
		first.answer()
	})
}

// TestR28_NoWakeUpIsMissed: polls fail here, so a waiter that missed its wake-up would wait to its end.
func TestR28_NoWakeUpIsMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		f.load = func(context.Context, driver.ID) (driver.Record, error) { return driver.Record{}, errDown }
		g, _ := newGuard(t, f, waits(semel.Rerun, time.Hour))
		var mu sync.Mutex
		runs := map[string]int{}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			mu.Lock()
			runs[key]++
			n := runs[key]
			mu.Unlock()
			if rand.IntN(2) == 0 {
				time.Sleep(time.Duration(rand.IntN(3)) * time.Nanosecond)
			}
			if n < 3 {
				w.WriteHeader(http.StatusServiceUnavailable) // the waiters go on
				return
			}
			say("paid").ServeHTTP(w, r)
		}))
		start := time.Now()
		for round := range 300 {
			key := fmt.Sprint("k", round)
			var all []*served
			for range 10 {
				all = append(all, serve(h, post(key, `{}`)))
			}
			busy := 0
			for _, s := range all {
				w := s.answer()
				if w.Code == http.StatusServiceUnavailable {
					busy++
					continue
				}
				wantAnswer(t, w, http.StatusCreated, "paid", replayed(w))
			}
			if busy != 2 || runs[key] != 3 {
				t.Fatalf("%d were told 503 in %d runs, want 2 in 3", busy, runs[key])
			}
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("took %v: somebody missed a wake-up", took)
		}
	})
}

// The owner settles after the waiter's claim was refused, and before it has joined the others: it looks again.
func TestR28_Case12_OwnerEndsBetweenClaimAndJoining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		f.load = func(context.Context, driver.ID) (driver.Record, error) { return driver.Record{}, errDown }
		g, _ := newGuard(t, f, waits(semel.Hold, time.Minute))
		end := make(chan struct{})
		first := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-end
			say("paid").ServeHTTP(w, r)
		})), post("k", `{}`))
		synctest.Wait()
		claims := 0
		f.set(func(f *faulty) {
			f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
				rec, owned, err := store.Claim(ctx, id, c)
				if claims++; claims == 1 {
					close(end)
					first.answer()
				}
				return rec, owned, err
			}
		})
		start := time.Now()
		wantAnswer(t, answer(g.Wrap(say("again")), post("k", `{}`)), http.StatusCreated, "paid", true)
		if took := time.Since(start); took != 0 || claims != 2 {
			t.Errorf("answered after %v and %d claims, want at once and 2", took, claims)
		}
	})
}

// a waiter that is told 409 is told the age of the run at that time, not at the time when it came.
func TestR27_R28_RetryAfterAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var paid ledger
		g, _ := newGuard(t, store, semel.Policy{Wait: 12 * time.Second})
		other, _ := newGuard(t, store, semel.Policy{Wait: 12 * time.Second})
		first := serve(g.Wrap(paused(&paid, time.Minute)), post("k", `{}`))
		synctest.Wait()
		for _, guard := range []*semel.Guard{g, other} {
			s := serve(guard.Wrap(paused(&paid, 0)), post("k", `{}`))
			w := s.answer()
			wantProblem(t, w, http.StatusConflict, refusal.InProgress)
			if got, want := w.Header().Get("Retry-After"), fmt.Sprint(s.at.Sub(first.started).Seconds()); got != want {
				t.Errorf("Retry-After: %q, want %q", got, want)
			}
		}
		first.answer()
	})
}

// A waiter that leaves gives its place to another, and the polling to one that stays.
func TestR28_WaiterThatLeavesGivesUpItsPlaceAndTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var paid ledger
		g, _ := newGuard(t, store, shortLease(semel.Hold))
		p := shortLease(semel.Hold)
		p.MaxWait, p.MaxWaiters = time.Minute, 2
		other, _ := newGuard(t, store, p)
		first := serve(g.Wrap(paused(&paid, 10*time.Second)), post("k", `{}`))
		synctest.Wait()
		h := other.Wrap(paused(&paid, 0))
		brief := serve(h, post("k", `{}`, "Prefer", "wait=1")) // it polls
		synctest.Wait()
		stays := serve(h, post("k", `{}`, "Prefer", "wait=60"))
		synctest.Wait()
		wantProblem(t, answer(h, post("k", `{}`, "Prefer", "wait=60")), http.StatusConflict, refusal.InProgress) // no place
		wantProblem(t, brief.answer(), http.StatusConflict, refusal.InProgress)
		next := serve(h, post("k", `{}`, "Prefer", "wait=60"))
		first.answer()
		for _, s := range []*served{stays, next} {
			wantAnswer(t, s.answer(), http.StatusCreated, "payment 1", true)
			if late := s.at.Sub(first.at); late > 500*time.Millisecond {
				t.Errorf("answered %v after the run's end, want within half a second", late)
			}
		}
	})
}
