package semel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// slow returns a store whose verbs take a while, and none at all once their context has ended.
func slow(store driver.Store, d time.Duration) *faulty {
	f := &faulty{Store: store}
	f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
		select {
		case <-ctx.Done():
			return driver.Record{}, false, ctx.Err()
		case <-time.After(d):
			return store.Claim(ctx, id, c)
		}
	}
	return f
}

// numbered returns a key of alice's.
func numbered(i int) semel.Key {
	return semel.Key{Scope: "alice", Operation: "pay", Value: fmt.Sprint("k", i)}
}

func numberedRecord(t *testing.T, s driver.Store, i int) driver.Record {
	t.Helper()
	return recordOf(t, s, semel.Identify(nil, semel.KindDo, "alice", fmt.Sprint("k", i)))
}

// leaving returns a context that ends after a while, as that of a request whose client hangs up.
func leaving(t *testing.T, after time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), after)
	t.Cleanup(cancel)
	return ctx
}

// Whoever hangs up while a claim is under way has its run released by the reply: nothing is owed, reported or counted,
// and the key is free.
func TestField01_ClientsThatHangUpOweNothing(t *testing.T) {
	t.Parallel()
	const n = 100
	for name, hangUp := range map[string]func(*testing.T, *semel.Guard, *ledger){
		"requests": func(t *testing.T, g *semel.Guard, l *ledger) {
			h := g.Wrap(http.HandlerFunc(l.pay))
			for i := range n {
				answer(h, post(fmt.Sprint("k", i), `{}`).WithContext(leaving(t, time.Millisecond)))
			}
		},
		"calls of Do": func(t *testing.T, g *semel.Guard, l *ledger) {
			for i := range n {
				_, err := semel.Do(leaving(t, time.Millisecond), g, numbered(i), semel.Bytes("r"), func(context.Context) (int, error) { return l.add(), nil })
				if !errors.Is(err, refusal.StoreUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("call %d: %v, want not run since its context has ended", i, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				b := &switchBreaker{}
				g, seen := newGuardWith(t, slow(s, 2*time.Millisecond), semel.Options{Breaker: b, Policy: semel.Policy{OnLost: semel.Hold, FailOpen: true}})
				var l ledger
				hangUp(t, g, &l)
				synctest.Wait()
				if g.Stats().Owed != 0 || seen.count(event.GaveUp) != 0 || seen.count(event.StoreError) != 0 {
					t.Errorf("%d owed, %d given up, %d store errors; want none", g.Stats().Owed, seen.count(event.GaveUp), seen.count(event.StoreError))
				}
				for _, err := range b.heard {
					if err != nil {
						t.Fatalf("the breaker heard %v", err)
					}
				}
				checkEffects(t, &l, 0)
				checkRecords(t, s, n)
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if a := semel.FromContext(r.Context()).Attempt(); a != 1 {
						t.Errorf("the next run is attempt %d, want 1", a)
					}
					l.pay(w, r)
				}))
				for i := range n {
					if rec := numberedRecord(t, s, i); rec.State != driver.Absent && rec.State != driver.Free {
						t.Fatalf("record %d is %s", i, rec.State)
					}
					checkRun(t, answer(h, post(fmt.Sprint("k", i), `{}`)))
				}
				drained(t, g)
			})
		})
	}
}

// A client may go at any moment of its claim, and the reply be late or lost: nothing is run, and the key is free as
// soon as the store says anything.
func TestField01_TheReplyToAClaimDecidesNotItsClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		took     time.Duration // by the claim
		lost     bool          // its reply
		releases int           // that fail
		owed     int           // when the request has ended
	}{
		"a reply":                           {took: 2 * time.Millisecond},
		"a late reply":                      {took: 1900 * time.Millisecond},
		"a lost reply":                      {took: 2 * time.Millisecond, lost: true, owed: 1},
		"a reply, and a release without":    {took: 2 * time.Millisecond, releases: 1, owed: 1},
		"a reply, and no release for a day": {took: 2 * time.Millisecond, releases: 10, owed: 1},
		"a lost reply, and a lost release":  {took: 2 * time.Millisecond, lost: true, releases: 1, owed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, claims, releases := memstore.New(), 0, 0
				f := &faulty{Store: store}
				f.claim = func(ctx context.Context, id driver.ID, cl driver.Claim) (driver.Record, bool, error) {
					claims++
					time.Sleep(c.took)
					rec, owned, err := store.Claim(ctx, id, cl)
					if c.lost {
						return driver.Record{}, false, errDown
					}
					return rec, owned, err
				}
				f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
					if !by.Above || o.State != driver.Free {
						t.Errorf("%+v is settled as %+v, want a release by token", by, o)
					}
					if releases++; releases <= c.releases {
						return driver.Record{}, false, errDown
					}
					return store.Settle(ctx, id, by, o)
				}
				g, _ := newGuard(t, f, semel.Policy{OnLost: semel.Hold, FailOpen: true})
				var l ledger
				h := g.Wrap(http.HandlerFunc(l.pay))
				answer(h, post("k", `{}`).WithContext(leaving(t, time.Millisecond)))
				if got := g.Stats().Owed; got != c.owed {
					t.Errorf("%d releases are owed, want %d", got, c.owed)
				}
				drained(t, g)
				if rec := loaded(t, store, "k"); rec.State != driver.Free || rec.Attempt != 0 || claims != 1 {
					t.Errorf("after %d claims the record is %s, attempt %d; want free, 0", claims, rec.State, rec.Attempt)
				}
				checkEffects(t, &l, 0)
				want := c.releases + 1 + c.owed // what is owed is sent twice
				if releases != want {
					t.Errorf("%d releases were sent, want %d", releases, want)
				}
				answer(h, post("other", `{}`).WithContext(leaving(t, 0)))
				if claims != 1 {
					t.Error("a claim was sent for a client that had gone")
				}
			})
		})
	}
}

