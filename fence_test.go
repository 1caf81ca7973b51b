package semel_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// say is a handler that answers 201 with a text.
func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, text)
	})
}

// TestR46_Case04_Case37_AbandonedRun: the owner's process dies in the handler. Repeats get 409 until the lease ends to
// the microsecond; then, under Rerun, one of many takes over, and under Hold nobody.
func TestR46_Case04_Case37_AbandonedRun(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				way := &mortal{Store: store}
				dead, _ := newGuard(t, way, shortLease(onLost))
				start := time.Now()
				end := make(chan struct{})
				s := serve(dead.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-end
					say("late").ServeHTTP(w, r)
				})), post("k", `{}`))
				time.Sleep(1500 * time.Millisecond)
				way.dead.Store(true) // after one renewal

				var paid ledger
				var attempts []int
				takeover := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					attempts = append(attempts, semel.FromContext(r.Context()).Attempt()) // of one run at most
					time.Sleep(time.Second)
					paid.pay(w, r)
				})
				var handlers [2]http.Handler
				var seen [2]*events
				for i := range handlers {
					var g *semel.Guard
					g, seen[i] = newGuard(t, store, shortLease(onLost))
					handlers[i] = g.Wrap(takeover)
				}
				leaseEnd := start.Add(4 * time.Second)
				for i := 0; time.Until(leaseEnd) > 300*time.Millisecond; i++ {
					wantProblem(t, answer(handlers[i%2], post("k", `{}`)), http.StatusConflict, refusal.InProgress)
					time.Sleep(300 * time.Millisecond)
				}
				time.Sleep(time.Until(leaseEnd) - time.Microsecond)
				wantProblem(t, answer(handlers[0], post("k", `{}`)), http.StatusConflict, refusal.InProgress)
				lapsed := loaded(t, store, "k")
				time.Sleep(time.Microsecond)

				all := make([]*served, 60)
				for i := range all {
					all[i] = serve(handlers[i%2], post("k", `{}`))
				}
				ran := 0
				for _, s := range all {
					switch w := s.answer(); {
					case onLost == semel.Hold:
						wantProblem(t, w, http.StatusConflict, refusal.OutcomeUnknown)
					case w.Code == http.StatusCreated:
						ran++
					default:
						wantProblem(t, w, http.StatusConflict, refusal.InProgress)
					}
				}
				if onLost == semel.Hold {
					sameRecord(t, lapsed, loaded(t, store, "k"))
					if paid.count() != 0 || seen[0].count(event.Lapsed) != 30 {
						t.Errorf("%d effects, %d lapsed; want 0 and 30", paid.count(), seen[0].count(event.Lapsed))
					}
				} else if ran != 1 || paid.count() != 1 || len(attempts) != 1 || attempts[0] != 2 ||
					seen[0].count(event.Takeover)+seen[1].count(event.Takeover) != 1 {
					t.Errorf("%d took over, %d effects, attempts %v; want one, as the second attempt", ran, paid.count(), attempts)
				}

				// The dead owner comes back. Under Hold nobody has replaced it, and what it did is known at last.
				way.dead.Store(false)
				close(end)
				text, replay := "late", false
				if onLost == semel.Rerun {
					text, replay = "payment 1", true
				}
				wantAnswer(t, s.answer(), http.StatusCreated, text, replay)
				wantAnswer(t, answer(handlers[0], post("k", `{}`)), http.StatusCreated, text, true)
			})
		})
	}
}

