package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func TestR26_Case11_HundredAtOnceRunOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		wait time.Duration
		want int // what the others are told
	}{
		{"without waiting", 0, http.StatusConflict},
		{"waiting", time.Minute, http.StatusCreated},
	} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(c.name+"/"+onLost.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					p := semel.Policy{OnLost: onLost, Wait: c.wait}
					var paid ledger
					slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(time.Second)
						paid.pay(w, r)
					})
					var handlers [2]http.Handler
					for i := range handlers {
						g, _ := newGuard(t, store, p)
						handlers[i] = g.Wrap(slow)
					}
					all := make([]*served, 100)
					for i := range all {
						all[i] = serve(handlers[i%2], post("k", `{}`))
					}
					first := 0
					for _, s := range all {
						w := s.answer()
						switch {
						case w.Code == http.StatusCreated && !replayed(w):
							first++
						case c.want == http.StatusCreated:
							wantAnswer(t, w, http.StatusCreated, "payment 1", true)
						default:
							wantProblem(t, w, http.StatusConflict, refusal.InProgress)
							if got := w.Header().Get("Retry-After"); got != "1" {
								t.Errorf("Retry-After: %q, want 1", got)
							}
						}
					}
					if first != 1 || paid.count() != 1 {
						t.Errorf("%d first answers and %d effects, want 1 and 1", first, paid.count())
					}
				})
			})
		}
	}
}

// TestR26_R46_RandomRunsWithAbandonedOwners lets many clients ask for many keys at guards that die at random verbs, the
// reply of the last one lost, and are replaced. At the end the dead come back and send what they still owe.
func TestR26_R46_RandomRunsWithAbandonedOwners(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			seed := stressSeed(t)
			synctest.Test(t, func(t *testing.T) { randomRuns(t, onLost, seed) })
		})
	}
}