// In one-commit mode the transaction is rolled back: nothing was recorded.
func TestField01_OneCommitRollsBackForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		s.claim = func() error { time.Sleep(2 * time.Millisecond); return nil }
		g, seen := newGuard(t, s, semel.Policy{OneCommit: true})
		h := g.Wrap(s.working(paying, nil))
		answer(h, post("k", `{}`).WithContext(leaving(t, time.Millisecond)))
		s.wantEffects()
		if rec := loaded(t, s, "k"); rec.State != driver.Absent || seen.count(event.StoreError) != 0 || g.Stats().Owed != 0 {
			t.Errorf("the record is %s, %d store errors, %d owed", rec.State, seen.count(event.StoreError), g.Stats().Owed)
		}
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		s.wantEffects("paid")
		drained(t, g)
	})
}

// unanswered executes claims of one principal without a reply to them.
func unanswered(store driver.Store, principal string) *faulty {
	f := &faulty{Store: store}
	f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
		rec, owned, err := store.Claim(ctx, id, c)
		if id.Scope() == semel.Identify(nil, semel.KindHTTP, principal, "").Scope() {
			return driver.Record{}, false, errDown
		}
		return rec, owned, err
	}
	return f
}

// What is owed for one principal refuses that one only, once its share is full, and never opens.
func TestField01_AFullShareRefusesItsPrincipalOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := unanswered(memstore.New(), "mallory")
		g, seen := newGuardWith(t, f, semel.Options{MaxOwed: 30, Policy: semel.Policy{FailOpen: true}})
		var opened, l ledger
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if w.Header().Get("Idempotency-Status") == "bypassed" {
				opened.add()
			}
			l.pay(w, r)
		}))
		mallory := func(i int) (code int, problem refusal.Code) {
			w := answer(h, post("m"+strconv.Itoa(i), `{}`, "X-Principal", "mallory"))
			return w.Code, codeOf(w)
		}
		for i := range 3 { // the store does not reply to these
			if status, _ := mallory(i); status != http.StatusCreated {
				t.Errorf("request %d without a reply: %d, want it run unprotected", i, status)
			}
		}
		for i := 3; i < 20; i++ {
			if status, code := mallory(i); status != http.StatusServiceUnavailable || code != refusal.StoreUnavailable {
				t.Errorf("request %d at the share: %d %s", i, status, code)
			}
		}
		checkEffects(t, &opened, 3)
		for i := range 20 {
			checkRun(t, answer(h, post("a"+strconv.Itoa(i), `{}`)))
		}
		checkEffects(t, &opened, 3)
		if got := g.Stats().Owed; got != 3 || seen.count(event.GaveUp) != 3 {
			t.Errorf("%d are owed, %d were given up; want 3", got, seen.count(event.GaveUp))
		}
		drained(t, g)
		if status, _ := mallory(99); status != http.StatusCreated {
			t.Errorf("when nothing is owed any more: %d", status)
		}
		drained(t, g)
	})
}

