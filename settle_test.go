package semel_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func TestCase06_SettleIsRetriedAndNeverReplacedByARelease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		executes bool // the failing settles are executed, only their replies are lost
		fails    int
	}{
		{"fails once", false, 1},
		{"fails five times", false, 5},
		{"reply lost once", true, 1},
		{"reply lost five times", true, 5},
	} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(c.name+"/"+onLost.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					f := &faulty{Store: store}
					var sent []driver.Outcome
					f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
						sent = append(sent, o)
						if len(sent) > c.fails {
							return store.Settle(ctx, id, by, o)
						}
						if c.executes {
							store.Settle(ctx, id, by, o) //nolint:errcheck // its reply is lost
						}
						return driver.Record{}, false, errDown
					}
					g, seen := newGuard(t, f, shortLease(onLost))
					var paid ledger
					h := g.Wrap(http.HandlerFunc(paid.pay))
					wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
					wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
					if len(sent) != c.fails+1 || seen.count(event.StoreError) != c.fails {
						t.Errorf("settled %d times, %d failures reported; want %d and %d", len(sent), seen.count(event.StoreError), c.fails+1, c.fails)
					}
					for _, o := range sent {
						if o.State != driver.Done || o.Response == nil || !reflect.DeepEqual(o, sent[0]) {
							t.Errorf("settled with %+v, want the same answer each time", o)
						}
					}
					if seen.count(event.Fenced) != 0 {
						t.Error("the guard did not recognise its own settle")
					}
				})
			})
		}
	}
}

func TestCase06_OutcomePendingPastSettleWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		start := time.Now()
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if o.State != driver.Done {
				t.Errorf("settled with %v", o.State)
			}
			if time.Since(start) < 8*time.Second {
				return driver.Record{}, false, errDown
			}
			return store.Settle(ctx, id, by, o)
		}
		g, seen := newGuard(t, f, shortLease(semel.Rerun))
		var paid ledger
		h := g.Wrap(http.HandlerFunc(paid.pay))
		s := serve(h, post("k", `{}`))
		w := s.answer()
		wantProblem(t, w, http.StatusServiceUnavailable, refusal.OutcomePending)
		if took := s.at.Sub(start); took != usualSettleWait || w.Header().Get("Retry-After") != "1" {
			t.Errorf("told after %v to retry after %q, want after %v, 1", took, w.Header().Get("Retry-After"), usualSettleWait)
		}
		if strings.Contains(w.Body.String(), "payment") {
			t.Errorf("the answer that was not durable has left: %s", w.Body)
		}
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress)
		drained(t, g)
		if took := time.Since(start); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("settled after %v, want soon after the store came back", took)
		}
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
		want := []event.Result{event.Failed, event.InProgress, event.Replayed}
		if got := seen.results(); !reflect.DeepEqual(got, want) {
			t.Errorf("decisions %v, want %v", got, want)
		}
	})
}

// A settle that hangs is cut off at SettleWait for the client, and its later copies within a request's life.
func TestCase06_SettleThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		start := time.Now()
		var took []time.Duration
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			sent := time.Now()
			if len(took) == 2 {
				return store.Settle(ctx, id, by, o)
			}
			<-ctx.Done()
			took = append(took, time.Since(sent))
			return driver.Record{}, false, ctx.Err()
		}
		g, _ := newGuardWith(t, f, semel.Options{Policy: shortLease(semel.Hold), RequestLife: 20 * time.Second})
		var paid ledger
		h := g.Wrap(http.HandlerFunc(paid.pay))
		s := serve(h, post("k", `{}`))
		wantProblem(t, s.answer(), http.StatusServiceUnavailable, refusal.OutcomePending)
		if at := s.at.Sub(start); at != usualSettleWait {
			t.Errorf("told after %v, want %v", at, usualSettleWait)
		}
		drained(t, g)
		if want := []time.Duration{usualSettleWait, 20 * time.Second}; !reflect.DeepEqual(took, want) {
			t.Errorf("copies were under way for %v, want %v", took, want)
		}
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
	})
}