func randomRuns(t *testing.T, onLost semel.LostPolicy, seed uint64) {
	const keys, clients, guards, deaths = 40, 5, 3, 30
	var (
		store  = memstore.New()
		mu     sync.Mutex
		rng    = rand.New(rand.NewPCG(seed, uint64(onLost)))
		alive  [guards]http.Handler
		way    [guards]*mortal
		ways   []*mortal
		made   []*semel.Guard
		effect = map[string]map[uint64]int{} // key, fence: effects
		lost   = map[string]int{}            // key: runs whose client saw no answer
		first  = map[string]string{}         // key: the answer that counts
	)
	roll := func(n int) int { // called with mu held
		return rng.IntN(n)
	}
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return roll(n)
	}
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := semel.FromContext(r.Context())
		select {
		case <-time.After(time.Duration(random(4000)) * time.Millisecond):
		case <-r.Context().Done():
			op.Lost(context.Cause(r.Context()))
			return // a handler that obeys its context: no effect
		}
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		if effect[key] == nil {
			effect[key] = map[uint64]int{}
		}
		effect[key][op.Fence()]++
		release := roll(5) == 0 && onLost == semel.Rerun
		mu.Unlock()
		if release {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, strconv.FormatUint(op.Fence(), 10))
	})
	replace := func(i int) { // called with mu held
		m := &mortal{Store: store}
		if len(ways) < deaths {
			m.budget.Store(int64(20 + roll(100)))
		}
		p := shortLease(onLost)
		p.Wait = time.Duration(roll(2)) * time.Second
		g, err := semel.New(m, semel.ScopeFunc(headerScope), onLost, semel.Options{Policy: p, MaxAttempts: -1})
		if err != nil {
			t.Errorf("new guard: %v", err)
			return
		}
		ways, made = append(ways, m), append(made, g)
		way[i], alive[i] = m, g.Wrap(work)
	}
	mu.Lock()
	for i := range alive {
		replace(i)
	}
	mu.Unlock()

	var wg sync.WaitGroup
	for k := range keys {
		key := fmt.Sprint("key-", k)
		for range clients {
			wg.Go(func() {
				unknown := 0
				for unknown < 5 {
					mu.Lock()
					i := roll(guards)
					if way[i].dead.Load() && roll(4) == 0 {
						replace(i)
					}
					h := alive[i]
					mu.Unlock()
					time.Sleep(time.Duration(random(1500)) * time.Millisecond)
					w := answer(h, post(key, `{}`))
					mu.Lock()
					switch {
					case w.Code == http.StatusCreated:
						if first[key] == "" {
							first[key] = w.Body.String()
						}
						if first[key] != w.Body.String() {
							t.Errorf("%s: answered %q and %q", key, first[key], w.Body)
						}
						mu.Unlock()
						return
					case refusalCode(w) == refusal.OutcomePending, w.Code == http.StatusInternalServerError:
						lost[key]++
					case refusalCode(w) == refusal.OutcomeUnknown:
						if unknown++; onLost == semel.Rerun {
							t.Errorf("%s: unknown under Rerun", key)
						}
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	for _, m := range ways { // the dead come back
		m.budget.Store(0)
		m.dead.Store(false)
	}
	drained(t, made...)

	g, _ := newGuard(t, store, shortLease(onLost))
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	total := 0
	for k := range keys {
		key := fmt.Sprint("key-", k)
		effects := 0
		for fence, n := range effect[key] {
			effects += n
			if n != 1 {
				t.Errorf("%s: %d effects under fence %d", key, n, fence)
			}
		}
		total += effects
		switch {
		case onLost == semel.Hold && effects > 1:
			t.Errorf("%s: %d effects under Hold", key, effects)
		case onLost == semel.Rerun && effects > 1+lost[key]:
			t.Errorf("%s: %d effects, but only %d runs were lost or failed", key, effects, lost[key])
		}
		if first[key] != "" {
			wantAnswer(t, answer(h, post(key, `{}`)), http.StatusCreated, first[key], true)
			if fence, err := strconv.ParseUint(first[key], 10, 64); err != nil || effect[key][fence] != 1 {
				t.Errorf("%s: the answer of fence %s has no effect", key, first[key])
			}
		}
	}
	if total < keys/2 || len(made) < deaths/2 {
		t.Errorf("%d effects and %d guards: too quiet to prove anything", total, len(made))
	}
}

func TestR27_RetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lease, age time.Duration
		want       string
		why        string
	}{
		{30 * time.Second, 0, "1", "at least a second"},
		{30 * time.Second, 200 * time.Millisecond, "1", "at least a second"},
		{30 * time.Second, time.Second, "1", "the age of the run"},
		{30 * time.Second, 1001 * time.Millisecond, "2", "rounded up"},
		{30 * time.Second, 5 * time.Second, "5", "the age of the run"},
		{30 * time.Second, 15 * time.Second, "15", "age and remaining lease are equal"},
		{30 * time.Second, 17 * time.Second, "13", "not beyond the lease"},
		{30 * time.Second, 28500 * time.Millisecond, "2", "the rest of the lease, rounded up"},
		{30 * time.Second, 29900 * time.Millisecond, "1", "at least a second"},
		{2 * time.Minute, 25 * time.Second, "25", "the age of the run"},
		{2 * time.Minute, 70 * time.Second, "30", "at most half a minute"},
		{2 * time.Minute, 100 * time.Second, "20", "not beyond the lease"},
	} {
		t.Run(fmt.Sprint(c.lease, " ", c.age), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// Only the store's clock moves: no renewal is due in the process.
				now := time.Now()
				store, err := memstore.Open(memstore.Options{Clock: func() time.Time { return now }})
				if err != nil {
					t.Fatal(err)
				}
				g, _ := newGuard(t, store, semel.Policy{Lease: c.lease})
				end := make(chan struct{})
				h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
				s := serve(h, post("k", `{}`))
				synctest.Wait()
				now = now.Add(c.age)
				before := loaded(t, store, "k")
				w := answer(h, post("k", `{}`))
				wantProblem(t, w, http.StatusConflict, refusal.InProgress)
				if got := w.Header().Get("Retry-After"); got != c.want {
					t.Errorf("Retry-After: %q, want %q: %s", got, c.want, c.why)
				}
				sameRecord(t, before, loaded(t, store, "k"))
				close(end)
				s.answer()
			})
		})
	}
}

func TestCase01_RejectionsNeverWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		owner, _ := newGuard(t, store, shortLease(semel.Rerun))
		seen := &counting{Store: store}
		other, _ := newGuard(t, seen, shortLease(semel.Rerun))
		var paid ledger
		end := make(chan struct{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-end
			paid.pay(w, r)
		})
		s := serve(owner.Wrap(slow), post("k", `{"a":1}`))
		synctest.Wait()
		running := loaded(t, store, "k")
		h := other.Wrap(slow)
		wantProblem(t, answer(h, post("k", `{"a":1}`)), http.StatusConflict, refusal.InProgress)
		wantProblem(t, answer(h, post("k", `{"a":2}`)), http.StatusUnprocessableEntity, refusal.KeyReused)
		sameRecord(t, running, loaded(t, store, "k"))
		close(end)
		wantAnswer(t, s.answer(), http.StatusCreated, "payment 1", false)

		done := loaded(t, store, "k")
		wantProblem(t, answer(h, post("k", `{"a":2}`)), http.StatusUnprocessableEntity, refusal.KeyReused)
		wantAnswer(t, answer(h, post("k", `{"a":1}`)), http.StatusCreated, "payment 1", true)
		sameRecord(t, done, loaded(t, store, "k"))
		if n := seen.writes(); n != 0 {
			t.Errorf("rejected and replayed requests wrote %d times", n)
		}
	})
}

