package semel_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// eachSecond returns from, from+1, … to, in seconds.
func eachSecond(from, to int) (list []time.Duration) {
	for i := from; i <= to; i++ {
		list = append(list, time.Duration(i)*time.Second)
	}
	return list
}

func TestHeartbeatsEveryThirdOfTheLeaseFromSending(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		claimTakes, extendTakes time.Duration
	}{
		{"a store that answers at once", 0, 0},
		{"slow extends", 0, 400 * time.Millisecond},
		{"a slow claim", 700 * time.Millisecond, 0},
		{"both slow", 900 * time.Millisecond, 900 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faulty{Store: store}
				f.claim = func(ctx context.Context, id driver.ID, cl driver.Claim) (driver.Record, bool, error) {
					rec, owned, err := store.Claim(ctx, id, cl)
					time.Sleep(c.claimTakes)
					return rec, owned, err
				}
				start := time.Now()
				var at []time.Time
				f.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
					at = append(at, time.Now())
					if x.Lease != 3*time.Second || x.Begun {
						t.Errorf("extends by %+v", x)
					}
					owned, err := store.Extend(ctx, id, by, x)
					time.Sleep(c.extendTakes)
					return owned, err
				}
				g, _ := newGuard(t, f, shortLease(semel.Hold))
				answer(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Until(start.Add(9500 * time.Millisecond)))
				})), post("k", `{}`))
				time.Sleep(time.Minute)
				if got := since(start, at); !reflect.DeepEqual(got, eachSecond(1, 9)) {
					t.Errorf("renewed at %v, want each second and not after the settle", got)
				}
			})
		})
	}
}

func TestHeartbeatsGoOnWhileTheOutcomeIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &counting{Store: memstore.New()}
		f := &faulty{Store: seen}
		start := time.Now()
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if time.Since(start) < 12500*time.Millisecond {
				return driver.Record{}, false, errDown
			}
			return seen.Settle(ctx, id, by, o)
		}
		g, _ := newGuard(t, f, shortLease(semel.Rerun))
		other, _ := newGuard(t, seen.Store, shortLease(semel.Rerun))
		var paid ledger
		wantProblem(t, answer(g.Wrap(http.HandlerFunc(paid.pay)), post("k", `{}`)), http.StatusServiceUnavailable, refusal.OutcomePending)
		for time.Since(start) < 12*time.Second {
			wantProblem(t, answer(other.Wrap(http.HandlerFunc(paid.pay)), post("k", `{}`)), http.StatusConflict, refusal.InProgress)
			time.Sleep(500 * time.Millisecond)
		}
		drained(t, g)
		time.Sleep(time.Minute)
		if got := since(start, seen.extendedAt); len(got) < 12 || !reflect.DeepEqual(got[:12], eachSecond(1, 12)) || len(got) > 13 {
			t.Errorf("renewed at %v, want each second until the outcome was durable", got)
		}
		wantAnswer(t, answer(other.Wrap(http.HandlerFunc(paid.pay)), post("k", `{}`)), http.StatusCreated, "payment 1", true)
	})
}

// A handler that ignores its deadline is not kept owned beyond MaxRun; when it ends at last, its outcome is.
func TestR47_HeartbeatsRestAtMaxRunAndResumeToSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &counting{Store: memstore.New()}
		f := &faulty{Store: seen}
		start := time.Now()
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if time.Since(start) < 22500*time.Millisecond {
				return driver.Record{}, false, errDown
			}
			return seen.Settle(ctx, id, by, o)
		}
		p := shortLease(semel.Hold)
		p.MaxRun = 10 * time.Second
		g, events := newGuard(t, f, p)
		other, _ := newGuard(t, seen.Store, p)
		var paid ledger
		var cause error
		var ended time.Duration
		s := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			cause, ended = context.Cause(r.Context()), time.Since(start)
			time.Sleep(10 * time.Second)
			paid.pay(w, r)
		})), post("k", `{}`))
		time.Sleep(12500 * time.Millisecond) // two renewals after the last one
		wantProblem(t, answer(other.Wrap(http.HandlerFunc(paid.pay)), post("k", `{}`)), http.StatusConflict, refusal.OutcomeUnknown)
		wantAnswer(t, s.answer(), http.StatusCreated, "payment 1", false)
		if !errors.Is(cause, semel.ErrMaxRun) || ended != p.MaxRun {
			t.Errorf("cancelled after %v by %v, want after %v by %v", ended, cause, p.MaxRun, semel.ErrMaxRun)
		}
		want := append(eachSecond(1, 9), eachSecond(20, 22)...)
		got := since(start, seen.extendedAt)
		if len(got) < len(want) || !reflect.DeepEqual(got[:len(want)], want) || len(got) > len(want)+1 {
			t.Errorf("renewed at %v, want %v", got, want)
		}
		if n := events.count(event.RunTooLong); n != 1 {
			t.Errorf("%d runs reported as too long, want 1", n)
		}
		wantAnswer(t, answer(other.Wrap(http.HandlerFunc(paid.pay)), post("k", `{}`)), http.StatusCreated, "payment 1", true)
	})
}