// TestR48_Case02_LateOwner: A's heartbeat is cut, B takes over, and A comes back in every way there is.
func TestR48_Case02_LateOwner(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(http.ResponseWriter, *http.Request)
	}{
		{"completes", say("late").ServeHTTP},
		{"writes nothing", func(http.ResponseWriter, *http.Request) {}},
		{"fails", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }},
		{"releases", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }},
		{"is lost", func(_ http.ResponseWriter, r *http.Request) { semel.FromContext(r.Context()).Lost(io.ErrUnexpectedEOF) }},
		{"panics", func(http.ResponseWriter, *http.Request) { panic("late") }},
	} {
		for _, done := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, done %v", c.name, done), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					cut := &faulty{Store: store}
					cut.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, errDown }
					a, seen := newGuard(t, cut, shortLease(semel.Rerun))
					b, _ := newGuard(t, store, shortLease(semel.Rerun))
					endA, endB := make(chan struct{}), make(chan struct{})
					late := serve(a.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						<-endA
						c.end(w, r)
					})), post("k", `{}`))
					time.Sleep(3 * time.Second)
					next := serve(b.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						<-endB
						say("of B").ServeHTTP(w, r)
					})), post("k", `{}`))
					synctest.Wait()
					if done {
						close(endB)
						wantAnswer(t, next.answer(), http.StatusCreated, "of B", false)
					}
					before := loaded(t, store, "k")
					close(endA)
					w := late.answer()
					synctest.Wait()
					sameRecord(t, before, loaded(t, store, "k"))
					switch {
					case c.name == "panics":
						if late.thrown != "late" || w.Body.Len() != 0 {
							t.Errorf("panicked with %v after %q", late.thrown, w.Body)
						}
					case done:
						wantAnswer(t, w, http.StatusCreated, "of B", true)
					default:
						wantProblem(t, w, http.StatusConflict, refusal.InProgress)
						if w.Header().Get("Retry-After") == "" {
							t.Error("no Retry-After")
						}
					}
					if n := seen.count(event.Fenced); n != 1 {
						t.Errorf("%d late owners reported, want 1", n)
					}
					if !done {
						close(endB)
						wantAnswer(t, next.answer(), http.StatusCreated, "of B", false)
					}
					wantAnswer(t, answer(a.Wrap(say("again")), post("k", `{}`)), http.StatusCreated, "of B", true)
				})
			})
		}
	}
}

// a late extend is refused, and ends the late owner.
func TestR48_Case02_LateOwnerExtends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		cut := &faulty{Store: store}
		cut.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, errDown }
		p := shortLease(semel.Rerun)
		a, _ := newGuard(t, cut, p)
		b, _ := newGuard(t, store, p)
		end := make(chan struct{})
		late := serve(a.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })), post("k", `{}`))
		time.Sleep(3 * time.Second)
		next := serve(b.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })), post("k", `{}`))
		synctest.Wait()
		before := loaded(t, store, "k")
		refused := 0
		cut.set(func(f *faulty) {
			f.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
				owned, err := store.Extend(ctx, id, by, x)
				if !owned {
					refused++
				}
				return owned, err
			}
		})
		time.Sleep(500 * time.Millisecond) // no renewal of B's is due
		sameRecord(t, before, loaded(t, store, "k"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if refused != 1 {
			t.Errorf("%d extends of the late owner were refused, want 1 and then no more", refused)
		}
		close(end)
		late.answer()
		next.answer()
	})
}

func TestR46_Case41_StaleOwnerNeverSettlesALaterRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		wait time.Duration // between B's release and C's claim
	}{
		{"after a release", 0},
		{"after release and sweep", 2 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				way := &mortal{Store: store}
				p := shortLease(semel.Rerun)
				a, seen := newGuard(t, way, p)
				b, _ := newGuard(t, store, p)
				endA, endC := make(chan struct{}), make(chan struct{})
				stale := serve(a.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-endA
					say("stale").ServeHTTP(w, r)
				})), post("k", `{}`))
				synctest.Wait()
				fence := loaded(t, store, "k").Fence
				way.dead.Store(true)
				time.Sleep(3 * time.Second)
				busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
				if w := answer(b.Wrap(busy), post("k", `{}`)); w.Code != http.StatusServiceUnavailable || refusalCode(w) != "" {
					t.Fatalf("answered %d %s", w.Code, w.Body)
				}
				time.Sleep(c.wait)
				if c.wait > 0 {
					if n, err := store.Sweep(t.Context(), 10); n != 1 || err != nil {
						t.Fatalf("swept %d, %v", n, err)
					}
				}
				next := serve(b.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-endC
					say("of C").ServeHTTP(w, r)
				})), post("k", `{}`))
				synctest.Wait()
				before := loaded(t, store, "k")
				if before.State != driver.Running || before.Fence <= fence {
					t.Fatalf("%v under fence %d after %d", before.State, before.Fence, fence)
				}
				way.dead.Store(false)
				close(endA)
				wantProblem(t, stale.answer(), http.StatusConflict, refusal.InProgress)
				sameRecord(t, before, loaded(t, store, "k"))
				close(endC)
				wantAnswer(t, next.answer(), http.StatusCreated, "of C", false)
				wantAnswer(t, answer(a.Wrap(say("again")), post("k", `{}`)), http.StatusCreated, "of C", true)
				if n := seen.count(event.Fenced); n != 1 {
					t.Errorf("%d late owners reported, want 1", n)
				}
			})
		})
	}
}

