package semel_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// pooled is a store that takes so many claims at once, each for a while, in the order in which they come.
func pooled(store driver.Store, connections int, each time.Duration, claims *atomic.Int64) *faulty {
	free := make(chan struct{}, connections)
	f := &faulty{Store: store}
	f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
		claims.Add(1)
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
		case <-ctx.Done():
			return driver.Record{}, false, ctx.Err()
		}
		time.Sleep(each)
		return store.Claim(ctx, id, c)
	}
	return f
}

// flood sends so many requests of a principal, each with a key of its own, and returns when all are on their way.
func flood(ctx context.Context, wg *sync.WaitGroup, h http.Handler, n int, answered func(code int)) {
	for i := range n {
		wg.Go(func() {
			answered(answer(h, post(fmt.Sprint("flood", i), "{}", "X-Principal", "mallory").WithContext(ctx)).Code)
		})
	}
	synctest.Wait()
}

// What one principal asks at once does not keep the store from another one, and all of it is answered.
func TestR60_Field01_ClaimsOfOnePrincipalTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var claims, created atomic.Int64
		var l ledger
		g, _ := newGuard(t, pooled(memstore.New(), 4, 10*time.Millisecond, &claims), semel.Policy{FailOpen: true})
		h := g.Wrap(http.HandlerFunc(l.pay))
		var wg sync.WaitGroup
		flood(t.Context(), &wg, h, 400, func(code int) {
			if code == 201 {
				created.Add(1)
			}
		})
		if n := claims.Load(); n != 16 {
			t.Errorf("%d claims are under way, want 16", n)
		}
		began := time.Now()
		checkRun(t, answer(h, post("k", "{}")))
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("another principal waits for %v, which is more than for the 16 claims before", took)
		}
		wg.Wait()
		if created.Load() != 400 || l.count() != 401 {
			t.Errorf("%d answers, %d executions; want 400 and 401", created.Load(), l.count())
		}
	})
}

// A claim that has not been sent when its client goes never is.
func TestField01_WhoeverHangsUpInTheQueueAsksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var claims atomic.Int64
		var l ledger
		g, seen := newGuard(t, pooled(memstore.New(), 4, time.Second, &claims), semel.Policy{FailOpen: true})
		h := g.Wrap(http.HandlerFunc(l.pay))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flood(ctx, &wg, h, 1000, func(int) {})
		cancel()
		synctest.Wait()
		wg.Wait()
		if claims.Load() != 16 || l.count() != 0 {
			t.Errorf("%d claims were sent, %d executions; want 16 and none", claims.Load(), l.count())
		}
		if slices.Contains(seen.results(), event.Bypassed) {
			t.Error("some ran unprotected")
		}
		checkRun(t, answer(h, post("flood0", "{}", "X-Principal", "mallory")))
		drained(t, g)
	})
}

// FailOpen opens for a store that does not reply, also to those who wait for a turn, and not for a store that is only
// busy.
func TestR63_Field01_ATurnThatDoesNotCome(t *testing.T) {
	t.Parallel()
	const n = 320
	dead := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		dead, failOpen    bool
		created, bypassed int
	}{
		"a dead store, fail open":   {true, true, n, n},
		"a dead store, fail closed": {true, false, 0, 0},
		"a busy store, fail open":   {false, true, 4 * 16, 0}, // in two seconds, with half a second for each claim
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := pooled(memstore.New(), n, 490*time.Millisecond, new(atomic.Int64))
				if c.dead {
					s.claim = func(ctx context.Context, _ driver.ID, _ driver.Claim) (driver.Record, bool, error) {
						return driver.Record{}, false, dead(ctx)
					}
					s.load = func(ctx context.Context, _ driver.ID) (driver.Record, error) { return driver.Record{}, dead(ctx) }
				}
				g, seen := newGuard(t, s, semel.Policy{FailOpen: c.failOpen})
				var created, refused atomic.Int64
				var wg sync.WaitGroup
				flood(t.Context(), &wg, g.Wrap(http.HandlerFunc(new(ledger).pay)), n, func(code int) {
					switch code {
					case 201:
						created.Add(1)
					case 503:
						refused.Add(1)
					}
				})
				wg.Wait()
				bypassed := 0
				for _, r := range seen.results() {
					if r == event.Bypassed {
						bypassed++
					}
				}
				if int(created.Load()) < c.created || created.Load()+refused.Load() != n || bypassed != c.bypassed {
					t.Errorf("%d answers and %d refusals, %d unprotected; want %d answers, %d unprotected", created.Load(), refused.Load(), bypassed, c.created, c.bypassed)
				}
				if !c.dead && refused.Load() == 0 {
					t.Error("a turn came for everybody, so nothing was shown")
				}
				drained(t, g)
			})
		})
	}
}