// lossy returns a store that executes claims but loses the first n replies.
func lossy(n int) (*faulty, *memstore.Store) {
	store := memstore.New()
	f := &faulty{Store: store}
	f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
		rec, owned, err := store.Claim(ctx, id, c)
		f.mu.Lock()
		defer f.mu.Unlock()
		if n > 0 {
			n--
			return driver.Record{}, false, errDown
		}
		return rec, owned, err
	}
	return f, store
}

func TestCase07_OwnClaimIsRecognisedWhenItsReplyWasLost(t *testing.T) {
	t.Parallel()
	for lost := 1; lost <= 2; lost++ {
		t.Run(strconv.Itoa(lost), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, store := lossy(lost)
				g, seen := newGuard(t, f, shortLease(semel.Hold))
				var paid ledger
				var attempt int
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					attempt = semel.FromContext(r.Context()).Attempt()
					paid.pay(w, r)
				}))
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
				done := loaded(t, store, "k")
				drained(t, g)
				sameRecord(t, done, loaded(t, store, "k"))
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
				if paid.count() != 1 || attempt != 1 {
					t.Errorf("%d effects, attempt %d; want 1 and 1", paid.count(), attempt)
				}
				if n := seen.count(event.StoreError); n != lost {
					t.Errorf("%d store errors were reported, want %d", n, lost)
				}
			})
		})
	}
}

func TestCase43_ClaimWhoseReplyIsLostForGoodIsReleased(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, store := lossy(3)
				g, seen := newGuard(t, f, shortLease(onLost))
				var paid ledger
				var op *semel.Operation
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					op = semel.FromContext(r.Context())
					paid.pay(w, r)
				}))
				w := answer(h, post("k", `{}`))
				wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
				if got := w.Header().Get("Retry-After"); got != "5" {
					t.Errorf("Retry-After: %q, want 5", got)
				}
				synctest.Wait() // the release needs no time
				free := loaded(t, store, "k")
				if free.State != driver.Free || free.Attempt != 0 || free.Maybe {
					t.Errorf("after giving up: %v, attempt %d, maybe %v; want free, 0, false", free.State, free.Attempt, free.Maybe)
				}
				if seen.count(event.GaveUp) != 1 || paid.count() != 0 {
					t.Errorf("%d given up, %d effects; want 1 and 0", seen.count(event.GaveUp), paid.count())
				}
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
				if op.Attempt() != 1 || op.Fence() <= free.Fence {
					t.Errorf("attempt %d under fence %d after %d; a released claim counts no attempt, but a fence", op.Attempt(), op.Fence(), free.Fence)
				}
				done := loaded(t, store, "k")
				drained(t, g)
				sameRecord(t, done, loaded(t, store, "k"))
			})
		})
	}
}

func TestClaimHasThreeTriesWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		hang  bool
		tries int
		atMax time.Duration
	}{
		{"errors at once", false, 3, 100 * time.Millisecond},
		{"hangs", true, 1, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New()}
				var tokens []driver.Token
				f.claim = func(ctx context.Context, _ driver.ID, cl driver.Claim) (driver.Record, bool, error) {
					tokens = append(tokens, cl.Token)
					if c.hang {
						<-ctx.Done()
						return driver.Record{}, false, ctx.Err()
					}
					return driver.Record{}, false, errDown
				}
				g, _ := newGuard(t, f, shortLease(semel.Rerun))
				start := time.Now()
				wantProblem(t, answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
				if took := time.Since(start); took > c.atMax || len(tokens) != c.tries {
					t.Errorf("%d tries in %v, want %d within %v", len(tokens), took, c.tries, c.atMax)
				}
				for _, token := range tokens {
					if token != tokens[0] {
						t.Error("a copy of the claim has another token")
					}
				}
				drained(t, g)
			})
		})
	}
}