func TestR49_AttemptCountsRunsAndFenceOrdersThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, shortLease(semel.Hold))
		var last *semel.Operation
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op := semel.FromContext(r.Context())
			if last != nil && (op.Attempt() != last.Attempt()+1 || op.Fence() <= last.Fence() || op.ID() != last.ID()) {
				t.Errorf("attempt %d, fence %d, id %s after %d, %d, %s", op.Attempt(), op.Fence(), op.ID(), last.Attempt(), last.Fence(), last.ID())
			}
			last = op
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		for range 5 {
			answer(h, post("k", `{}`))
		}
		if last.Attempt() != 5 || last.ID() != keyed("k").String() {
			t.Errorf("attempt %d of %s, want 5 of %s", last.Attempt(), last.ID(), keyed("k"))
		}
	})
}

// TestR50_ClocksThatDisagree: the store's clock counts, however far the process's is from it.
func TestR50_ClocksThatDisagree(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(fmt.Sprint(skew, " ", onLost), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, err := memstore.Open(memstore.Options{Clock: func() time.Time { return time.Now().Add(skew) }})
					if err != nil {
						t.Fatal(err)
					}
					p := shortLease(onLost)
					g, _ := newGuard(t, store, p)
					way := &mortal{Store: store}
					dead, _ := newGuard(t, way, p)
					var paid ledger
					slow := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(20 * time.Second)
						paid.pay(w, r)
					}))
					s := serve(slow, post("k", `{}`))
					for range 19 {
						time.Sleep(time.Second)
						w := answer(slow, post("k", `{}`))
						wantProblem(t, w, http.StatusConflict, refusal.InProgress)
						if ra := w.Header().Get("Retry-After"); ra != "1" && ra != "2" && ra != "3" {
							t.Errorf("Retry-After: %q, want no more than the lease", ra)
						}
					}
					wantAnswer(t, s.answer(), http.StatusCreated, "payment 1", false)
					time.Sleep(p.Retention - time.Microsecond)
					wantAnswer(t, answer(slow, post("k", `{}`)), http.StatusCreated, "payment 1", true)
					time.Sleep(time.Microsecond)
					wantAnswer(t, answer(slow, post("k", `{}`)), http.StatusCreated, "payment 2", false)

					// A lease that nobody renews.
					end := make(chan struct{})
					lost := serve(dead.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })), post("lost", `{}`))
					synctest.Wait()
					way.dead.Store(true)
					time.Sleep(p.Lease - time.Microsecond)
					wantProblem(t, answer(g.Wrap(say("next")), post("lost", `{}`)), http.StatusConflict, refusal.InProgress)
					time.Sleep(time.Microsecond)
					w := answer(g.Wrap(say("next")), post("lost", `{}`))
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
}