func TestR47_HandlerLongerThanTheLeaseIsNeverRunTwice(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				var paid ledger
				slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(30 * time.Second) // ten leases
					if err := r.Context().Err(); err != nil {
						t.Errorf("cancelled: %v", context.Cause(r.Context()))
					}
					paid.pay(w, r)
				})
				g, _ := newGuard(t, store, shortLease(onLost))
				other, _ := newGuard(t, store, shortLease(onLost))
				handlers := []http.Handler{g.Wrap(slow), other.Wrap(slow)}
				s := serve(handlers[0], post("k", `{}`))
				synctest.Wait()
				for i := range 70 {
					wantProblem(t, answer(handlers[i%2], post("k", `{}`)), http.StatusConflict, refusal.InProgress)
					time.Sleep(419 * time.Millisecond)
				}
				wantAnswer(t, s.answer(), http.StatusCreated, "payment 1", false)
				wantAnswer(t, answer(handlers[1], post("k", `{}`)), http.StatusCreated, "payment 1", true)
			})
		})
	}
}

// When renewals fail, the owner counts from the last one that was acknowledged, and from when it was sent.
func TestR47_OwnerCancelsItselfAtFourFifthsOfTheLease(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	for _, c := range []struct {
		name    string
		onLost  semel.LostPolicy
		renewed int           // renewals that work before they fail
		takes   time.Duration // what each takes to be acknowledged
		back    time.Duration // when they work again; 0 means never
		at      time.Duration // when the handler is cancelled
		cause   error
	}{
		{"rerun, none acknowledged", semel.Rerun, 0, 0, 0, 2400 * time.Millisecond, semel.ErrLeaseLost},
		{"rerun, two acknowledged", semel.Rerun, 2, 0, 0, 4400 * time.Millisecond, semel.ErrLeaseLost},
		{"rerun, counted from sending", semel.Rerun, 2, 600 * time.Millisecond, 0, 4400 * time.Millisecond, semel.ErrLeaseLost},
		{"rerun, back in time", semel.Rerun, 1, 0, 3 * time.Second, time.Minute, semel.ErrMaxRun},
		{"rerun, back too late", semel.Rerun, 1, 0, 3500 * time.Millisecond, 3400 * time.Millisecond, semel.ErrLeaseLost},
		{"hold", semel.Hold, 0, 0, 0, time.Minute, semel.ErrMaxRun},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faulty{Store: store}
				start := time.Now()
				n := 0
				f.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
					n++
					if n > c.renewed && (c.back == 0 || time.Since(start) < c.back) {
						return false, errDown
					}
					owned, err := store.Extend(ctx, id, by, x)
					time.Sleep(c.takes)
					return owned, err
				}
				g, events := newGuard(t, f, semel.Policy{OnLost: c.onLost, Lease: lease, MaxRun: time.Minute, Retention: time.Hour})
				var at time.Duration
				var cause error
				w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					at, cause = time.Since(start), context.Cause(r.Context())
					w.WriteHeader(http.StatusCreated)
				})), post("k", `{}`))
				if at != c.at || !errors.Is(cause, c.cause) {
					t.Errorf("cancelled after %v by %v, want after %v by %v", at, cause, c.at, c.cause)
				}
				lost := 0
				if errors.Is(c.cause, semel.ErrLeaseLost) {
					lost = 1
				}
				if got := events.count(event.LeaseLost); got != lost {
					t.Errorf("%d leases reported as lost, want %d", got, lost)
				}
				if w.Code != http.StatusCreated { // nobody took it over, so the late owner may settle
					t.Errorf("answered %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// An extend that hangs is cut off, so that there is time for another before the handler must be cancelled.
func TestR47_HangingExtendIsSentAgainBeforeTheMargin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		start := time.Now()
		var at []time.Time
		f.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
			at = append(at, time.Now())
			if len(at) == 1 {
				<-ctx.Done()
				return false, ctx.Err()
			}
			return store.Extend(ctx, id, by, x)
		}
		g, _ := newGuard(t, f, shortLease(semel.Rerun))
		w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Second)
			if r.Context().Err() != nil {
				t.Errorf("cancelled: %v", context.Cause(r.Context()))
			}
			w.WriteHeader(http.StatusOK)
		})), post("k", `{}`))
		if got := since(start, at); w.Code != http.StatusOK || len(got) < 2 || got[1] >= 2400*time.Millisecond {
			t.Errorf("answered %d, renewed at %v; want the second before 2.4s", w.Code, got)
		}
	})
}