func TestR47_OldOwnershipReplyStartsNoHandler(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second // 80 % of which is within the claim's window
	for _, c := range []struct {
		took time.Duration
		runs bool
	}{
		{1599 * time.Millisecond, true},
		{1601 * time.Millisecond, false},
	} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(fmt.Sprint(c.took, " ", onLost), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					f := &faulty{Store: store}
					g, _ := newGuard(t, f, semel.Policy{OnLost: onLost, Lease: lease})
					f.claim = func(ctx context.Context, id driver.ID, cl driver.Claim) (driver.Record, bool, error) {
						rec, owned, err := store.Claim(ctx, id, cl)
						time.Sleep(c.took)
						return rec, owned, err
					}
					var paid ledger
					h := g.Wrap(http.HandlerFunc(paid.pay))
					w := answer(h, post("k", `{}`))
					if c.runs {
						wantAnswer(t, w, http.StatusCreated, "payment 1", false)
						return
					}
					wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
					synctest.Wait()
					if rec := loaded(t, store, "k"); rec.State != driver.Free || paid.count() != 0 {
						t.Errorf("%v with %d effects, want free with none", rec.State, paid.count())
					}
					f.set(func(f *faulty) { f.claim = nil })
					wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
					drained(t, g)
				})
			})
		}
	}
}

func TestCase43_ClientThatGoesMidClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		ctx, cancel := context.WithCancel(t.Context())
		claims := 0
		f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			claims++
			if claims > 1 {
				return store.Claim(ctx, id, c)
			}
			if _, owned, err := store.Claim(ctx, id, c); !owned || err != nil {
				t.Errorf("claim: %v, %v", owned, err)
			}
			cancel()
			return driver.Record{}, false, errDown
		}
		g, seen := newGuard(t, f, shortLease(semel.Hold))
		var paid ledger
		var attempt int
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempt = semel.FromContext(r.Context()).Attempt()
			paid.pay(w, r)
		}))
		answer(h, post("k", `{}`).WithContext(ctx))
		synctest.Wait()
		if claims != 1 || paid.count() != 0 || loaded(t, store, "k").State != driver.Free {
			t.Errorf("%d claims, %d effects, %v; want 1, 0, free", claims, paid.count(), loaded(t, store, "k").State)
		}
		if n := seen.count(event.StoreError); n != 1 {
			t.Errorf("%d store errors were reported, want the one", n)
		}
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
		if attempt != 1 {
			t.Errorf("attempt %d, want 1", attempt)
		}

		claims = 0
		answer(h, post("other", `{}`).WithContext(ctx)) // gone before
		if claims != 0 {
			t.Error("a claim was sent for a client that had gone")
		}
		drained(t, g)
	})
}

// A copy of a claim that was under way may be executed after the release that was meant for it. The second copy of the
// release frees it, when no copy can arrive any more.
func TestCase43_LateCopyOfAClaimIsFreedByTheSecondRelease(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const life = 10 * time.Second
				store := memstore.New()
				f := &faulty{Store: store}
				var late []func()
				var sent time.Time
				f.claim = func(_ context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
					sent = time.Now()
					late = append(late, func() { store.Claim(context.Background(), id, c) }) //nolint:errcheck // as lost as its reply
					return driver.Record{}, false, errDown
				}
				g, _ := newGuardWith(t, f, semel.Options{Policy: semel.Policy{OnLost: onLost}, RequestLife: life})
				var paid ledger
				h := g.Wrap(http.HandlerFunc(paid.pay))
				wantProblem(t, answer(h, post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
				f.set(func(f *faulty) { f.claim = nil })
				var drainedAt atomic.Pointer[time.Time]
				go func() {
					drained(t, g)
					now := time.Now()
					drainedAt.Store(&now)
				}()
				synctest.Wait() // the first release finds nothing
				time.Sleep(life / 2)
				for _, copied := range late {
					copied()
				}
				time.Sleep(time.Until(sent.Add(life - time.Millisecond)))
				wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress)
				synctest.Wait()
				if drainedAt.Load() != nil {
					t.Error("Drain did not wait for the second copy of the release")
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if at := drainedAt.Load(); at == nil || !at.Equal(sent.Add(life)) {
					t.Errorf("drained at %v, want %v after the last copy was sent at %v", at, life, sent)
				}
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
				if rec := loaded(t, store, "k"); rec.Attempt != 1 {
					t.Errorf("attempt %d, want 1", rec.Attempt)
				}
			})
		})
	}
}