// When all that may be owed is owed, the store is asked whether it works, in a way that leaves nothing to be owed. Only
// if it does not, a request runs unprotected.
func TestField01_FailOpenDoesNotOpenWhileTheStoreReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := unanswered(store, "mallory")
		g, seen := newGuardWith(t, f, semel.Options{MaxOwed: 4, PrincipalShare: 1, Policy: semel.Policy{FailOpen: true}})
		var l ledger
		h := g.Wrap(http.HandlerFunc(l.pay))
		for i := range 4 {
			answer(h, post("m"+strconv.Itoa(i), `{}`, "X-Principal", "mallory"))
		}
		before := l.count()
		for range 3 {
			w := answer(h, post("k", `{}`))
			wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
			if w.Header().Get("Retry-After") != "5" {
				t.Errorf("Retry-After is %q, want 5", w.Header().Get("Retry-After"))
			}
		}
		_, err := semel.Do(t.Context(), g, numbered(1), semel.Bytes("r"), func(context.Context) (int, error) { return l.add(), nil })
		if !errors.Is(err, refusal.StoreUnavailable) {
			t.Errorf("Do: %v, want it refused", err)
		}
		checkEffects(t, &l, before)
		f.set(func(f *faulty) {
			f.load = func(context.Context, driver.ID) (driver.Record, error) { return driver.Record{}, errDown }
		})
		if w := answer(h, post("k", `{}`)); w.Header().Get("Idempotency-Status") != "bypassed" {
			t.Errorf("while the store does not reply: %d, want it run unprotected", w.Code)
		}
		if got := seen.results(); got[len(got)-1] != event.Bypassed {
			t.Errorf("decided %v", got)
		}
		drained(t, g)
	})
}

// Those who wait take a share of the places, too.
func TestField01_OnePrincipalsWaitersLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuardWith(t, nil, semel.Options{MaxWaiting: 4, PrincipalShare: 0.5, MaxAttempts: -1, Policy: waits(semel.Hold, time.Minute)})
		var l ledger
		h := g.Wrap(paused(&l, 10*time.Second))
		start := func(principal string, keys ...string) (list []*served) {
			for _, key := range keys {
				for range 3 {
					list = append(list, serve(h, post(key, `{}`, "X-Principal", principal)))
					synctest.Wait()
				}
			}
			return list
		}
		statuses := func(list []*served) map[int]int {
			count := map[int]int{}
			for _, s := range list {
				count[s.answer().Code]++
			}
			return count
		}
		mallory := start("mallory", "1", "2", "3")
		if got := g.Stats().Waiters; got != 2 {
			t.Errorf("%d wait, want half of 4", got)
		}
		if got := statuses(start("alice", "1")); got[http.StatusCreated] != 3 {
			t.Errorf("another principal: %v, want all answered", got)
		}
		if got := statuses(mallory); got[http.StatusCreated] != 5 || got[http.StatusConflict] != 4 {
			t.Errorf("the principal whose share was full: %v, want three runs, two that waited, and four refused", got)
		}
		if got := g.Stats().Waiters; got != 0 {
			t.Errorf("%d still wait", got)
		}
		drained(t, g)
	})
}

// Where there is one principal only, nobody is to be protected from it.
func TestField01_ASingleTenantHasAllTheRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, errDown
		}
		g, err := semel.New(f, semel.SingleTenant, semel.Hold, semel.Options{MaxOwed: 5})
		if err != nil {
			t.Fatal(err)
		}
		semel.IdentityChecked(g)
		h := g.Wrap(http.NotFoundHandler())
		for i := range 10 {
			answer(h, post(strconv.Itoa(i), `{}`))
		}
		if got := g.Stats().Owed; got != 5 {
			t.Errorf("%d are owed, want all 5", got)
		}
		drained(t, g)
	})
}

func TestField01_SharesAndTotalsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	nan := 0.0
	nan /= nan
	for want, o := range map[string]semel.Options{
		"MaxOwed is negative: -1":                            {MaxOwed: -1},
		"MaxWaiting is negative: -1":                         {MaxWaiting: -1},
		"PrincipalShare is -0.1, want above 0 and at most 1": {PrincipalShare: -0.1},
		"PrincipalShare is 1.1, want above 0 and at most 1":  {PrincipalShare: 1.1},
		"PrincipalShare is NaN, want above 0 and at most 1":  {PrincipalShare: nan},
	} {
		_, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, o)
		if err == nil || err.Error() != "semel: new guard: options: "+want {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// A principal who has filled its share of a bounded store is refused alone, also on a route that fails open.
func TestField01_FailOpenDoesNotOpenForAFullShareOfTheStore(t *testing.T) {
	t.Parallel()
	store, err := memstore.Open(memstore.Options{MaxRecords: 4})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := newGuard(t, store, semel.Policy{FailOpen: true})
	var l ledger
	h := g.Wrap(http.HandlerFunc(l.pay))
	for i := range 2 {
		checkRun(t, answer(h, post(strconv.Itoa(i), `{}`, "X-Principal", "mallory")))
	}
	checkProblem(t, answer(h, post("more", `{}`, "X-Principal", "mallory")), 503, refusal.StoreUnavailable)
	checkReplay(t, answer(h, post("0", `{}`, "X-Principal", "mallory")))
	checkRun(t, answer(h, post("0", `{}`)))
	checkEffects(t, &l, 3)
}