// With one principal there is nobody to be protected.
func TestField01_ASingleTenantTakesNoTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var claims atomic.Int64
		g, err := semel.New(pooled(memstore.New(), 4, time.Millisecond, &claims), semel.SingleTenant, semel.Hold, semel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		semel.IdentityChecked(g)
		var wg sync.WaitGroup
		flood(t.Context(), &wg, g.Wrap(http.HandlerFunc(new(ledger).pay)), 100, func(int) {})
		if n := claims.Load(); n != 100 {
			t.Errorf("%d claims are under way, want 100", n)
		}
		wg.Wait()
	})
}

// Large answers of one principal are stored by turns, so that nobody else waits behind all of them.
func TestAttack05_R60_LargeAnswersOfOnePrincipalTakeTurns(t *testing.T) {
	t.Parallel()
	const n, size = 24, 1 << 20 // as much as one may hold
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		var storing, most atomic.Int64
		s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			body := int64(len(o.Response.Body))
			if now := storing.Add(body); now > most.Load() {
				most.Store(now) // in a bubble one goroutine after the other comes here
			}
			time.Sleep(time.Second)
			storing.Add(-body)
			return s.Store.Settle(ctx, id, by, o)
		}
		var l ledger
		g, _ := newGuard(t, s, semel.Policy{CompressAbove: -1})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l.add()
			w.WriteHeader(http.StatusCreated)
			if r.Header.Get("X-Principal") != "" {
				w.Write(make([]byte, size))
			}
		}))
		var wg sync.WaitGroup
		var stored, later atomic.Int64
		flood(t.Context(), &wg, h, n, func(code int) {
			if code == 201 {
				stored.Add(1)
			} else {
				later.Add(1)
			}
		})
		if n := storing.Load(); n != 4<<20 {
			t.Errorf("%d bytes are being stored, want 4 MiB", n)
		}
		began := time.Now()
		if code := answer(h, post("k", "{}")).Code; code != 201 || time.Since(began) > time.Second {
			t.Errorf("another principal: %d after %v", code, time.Since(began))
		}
		wg.Wait()
		if most.Load() > 4<<20+64<<10 || stored.Load() < 4*4 || later.Load() == 0 {
			t.Errorf("%d bytes at most, %d answers, %d later", most.Load(), stored.Load(), later.Load())
		}
		drained(t, g)
		for i := range n { // what was not stored while its client waited has been since
			r := answer(h, post(fmt.Sprint("flood", i), "{}", "X-Principal", "mallory"))
			if r.Code != 201 || r.Body.Len() != size || r.Header().Get("Idempotent-Replayed") != "true" {
				t.Fatalf("repeat %d: %d, %d bytes, %v", i, r.Code, r.Body.Len(), r.Header())
			}
		}
		if l.count() != n+1 {
			t.Errorf("%d executions, want %d", l.count(), n+1)
		}
	})
}

// An answer that is larger than all that may be on its way goes alone.
func TestAttack05_AnAnswerLargerThanATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		var storing, overlaps atomic.Int64
		s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if storing.Add(1) > 1 {
				overlaps.Add(1)
			}
			time.Sleep(time.Second)
			storing.Add(-1)
			return s.Store.Settle(ctx, id, by, o)
		}
		g, _ := newGuard(t, s, semel.Policy{CompressAbove: -1, MaxResponseBody: 8 << 20})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			w.Write(make([]byte, 6<<20))
		}))
		var wg sync.WaitGroup
		var created atomic.Int64
		flood(t.Context(), &wg, h, 4, func(code int) {
			if code == 201 {
				created.Add(1)
			}
		})
		wg.Wait()
		if created.Load() != 4 || overlaps.Load() != 0 {
			t.Errorf("%d answers, %d at once with another one; want 4 and none", created.Load(), overlaps.Load())
		}
	})
}