// The first copy of a claim arrives when its run, started by the second copy, and another owner's run have both ended
// free: it starts a run that nobody executes.
func TestCase43_LateCopyOfAResentClaimIsFreedAboveItsOwnRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		var late func()
		f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			if late == nil {
				late = func() { store.Claim(context.Background(), id, c) } //nolint:errcheck // as lost as its reply
				return driver.Record{}, false, errDown
			}
			return store.Claim(ctx, id, c)
		}
		g, _ := newGuard(t, f, semel.Policy{})
		other, _ := newGuard(t, store, semel.Policy{})
		busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
		if w := answer(g.Wrap(busy), post("k", `{}`)); w.Code != http.StatusTooManyRequests {
			t.Fatalf("answered %d", w.Code)
		}
		synctest.Wait()
		if w := answer(other.Wrap(busy), post("k", `{}`)); w.Code != http.StatusTooManyRequests {
			t.Fatalf("answered %d", w.Code)
		}
		late()
		if rec := loaded(t, store, "k"); rec.State != driver.Running {
			t.Fatalf("the late copy started nothing: %v", rec.State)
		}
		drained(t, g)
		rec := loaded(t, store, "k")
		if rec.State != driver.Free || rec.Attempt != 2 {
			t.Errorf("%v after %d attempts, want free after 2", rec.State, rec.Attempt)
		}
	})
}

// A release-by-token frees only a fence above the one under which this guard started the handler.
func TestCase43_ReleaseNeverFreesARunThatWasStarted(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, store := lossy(1)
				releases := 0
				f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
					if !by.Above {
						return driver.Record{}, false, errDown
					}
					releases++
					rec, owned, err := store.Settle(ctx, id, by, o)
					if owned {
						t.Error("the release was taken for the run itself")
					}
					return rec, owned, err
				}
				g, seen := newGuard(t, f, shortLease(onLost))
				var paid ledger
				h := g.Wrap(http.HandlerFunc(paid.pay))
				wantProblem(t, answer(h, post("k", `{}`)), http.StatusServiceUnavailable, refusal.OutcomePending)
				drained(t, g)
				if releases != 2 || seen.count(event.SettleAbandoned) != 1 {
					t.Errorf("%d releases, %d settles abandoned; want 2 and 1", releases, seen.count(event.SettleAbandoned))
				}
				if rec := loaded(t, store, "k"); rec.State != driver.Running {
					t.Errorf("%v, want running: its handler ran and had its effect", rec.State)
				}
			})
		})
	}
}

func TestGivenUpClaimIsReleasedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
	}{
		{"store down for long", errDown},
		{"record unreadable", fmt.Errorf("decode: %w", driver.ErrUnreadable)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const outage = 10 * time.Minute
				f, store := lossy(3)
				start := time.Now()
				var releases []time.Duration
				f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
					releases = append(releases, time.Since(start))
					if time.Since(start) < outage {
						return driver.Record{}, false, c.err
					}
					return store.Settle(ctx, id, by, o)
				}
				g, _ := newGuard(t, f, semel.Policy{})
				wantProblem(t, answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
				drained(t, g)
				if errors.Is(c.err, driver.ErrUnreadable) {
					if len(releases) != 2 {
						t.Errorf("released at %v; an unreadable record is an answer, too", releases)
					}
					return
				}
				if rec := loaded(t, store, "k"); rec.State != driver.Free {
					t.Errorf("%v, want free", rec.State)
				}
				for i := 1; i < len(releases); i++ {
					if gap := releases[i] - releases[i-1]; gap > 5*time.Second {
						t.Errorf("%v between two tries", gap)
					}
				}
				if len(releases) > 400 {
					t.Errorf("%d tries in %v: no back-off", len(releases), outage)
				}
			})
		})
	}
}