func TestCase06_SettleIsAbandonedMaxRunAfterTheFirstTry(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seen := &counting{Store: memstore.New()}
				f := &faulty{Store: seen}
				start := time.Now()
				var last time.Duration
				f.settle = func(_ context.Context, _ driver.ID, _ driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
					last = time.Since(start)
					if o.State != driver.Done {
						t.Errorf("settled with %v instead", o.State)
					}
					return driver.Record{}, false, errDown
				}
				g, events := newGuard(t, f, shortLease(onLost))
				other, _ := newGuard(t, seen.Store, shortLease(onLost))
				var paid ledger
				handler := http.HandlerFunc(paid.pay)
				wantProblem(t, answer(g.Wrap(handler), post("k", `{}`)), http.StatusServiceUnavailable, refusal.OutcomePending)
				drained(t, g)
				synctest.Wait() // a renewal is due at the moment at which the settle is given up
				if took := time.Since(start); took != time.Minute || last < 58*time.Second || events.count(event.SettleAbandoned) != 1 {
					t.Errorf("given up after %v, last try after %v, reported %d times; want after MaxRun, once", took, last, events.count(event.SettleAbandoned))
				}
				if n := len(seen.extendedAt); n < 59 {
					t.Errorf("%d renewals, want them to go on until the settle was given up", n)
				}
				extends := len(seen.extendedAt)
				time.Sleep(3 * time.Second) // the lease of the last renewal
				w := answer(other.Wrap(handler), post("k", `{}`))
				if onLost == semel.Hold {
					wantProblem(t, w, http.StatusConflict, refusal.OutcomeUnknown)
				} else {
					wantAnswer(t, w, http.StatusCreated, "payment 2", false)
				}
				if len(seen.extendedAt) != extends {
					t.Error("renewed after the settle was given up")
				}
			})
		})
	}
}

// while the settle fails, another owner takes over and completes. The late owner's client gets that answer.
func TestR48_FencedWhileSettling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		back time.Duration // when A's store works again
	}{
		{"within SettleWait", 4 * time.Second},
		{"later", 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				way := &mortal{Store: store}
				a, seen := newGuard(t, way, shortLease(semel.Rerun))
				b, _ := newGuard(t, store, shortLease(semel.Rerun))
				s := serve(a.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					way.dead.Store(true)
					say("late").ServeHTTP(w, r)
				})), post("k", `{}`))
				time.Sleep(3 * time.Second)
				wantAnswer(t, answer(b.Wrap(say("of B")), post("k", `{}`)), http.StatusCreated, "of B", false)
				before := loaded(t, store, "k")
				time.Sleep(c.back - 3*time.Second)
				way.dead.Store(false)
				drained(t, a)
				sameRecord(t, before, loaded(t, store, "k"))
				if c.back < usualSettleWait {
					wantAnswer(t, s.answer(), http.StatusCreated, "of B", true)
				} else {
					wantProblem(t, s.answer(), http.StatusServiceUnavailable, refusal.OutcomePending)
				}
				if n := seen.count(event.Fenced); n != 1 {
					t.Errorf("%d late owners reported, want 1", n)
				}
				wantAnswer(t, answer(a.Wrap(say("again")), post("k", `{}`)), http.StatusCreated, "of B", true)
			})
		})
	}
}

func TestFullStoreKeepsThatThereWasAnAnswer(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			store, err := memstore.Open(memstore.Options{MaxBytes: 1024})
			if err != nil {
				t.Fatal(err)
			}
			g, seen := newGuard(t, store, semel.Policy{OnLost: onLost, CompressAbove: -1})
			var paid ledger
			body := strings.Repeat("x", 2000)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				paid.add()
				say(body).ServeHTTP(w, r)
			}))
			wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, body, false)
			if rec := loaded(t, store, "k"); rec.State != driver.Done || rec.Response != nil {
				t.Errorf("%v with %v, want done without an answer", rec.State, rec.Response)
			}
			wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.ReplayUnavailable)
			if paid.count() != 1 || seen.count(event.NotReplayable) != 1 {
				t.Errorf("%d effects, %d reported as not replayable; want 1 and 1", paid.count(), seen.count(event.NotReplayable))
			}
		})
	}
}

// firstByte is a client that looks into the store before it takes the first byte.
type firstByte struct {
	*httptest.ResponseRecorder
	look func()
}