func TestR51_Case03_NoLeaseMeansTheDefault(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{-time.Second, time.Millisecond} {
		if err := (semel.Policy{Lease: lease}).Validate(); err == nil {
			t.Errorf("a lease of %v is accepted", lease)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		way := &mortal{Store: store}
		p := semel.Policy{OnLost: semel.Rerun}
		dead, _ := newGuard(t, way, p)
		g, _ := newGuard(t, store, p)
		end := make(chan struct{})
		s := serve(dead.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })), post("k", `{}`))
		synctest.Wait()
		way.dead.Store(true)
		time.Sleep(driver.DefaultLease - time.Microsecond)
		wantProblem(t, answer(g.Wrap(say("next")), post("k", `{}`)), http.StatusConflict, refusal.InProgress)
		time.Sleep(time.Microsecond)
		wantAnswer(t, answer(g.Wrap(say("next")), post("k", `{}`)), http.StatusCreated, "next", false)
		way.dead.Store(false)
		close(end)
		s.answer()

		// The same at the seam: without a lease, a claim and an extend get the default.
		for i, lease := range []time.Duration{0, -time.Hour} {
			id, token := keyed(fmt.Sprint("seam", i)), driver.NewToken()
			rec, owned, err := store.Claim(t.Context(), id, driver.Claim{Token: token, Lease: lease})
			if !owned || err != nil || rec.LeaseEnd.Sub(rec.Now) != driver.DefaultLease {
				t.Fatalf("claim for %v: %v, %v, %v", lease, rec.LeaseEnd.Sub(rec.Now), owned, err)
			}
			time.Sleep(20 * time.Second)
			if owned, err := store.Extend(t.Context(), id, rec.Owner(), driver.Extension{Lease: lease}); !owned || err != nil {
				t.Fatalf("extend by %v: %v, %v", lease, owned, err)
			}
			if rec, err = store.Load(t.Context(), id); err != nil || rec.LeaseEnd.Sub(rec.Now) != driver.DefaultLease {
				t.Errorf("extended by %v: %v, %v", lease, rec.LeaseEnd.Sub(rec.Now), err)
			}
		}
	})
}

func TestR53_RetentionCountsFromCompletion(t *testing.T) {
	t.Parallel()
	const forever = 100 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name      string
		retention time.Duration
		kept      time.Duration
		expires   bool
	}{
		{"by default", 0, 24 * time.Hour, true},
		{"per route", time.Hour, time.Hour, true},
		{"for ever", semel.Forever, forever, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := shortLease(semel.Rerun)
				p.Retention = c.retention
				g, _ := newGuard(t, nil, p)
				var paid ledger
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(50 * time.Second) // does not count
					paid.pay(w, r)
				}))
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
				time.Sleep(c.kept - time.Microsecond)
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
				if !c.expires {
					return
				}
				time.Sleep(time.Microsecond)
				// The key is new: another request may have it.
				wantAnswer(t, answer(h, post("k", `{"other":1}`)), http.StatusCreated, "payment 2", false)
			})
		})
	}
}

// The late copy of a claim starts a later run with the token of an earlier one: the earlier one's owner does not settle
// it, but frees it.
func TestR48_Case43_SameTokenUnderALaterFence(t *testing.T) {
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
		f.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, errDown }
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			rec, owned, err := store.Settle(ctx, id, by, o)
			if owned && !by.Above {
				t.Errorf("settled with %v under fence %d of %d", o.State, by.Fence, rec.Fence)
			}
			return rec, owned, err
		}
		a, seen := newGuard(t, f, shortLease(semel.Rerun))
		b, _ := newGuard(t, store, shortLease(semel.Rerun))
		end := make(chan struct{})
		s := serve(a.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-end
			say("stale").ServeHTTP(w, r)
		})), post("k", `{}`))
		time.Sleep(4 * time.Second)
		answer(b.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })), post("k", `{}`))
		late()
		if rec := loaded(t, store, "k"); rec.State != driver.Running || rec.Attempt != 3 {
			t.Fatalf("the late copy started nothing: %v, attempt %d", rec.State, rec.Attempt)
		}
		close(end)
		wantProblem(t, s.answer(), http.StatusConflict, refusal.InProgress)
		drained(t, a)
		if rec := loaded(t, store, "k"); rec.State != driver.Free || rec.Attempt != 2 || seen.count(event.Fenced) != 1 {
			t.Errorf("%v after %d attempts, %d late owners reported; want free after 2, and 1", rec.State, rec.Attempt, seen.count(event.Fenced))
		}
	})
}