// A guard that owes very many releases claims nothing more until the store has taken some.
func TestOwedReleasesPushBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		store := memstore.New()
		f := &faulty{Store: store}
		down := func(f *faulty) {
			f.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
				return driver.Record{}, false, errDown
			}
		}
		claims := 0
		var gone context.CancelFunc
		f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			claims++
			if gone == nil {
				return store.Claim(ctx, id, c)
			}
			store.Claim(ctx, id, c) //nolint:errcheck // its reply is lost
			gone()
			return driver.Record{}, false, errDown
		}
		down(f)
		g, _ := newGuardWith(t, f, semel.Options{MaxOwed: limit, PrincipalShare: 1})
		var paid ledger
		h := g.Wrap(http.HandlerFunc(paid.pay))
		for i := range limit {
			ctx, cancel := context.WithCancel(t.Context())
			gone = cancel
			h.ServeHTTP(httptest.NewRecorder(), post(fmt.Sprint("k", i), `{}`).WithContext(ctx))
		}
		gone = nil
		wantProblem(t, answer(h, post("one-more", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
		if claims != limit {
			t.Errorf("%d claims were sent, want %d", claims, limit)
		}
		f.set(func(f *faulty) { f.settle = nil })
		drained(t, g)
		wantAnswer(t, answer(h, post("one-more", `{}`)), http.StatusCreated, "payment 1", false)
		wantAnswer(t, answer(h, post("k0", `{}`)), http.StatusCreated, "payment 2", false)
	})
}

// A copy of a claim that the store executes after another copy was answered, with somebody else's run, is given back:
// its token is this guard's, and nobody would end its run.
func TestField18_ACopyOfAClaimThatComesAfterTheOtherWasAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		p := semel.Policy{Lease: 10 * time.Minute}
		elsewhere, _ := newGuard(t, mem, p)
		running := serve(elsewhere.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Second)
			w.WriteHeader(http.StatusServiceUnavailable)
		})), post("k", `{}`))
		synctest.Wait()
		s, tries := &faulty{Store: mem}, 0
		var late func() bool
		s.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			if tries++; tries == 1 {
				late = func() bool {
					_, owned, err := mem.Claim(t.Context(), id, c)
					return owned && err == nil
				}
				return driver.Record{}, false, errDown
			}
			return mem.Claim(ctx, id, c)
		}
		g, _ := newGuard(t, s, p)
		var l ledger
		h := g.Wrap(http.HandlerFunc(l.pay))
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress)
		running.answer()
		if time.Sleep(time.Second); !late() {
			t.Fatal("the late copy has not claimed the key")
		}
		time.Sleep(defaults.RequestLife)
		if w := answer(h, post("k", `{}`)); w.Code != http.StatusCreated || l.count() != 1 {
			t.Errorf("a minute later: %d %s", w.Code, w.Body)
		}
		drained(t, g, elsewhere)
	})
}

// A claim that finds its key free, and does not get it, was overtaken by releases. The store works: nothing opens for
// that.
func TestR63_Field18_AClaimThatIsOvertakenDoesNotFailOpen(t *testing.T) {
	t.Parallel()
	for _, state := range []driver.State{driver.Free, driver.Absent} {
		s, tries := &faulty{Store: memstore.New()}, 0
		s.claim = func(_ context.Context, _ driver.ID, c driver.Claim) (driver.Record, bool, error) {
			tries++
			return driver.Record{State: state, Fingerprint: c.Fingerprint, Retention: time.Hour, Now: 1}, false, nil
		}
		g, seen := newGuard(t, s, semel.Policy{FailOpen: true})
		var l ledger
		wantProblem(t, answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
		if tries != 3 || l.count() != 0 || slices.Contains(seen.results(), event.Bypassed) {
			t.Errorf("%s: %d claims, %d executions, %v; want 3 claims and none run", state, tries, l.count(), seen.results())
		}
	}
}

// A store that works may have the operation in another place. Then nothing opens either, and the claim is released. A
// claim that was certainly not executed has nothing to release.
func TestR63_AClaimThatFailsIsReleasedIfItMayHaveBeenExecuted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply    error
		opens    bool
		released int
	}{
		{driver.ErrElsewhere, false, 1},
		{driver.ErrNotExecuted, true, 0},
		{errDown, true, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			released := 0
			s := &faulty{Store: memstore.New()}
			s.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
				return driver.Record{}, false, fmt.Errorf("shard %q: %w", "a", c.reply)
			}
			s.settle = func(_ context.Context, _ driver.ID, by driver.Owner, _ driver.Outcome) (driver.Record, bool, error) {
				if by.Above {
					released++
				}
				return driver.Record{}, false, nil
			}
			g, seen := newGuard(t, s, semel.Policy{FailOpen: true})
			var l ledger
			answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`))
			if err := g.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if opens := slices.Contains(seen.results(), event.Bypassed); opens != c.opens || l.count() > 0 != c.opens || (released > 0) != (c.released > 0) {
				t.Errorf("%v: fails open is %t, want %t; %d releases, want %d or more", c.reply, opens, c.opens, released, c.released)
			}
		})
	}
}