func (w *firstByte) WriteHeader(status int) {
	w.look()
	w.ResponseRecorder.WriteHeader(status)
}

func (w *firstByte) Write(p []byte) (int, error) {
	w.look()
	return w.ResponseRecorder.Write(p)
}

func TestR30_DurableBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 4096)
	for _, c := range []struct {
		name    string
		handler http.Handler
		state   driver.State
		stored  bool
		replays bool
	}{
		{"kept", say("paid"), driver.Done, true, true},
		{"flushed", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			say("paid").ServeHTTP(w, r)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}), driver.Done, true, true},
		{"nothing written", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), driver.Unknown, false, false},
		{"too large to keep", say(big), driver.Done, false, false},
		{"released", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }), driver.Free, false, false},
		{"lost", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			semel.FromContext(r.Context()).Lost(errDown)
		}), driver.Unknown, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			g, _ := newGuard(t, store, semel.Policy{MaxResponseBody: 1024})
			looked := 0
			w := &firstByte{httptest.NewRecorder(), func() {
				looked++
				if rec := loaded(t, store, "k"); rec.State != c.state || (rec.Response != nil) != c.stored {
					t.Errorf("at the first byte the record is %v with %v", rec.State, rec.Response)
				}
			}}
			h := g.Wrap(c.handler)
			h.ServeHTTP(w, post("k", `{}`))
			if looked == 0 {
				t.Fatal("nothing was written")
			}
			if c.replays {
				wantAnswer(t, answer(h, post("k", `{}`)), w.Code, w.Body.String(), true)
			}
		})
	}
}

func TestR29_Case08_ClientThatGoesMidHandler(t *testing.T) {
	t.Parallel()
	type ctxKey struct{}
	for _, c := range []struct {
		name  string
		after bool // it goes after the effect, before the settle
	}{
		{"before the effect", false},
		{"between effect and settle", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faulty{Store: store}
				f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
					if err := ctx.Err(); err != nil {
						t.Errorf("the settle's context has ended: %v", err)
					}
					return store.Settle(ctx, id, by, o)
				}
				g, _ := newGuard(t, f, shortLease(semel.Hold))
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "kept"))
				defer cancel()
				ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{})
				var paid ledger
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.after {
						paid.pay(w, r)
					}
					cancel()
					time.Sleep(10 * time.Second) // renewals go on
					if err := r.Context().Err(); err != nil {
						t.Errorf("the handler's context has ended: %v", err)
					}
					if r.Context().Value(ctxKey{}) != "kept" || r.Context().Value(http.ServerContextKey) == nil {
						t.Error("the request's values are lost")
					}
					if !c.after {
						paid.pay(w, r)
					}
				}))
				answer(h, post("k", `{}`).WithContext(ctx))
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
				if paid.count() != 1 {
					t.Errorf("%d effects, want 1", paid.count())
				}
			})
		})
	}
}

// Drain waits for runs, and with what is left when its context ends.
func TestDrainWaitsForRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, shortLease(semel.Hold))
		start := time.Now()
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Second) }))
		drained(t, g)
		if time.Since(start) != 0 {
			t.Error("an idle guard took time to drain")
		}
		one, two := serve(h, post("one", `{}`)), serve(h, post("two", `{}`))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 runs") {
			t.Errorf("drain: %v, want what is under way when time is over", err)
		}
		drained(t, g)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("drained after %v, want when the runs had ended", took)
		}
		one.answer()
		two.answer()
	})
}

// A store that panics in a settle has given no reply: the settle is sent again. Else the lease would be renewed for
// ever.
func TestR32_ASettleThatPanicsIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		tries := 0
		store := &faulty{Store: mem, settle: func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if tries++; tries == 1 {
				panic("broken store")
			}
			return mem.Settle(ctx, id, by, o)
		}}
		g, _ := newGuard(t, store, shortLease(semel.Rerun))
		serve(g.Wrap(say("paid")), post("k", `{}`)).answer()
		time.Sleep(10 * time.Minute)
		if rec := loaded(t, mem, "k"); rec.Reads(rec.OnLost) == driver.ReadsRunning {
			t.Error("ten minutes after its handler has ended the operation still runs")
		}
		drained(t, g)
	})
}