func TestR48_RefusedExtendCancelsTheHandler(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seen := &counting{Store: memstore.New()}
				g, events := newGuard(t, seen, shortLease(onLost))
				start := time.Now()
				var at time.Duration
				var cause error
				s := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					at, cause = time.Since(start), context.Cause(r.Context())
					time.Sleep(10 * time.Second)
					w.WriteHeader(http.StatusCreated)
				})), post("k", `{}`))
				time.Sleep(1500 * time.Millisecond)
				if _, err := seen.Store.(driver.Seizer).Seize(t.Context(), keyed("k"), driver.NewToken()); err != nil {
					t.Fatal(err)
				}
				before := loaded(t, seen.Store, "k")
				wantProblem(t, s.answer(), http.StatusConflict, refusal.OutcomeUnknown)
				if at != 2*time.Second || !errors.Is(cause, semel.ErrFenced) {
					t.Errorf("cancelled after %v by %v, want at the next renewal by %v", at, cause, semel.ErrFenced)
				}
				if n := len(seen.extendedAt); n != 2 {
					t.Errorf("%d renewals, want none after the refused one", n)
				}
				sameRecord(t, before, loaded(t, seen.Store, "k"))
				if n := events.count(event.Fenced); n != 1 {
					t.Errorf("%d late owners reported, want 1", n)
				}
			})
		})
	}
}

// the handler's context has MaxRun as its deadline, and nothing else of the request's ends it.
func TestR47_HandlerContextEndsAtMaxRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, shortLease(semel.Rerun))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		answer(g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if at, ok := r.Context().Deadline(); !ok || !at.Equal(start.Add(time.Minute)) {
				t.Errorf("deadline %v, %v; want after MaxRun", at.Sub(start), ok)
			}
			child, cancel := context.WithCancel(r.Context())
			defer cancel()
			<-child.Done()
			if took := time.Since(start); took != time.Minute {
				t.Errorf("ended after %v, want after MaxRun", took)
			}
			if err, cause := child.Err(), context.Cause(child); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(cause, semel.ErrMaxRun) {
				t.Errorf("ended by %v, %v; want the deadline and %v", err, cause, semel.ErrMaxRun)
			}
		})), post("k", `{}`).WithContext(ctx))
	})
}

// When the handler has ended there is nothing left to cancel, whatever becomes of the renewals.
func TestLeaseIsNotLostWhileTheOutcomeIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		start := time.Now()
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if time.Since(start) < 15*time.Second {
				return driver.Record{}, false, errDown
			}
			return store.Settle(ctx, id, by, o)
		}
		f.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
			if time.Since(start) > 2500*time.Millisecond {
				return false, errDown
			}
			return store.Extend(ctx, id, by, x)
		}
		g, seen := newGuard(t, f, shortLease(semel.Rerun))
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(1500 * time.Millisecond)
			say("paid").ServeHTTP(w, r)
		}))
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusServiceUnavailable, refusal.OutcomePending)
		drained(t, g)
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", true)
		if n := seen.count(event.LeaseLost); n != 0 {
			t.Errorf("%d leases reported as lost, want none", n)
		}
	})
}

// What decides about an answer is a part of its run: if it hangs its key is not in progress for ever.
func TestR47_ADecisionThatHangsOutlivesMaxRunNoMoreThanAHandler(t *testing.T) {
	t.Parallel()
	for _, observe := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := shortLease(semel.Hold)
			goOn := make(chan struct{})
			p.ObserveOnly = observe
			p.Decide = func(int, http.Header, []byte) semel.Verdict { <-goOn; return semel.VerdictKeep }
			s := memstore.New()
			g, seen := newGuard(t, s, p)
			first := serve(g.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", "{}"))
			time.Sleep(p.MaxRun + 2*p.Lease)
			other, _ := newGuard(t, s, shortLease(semel.Hold))
			wantProblem(t, answer(other.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", "{}")), http.StatusConflict, refusal.OutcomeUnknown)
			if n := seen.count(event.RunTooLong); n != 1 {
				t.Errorf("observe %t: told %d times that the run is too long", observe, n)
			}
			close(goOn)
			first.answer()
			drained(t, g)
			if rec := only(t, s); rec.State != driver.Done {
				t.Errorf("observe %t: the record is %v once it was decided", observe, rec.State)
			}
		})
	}
}

// A function of Do whose result hangs when it is encoded is no exception.
func TestR47_AResultThatHangsOutlivesMaxRunNoMoreThanAFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := shortLease(semel.Hold)
		g, seen := newGuard(t, nil, p)
		goOn := make(chan struct{})
		ended := make(chan error)
		go func() {
			_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (hanging, error) { return goOn, nil })
			ended <- err
		}()
		time.Sleep(p.MaxRun + 2*p.Lease)
		_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) { return 1, nil })
		if !errors.Is(err, refusal.OutcomeUnknown) {
			t.Errorf("a repeat got %v, want that it is unknown", err)
		}
		for _, e := range seen.all() {
			if e.Kind == event.Decision && e.Status != 0 {
				t.Errorf("a call that was refused has the status %d", e.Status)
			}
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		drained(t, g)
	})
}

// hanging is a value whose encoding waits.
type hanging chan struct{}

func (h hanging) MarshalJSON() ([]byte, error) {
	<-h
	return []byte("1"), nil
}
