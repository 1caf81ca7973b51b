package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// A transaction within another one is refused, wherever it is begun, and the outer one goes on.
func TestR31_NestedTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			again := func() {
				if err := semel.RunTx(r.Context(), s, func(context.Context, driver.Tx) error {
					t.Error("it has run")
					return nil
				}); !errors.Is(err, semel.ErrNested) {
					t.Errorf("RunTx: %v", err)
				}
			}
			again()
			var wg sync.WaitGroup
			wg.Go(again)
			wg.Wait()
			return paying(w, r, tx)
		}, nil))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		s.wantEffects("paid")
	})
}

// A handler that returns while its transaction goes on elsewhere is answered for once that has ended.
func TestR31_R32_ATransactionThatIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		err     error
		status  int
		effects int
	}{
		{"committed", nil, http.StatusCreated, 1},
		{"rolled back", errDeclined, http.StatusServiceUnavailable, 0},
	} {
		for _, m := range txModes() {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprint(c.name, "/", m.name, "/", panics), func(t *testing.T) {
					t.Parallel()
					s := newTransactor(t)
					g, _ := newGuard(t, s, m.policy)
					begun, goOn := make(chan struct{}), make(chan struct{})
					var wg sync.WaitGroup
					late := make(chan error, 1)
					h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						wg.Go(func() {
							late <- semel.RunTx(r.Context(), s, func(_ context.Context, tx driver.Tx) error {
								close(begun)
								<-goOn
								payIn(tx, w)
								return c.err
							})
						})
						<-begun
						if panics {
							panic("gone")
						}
					}))
					first := serve(h, post("k", `{}`))
					<-begun
					select {
					case <-first.done:
						t.Error("answered while the transaction is under way")
					case <-time.After(50 * time.Millisecond): // nothing tells that a handler has returned
					}
					close(goOn)
					<-first.done
					wg.Wait()
					if err := <-late; !errors.Is(err, c.err) {
						t.Errorf("RunTx: %v, want %v", err, c.err)
					}
					switch {
					case panics && first.thrown != "gone":
						t.Errorf("threw %v", first.thrown)
					case !panics && first.w.Code != c.status:
						t.Errorf("answered %d %s, want %d", first.w.Code, first.w.Body, c.status)
					}
					s.wantEffects([]string{"paid"}[:c.effects]...)
					if c.err == nil {
						wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", true)
					}
					drained(t, g)
				})
			}
		}
	}
}

// Begun on a goroutine after the handler has returned, there is no transaction any more.
func TestR31_NoTransactionAfterTheHandler(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		var late context.Context
		answer(g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { late = r.Context() })), post("k", `{}`))
		if err := semel.RunTx(late, s, func(context.Context, driver.Tx) error {
			t.Error("it has run")
			return nil
		}); !errors.Is(err, semel.ErrSettled) {
			t.Errorf("RunTx: %v", err)
		}
		s.wantEffects()
	})
}

// The client of a commit without a reply is told only what the store has said about it: pending first, if that takes
// long, and the truth to its next attempt.
func TestCase09_R31_TheReplyOfACommitIsFoundOutLate(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		for _, m := range txModes() {
			t.Run(fmt.Sprint(m.name, "/", committed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					m, s := m.brief(), newTransactor(t)
					start := time.Now()
					silent := func(ctx context.Context) error { // as after a network failure: no reply until it is over
						if left := 8*time.Second - time.Since(start); left > 0 {
							select {
							case <-ctx.Done():
								return ctx.Err()
							case <-time.After(left):
							}
						}
						return nil
					}
					s.commit = func(execute func() error) error {
						if committed {
							if err := execute(); err != nil {
								return err
							}
						}
						s.begin = silent
						return errDown
					}
					s.asked = func(ctx context.Context, _ driver.Outcome) error { return silent(ctx) }
					g, seen := newGuard(t, s, m.policy)
					times := 0
					h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						times++
						s.working(paying, func(w http.ResponseWriter, _ *http.Request, err error) {
							if times == 1 && (!errors.Is(err, errDown) || errors.Is(err, driver.ErrRolledBack)) {
								t.Errorf("RunTx: %v", err)
							}
							http.Error(w, "commit failed", http.StatusInternalServerError)
						}).ServeHTTP(w, r)
					}))
					w := answer(h, post("k", `{}`))
					wantProblem(t, w, http.StatusServiceUnavailable, refusal.OutcomePending)
					if took := time.Since(start); took != usualSettleWait {
						t.Errorf("told after %v", took)
					}
					drained(t, g)
					if took := time.Since(start); took < 8*time.Second || took > 10*time.Second {
						t.Errorf("found out after %v, want soon after the store replies", took)
					}
					s.begin, s.commit, s.asked = nil, nil, nil
					wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", committed)
					s.wantEffects("paid")
					if want := map[bool]int{true: 1, false: 2}[committed]; times != want {
						t.Errorf("run %d times, want %d", times, want)
					}
					if seen.count(event.Fenced) != 0 || seen.count(event.SettleAbandoned) != 0 {
						t.Error("it was reported as fenced or abandoned")
					}
				})
			})
		}
	}
}

// While nobody knows what became of a commit, the lease is renewed as before; that a renewal is refused, because the
// record is done, takes nothing from the handler.
func TestR47_RenewalsAfterACommitWithoutAReply(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(fmt.Sprint(onLost, "/", committed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newTransactor(t)
					s.commit = func(execute func() error) error {
						if committed {
							if err := execute(); err != nil {
								return err
							}
						}
						return errDown
					}
					renewed := 0
					s.extend = func(execute func() (bool, error)) (bool, error) {
						owned, err := execute()
						if owned {
							renewed++
						}
						return owned, err
					}
					g, seen := newGuard(t, s, shortLease(onLost))
					h := g.Wrap(s.working(paying, func(_ http.ResponseWriter, r *http.Request, _ error) {
						time.Sleep(20*time.Second + 500*time.Millisecond) // almost seven leases
						if err := context.Cause(r.Context()); err != nil {
							t.Errorf("the handler was cancelled: %v", err)
						}
						code := refusal.InProgress
						if committed {
							code = ""
						}
						if w := answer(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
							t.Error("run beside the first")
						})), post("k", `{}`)); refusalCode(w) != code {
							t.Errorf("a repeat got %d %s", w.Code, w.Body)
						}
					}))
					w := answer(h, post("k", `{}`))
					if committed {
						wantAnswer(t, w, http.StatusCreated, "paid", false)
					} else {
						wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
					}
					if want := map[bool]int{true: 0, false: 21}[committed]; renewed != want {
						t.Errorf("renewed %d times, want %d", renewed, want)
					}
					if seen.count(event.Fenced)+seen.count(event.LeaseLost) != 0 {
						t.Error("the owner was called late")
					}
				})
			})
		}
	}
}

// A late owner whose commit is in doubt, and whose record somebody has taken: its client is told what the record says.
func TestR48_R31_FencedWhileInDoubt(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		mem := memstore.New()
		s := transactions(t, mem)
		s.commit = commitLost
		g, seen := newGuard(t, s, m.policy)
		other, _ := newGuard(t, mem, semel.Policy{OnLost: semel.Rerun})
		h := g.Wrap(s.working(paying, func(http.ResponseWriter, *http.Request, error) {
			if !m.onlyOne() {
				seized(t, mem)
				return
			}
			answer(other.Wrap(say("the other's")), post("k", `{}`))
		}))
		w := answer(h, post("k", `{}`))
		s.wantEffects()
		if m.onlyOne() { // what another run has recorded proves that this one has not
			wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
			wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "the other's", true)
			return
		}
		wantProblem(t, w, http.StatusConflict, refusal.OutcomeUnknown)
		if seen.count(event.Fenced) != 1 {
			t.Errorf("%d fenced", seen.count(event.Fenced))
		}
	})
}

// If somebody has decided about the record meanwhile, its client gets what that says, and never the late owner's
// answer.
func TestR48_R31_DecidedWhileInDoubt(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			mem := memstore.New()
			s := transactions(t, mem)
			s.commit = commitLost
			g, _ := newGuard(t, s, inRealTime(shortLease(onLost)))
			h := g.Wrap(s.working(paying, func(_ http.ResponseWriter, r *http.Request, _ error) {
				rec, err := mem.Seize(r.Context(), keyed("k"), driver.NewToken())
				if err != nil {
					t.Fatal(err)
				}
				decision := driver.Outcome{State: driver.Done, Response: &driver.Response{Status: http.StatusAccepted, Body: []byte("decided")}}
				if _, owned, err := mem.Settle(r.Context(), keyed("k"), rec.Owner(), decision); err != nil || !owned {
					t.Errorf("settle: %v, %v", owned, err)
				}
			}))
			for range 2 {
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusAccepted, "decided", true)
			}
			s.wantEffects()
			drained(t, g)
		})
	}
}

// Patience passes while the transaction is under way: the client is told, and its retry gets what was committed.
func TestR75_PatienceWithATransaction(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(fmt.Sprint(onLost, "/", fails), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newTransactor(t)
					p := shortLease(onLost)
					p.Patience, p.MaxResponseBody = 2*time.Second, 100
					g, seen := newGuard(t, s, p)
					times := 0
					h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
						times++
						if times == 1 {
							time.Sleep(7 * time.Second)
							if fails {
								panic("gone")
							}
						}
						return paying(w, r, tx)
					}, nil))
					wantProblem(t, answer(h, post("k", `{}`)), http.StatusGatewayTimeout, refusal.OutcomePending)
					wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress)
					drained(t, g)
					wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", !fails)
					s.wantEffects("paid")
					if seen.count(event.Fenced)+seen.count(event.LeaseLost) != 0 {
						t.Error("the owner was called late")
					}
				})
			})
		}
	}
}

// The client goes away in the middle: the transaction commits, and the retry gets its answer.
func TestR29_R31_TheClientGoesAway(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		ctx, leave := context.WithCancel(t.Context())
		h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			leave()
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler was cancelled: %v", err)
			}
			return paying(w, r, tx)
		}, nil))
		answer(h, post("k", `{}`).WithContext(ctx))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", true)
		s.wantEffects("paid")
	})
}

// MaxRun passes in the transaction: what the function makes of that counts. A commit is not cut off by it.
func TestMaxRunPassesInATransaction(t *testing.T) {
	t.Parallel()
	for _, obeys := range []bool{true, false} {
		for _, status := range []int{201, 422} {
			for _, m := range txModes() {
				t.Run(fmt.Sprint(m.name, "/", status, "/", obeys), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						m, s := m.brief(), newTransactor(t)
						g, seen := newGuard(t, s, m.policy)
						times := 0
						h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
							if times++; times == 1 {
								<-r.Context().Done()
								if cause := context.Cause(r.Context()); !errors.Is(cause, semel.ErrMaxRun) {
									t.Errorf("cancelled by %v", cause)
								}
								if obeys {
									return r.Context().Err()
								}
							}
							var err error
							if status == 422 {
								err = errDeclined
							}
							return answering(status, err)(w, r, tx)
						}, nil))
						w := answer(h, post("k", `{}`))
						body := fmt.Sprint("in ", status)
						if obeys {
							wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
						} else {
							wantAnswer(t, w, status, body, false)
						}
						wantAnswer(t, answer(h, post("k", `{}`)), status, body, !obeys)
						s.wantEffects([]string{"paid"}[:map[int]int{201: 1, 422: 0}[status]]...)
						if want := map[bool]int{true: 0, false: 1}[m.onlyOne()]; obeys && seen.count(event.RunTooLong) > want {
							t.Errorf("reported as too long %d times", seen.count(event.RunTooLong))
						}
					})
				})
			}
		}
	}
}

// An operator takes the record while the transaction is under way: its settle is refused, so nothing of it commits, and
// the handler is cancelled.
func TestR48_FencedInATransaction(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		for _, tells := range []bool{false, true} {
			t.Run(fmt.Sprint(onLost, "/", tells), func(t *testing.T) {
				t.Parallel()
				mem := memstore.New()
				s := transactions(t, mem)
				g, seen := newGuard(t, s, inRealTime(shortLease(onLost)))
				h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
					seized(t, mem)
					return paying(w, r, tx)
				}, func(w http.ResponseWriter, r *http.Request, err error) {
					if !errors.Is(err, semel.ErrFenced) || !errors.Is(context.Cause(r.Context()), semel.ErrFenced) {
						t.Errorf("RunTx: %v; cancelled by %v", err, context.Cause(r.Context()))
					}
					if tells {
						w.WriteHeader(http.StatusInternalServerError)
						if _, err := io.WriteString(w, "fenced"); err != nil {
							t.Errorf("write: %v", err)
						}
					}
				}))
				wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.OutcomeUnknown)
				s.wantEffects()
				drained(t, g)
				if seen.count(event.Fenced) != 1 || len(seen.results()) != 1 {
					t.Errorf("%d fenced, decisions %v", seen.count(event.Fenced), seen.results())
				}
				if rec := loaded(t, s, "k"); rec.State != driver.Unknown || !rec.Seized {
					t.Errorf("the record is %v", rec.State)
				}
			})
		}
	}
}

// In a long transaction of a database with one writer the renewals are held up by the run's own lock. That is not a
// lost lease: nobody else can take the record meanwhile.
func TestR47_HeldRenewalsCount(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTransactor(t)
				err := errDown
				if held {
					err = fmt.Errorf("extend: %w", driver.ErrHeld)
				}
				tried := 0
				s.extend = func(func() (bool, error)) (bool, error) {
					tried++
					return false, err
				}
				g, seen := newGuard(t, s, shortLease(semel.Rerun))
				h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
					time.Sleep(20*time.Second + 500*time.Millisecond)
					if cause := context.Cause(r.Context()); held != (cause == nil) {
						t.Errorf("cancelled by %v", cause)
					}
					s.extends(nil)
					return paying(w, r, tx)
				}, nil))
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
				s.wantEffects("paid")
				if held && (tried != 20 || seen.count(event.StoreError) != 0) {
					t.Errorf("%d renewals, %d store errors; want 20 and none", tried, seen.count(event.StoreError))
				}
			})
		})
	}
}

// A renewal that is under way while the transaction commits is refused, since the record is done: that takes nothing
// from the handler, and no more are sent.
func TestR47_ARenewalOvertakenByTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		sent, refused := 0, 0
		s.extend = func(execute func() (bool, error)) (bool, error) {
			sent++
			time.Sleep(800 * time.Millisecond)
			owned, err := execute()
			if !owned {
				refused++
			}
			return owned, err
		}
		g, seen := newGuard(t, s, shortLease(semel.Rerun))
		h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			time.Sleep(1500 * time.Millisecond)
			return paying(w, r, tx)
		}, func(_ http.ResponseWriter, r *http.Request, err error) {
			time.Sleep(20 * time.Second)
			if cause := context.Cause(r.Context()); err != nil || cause != nil {
				t.Errorf("RunTx: %v; cancelled by %v", err, cause)
			}
		}))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		if sent != 1 || refused != 1 || seen.count(event.Fenced)+seen.count(event.LeaseLost) != 0 {
			t.Errorf("%d renewals were sent, %d refused; %d fenced, %d leases lost", sent, refused, seen.count(event.Fenced), seen.count(event.LeaseLost))
		}
	})
}

// After a commit that was refused the run goes on, and so does its lease: renewed where that works, and given up at 80
// % where it does not.
func TestR47_TheLeaseGoesOnAfterARefusedCommit(t *testing.T) {
	t.Parallel()
	for _, works := range []bool{true, false} {
		t.Run(fmt.Sprint(works), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTransactor(t)
				s.commit = func(func() error) error {
					if !works {
						s.extends(func(func() (bool, error)) (bool, error) { return false, errDown })
					}
					return errConflict
				}
				g, seen := newGuard(t, s, shortLease(semel.Rerun))
				var cancelled time.Duration
				h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
					time.Sleep(4500 * time.Millisecond) // the last renewal was half a second ago
					return paying(w, r, tx)
				}, func(w http.ResponseWriter, r *http.Request, err error) {
					failed := time.Now()
					select {
					case <-time.After(30 * time.Second):
					case <-r.Context().Done():
						cancelled = time.Since(failed)
					}
					then(500)(w, r, err)
				}))
				answer(h, post("k", `{}`))
				// 80 % of 3 s after the last renewal, which was sent half a second before the commit.
				if want := map[bool]time.Duration{true: 0, false: 1900 * time.Millisecond}[works]; cancelled != want {
					t.Errorf("cancelled after %v, want %v", cancelled, want)
				}
				if lost := seen.count(event.LeaseLost); (lost == 1) != !works {
					t.Errorf("%d leases lost", lost)
				}
			})
		})
	}
}

// Past MaxRun the lease rests, and a refused commit does not wake it.
func TestTheLeaseRestsAfterARefusedCommitPastMaxRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		s.commit = commitRefused
		g, seen := newGuard(t, s, shortLease(semel.Hold))
		h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			time.Sleep(time.Minute + 1500*time.Millisecond)
			return paying(w, r, tx)
		}, func(http.ResponseWriter, *http.Request, error) {
			time.Sleep(10 * time.Second)
			if rec := loaded(t, s, "k"); rec.Reads(semel.Hold) != driver.ReadsUnknown {
				t.Errorf("the record reads %v", rec.Reads(semel.Hold))
			}
		}))
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
		if n := seen.count(event.RunTooLong); n != 1 {
			t.Errorf("reported as too long %d times", n)
		}
	})
}

// Waiters are woken by the commit; they need not wait for the handler to return.
func TestR28_R31_TheCommitWakesWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		p := waits(semel.Hold, time.Minute)
		g, _ := newGuard(t, s, p)
		h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			time.Sleep(5 * time.Second)
			return paying(w, r, tx)
		}, func(http.ResponseWriter, *http.Request, error) { time.Sleep(10 * time.Second) }))
		start := time.Now()
		first := serve(h, post("k", `{}`))
		time.Sleep(time.Second)
		second := serve(h, post("k", `{}`))
		wantAnswer(t, second.answer(), http.StatusCreated, "paid", true)
		if took := second.at.Sub(start); took != 5*time.Second {
			t.Errorf("answered after %v, want at the commit", took)
		}
		wantAnswer(t, first.answer(), http.StatusCreated, "paid", false)
	})
}

// claimedElsewhere is a transactor whose operation another process has claimed in a transaction that is open for a
// while.
type claimedElsewhere struct {
	*transactor
	until time.Time
	mu    sync.Mutex
	asked []time.Time
}

func (s *claimedElsewhere) BeginClaim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Tx, driver.Record, bool, error) {
	if now := time.Now(); now.Before(s.until) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, now)
		at := driver.Time(now.UnixMicro())
		return nil, driver.Record{
			State: driver.Running, OnLost: c.OnLost, Fingerprint: c.Fingerprint, Now: at, LeaseEnd: at.Add(c.Lease),
		}, false, nil
	}
	return s.transactor.BeginClaim(ctx, id, c)
}

// A claim in a transaction that has not committed shows nobody's name. One waiter of a process asks again for all, ever
// more seldom.
func TestR28_R60_WaitersOfAnOpenTransactionTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes, waiters = 10 * time.Second, 20
		s := &claimedElsewhere{transactor: newTransactor(t), until: time.Now().Add(takes)}
		p := waits(semel.Hold, time.Minute)
		p.OneCommit = true
		g, _ := newGuard(t, s, p)
		var all []*served
		for range waiters {
			all = append(all, serve(g.Wrap(s.working(paying, nil)), post("k", `{}`)))
		}
		for _, w := range all {
			w.answer()
			if late := w.at.Sub(s.until); late < 0 || late > 500*time.Millisecond {
				t.Errorf("answered %v after the other transaction's end, want within half a second", late)
			}
		}
		s.wantEffects("paid")
		// Each asks before it waits, and once more when it has joined; then 5 polls that double from 25 ms, and 2 a second.
		if n := len(s.asked); n > 2*waiters+5+20 {
			t.Errorf("asked %d times in %v", n, takes)
		}
	})
}

// Where there is no operation, and in observe mode, RunTx is a plain transaction: the function's error decides, and the
// answer is the handler's business.
func TestR92_R31_PlainTransactions(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name    string
		policy  semel.Policy
		broken  bool // the store does not answer a claim
		request func() *http.Request
	}{
		{"observed", semel.Policy{ObserveOnly: true}, false, func() *http.Request { return post("k", `{}`) }},
		{"unkeyed", semel.Policy{KeyOptional: true}, false, func() *http.Request { return post("", `{}`) }},
		{"unkeyed in one-commit mode", semel.Policy{KeyOptional: true, OneCommit: true}, false, func() *http.Request { return post("", `{}`) }},
		{"bypassed", semel.Policy{FailOpen: true}, true, func() *http.Request { return post("k", `{}`) }},
		{"not protected", semel.Policy{}, false, func() *http.Request { return httptest.NewRequest(http.MethodGet, "/payments", nil) }},
	}
	for _, way := range ways {
		for _, c := range []struct {
			name    string
			store   func(*transactor)
			err     error
			throws  bool
			returns error
			effects int
		}{
			{name: "committed", effects: 1},
			{name: "rolled back", err: errDeclined, returns: errDeclined},
			{name: "thrown", throws: true},
			{name: "not begun", store: func(s *transactor) { s.begin = func(context.Context) error { return errDown } }, returns: errDown},
			{name: "refused", store: func(s *transactor) { s.commit = commitRefused }, returns: driver.ErrRolledBack},
		} {
			t.Run(way.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := &faulty{Store: memstore.New()}
					s := transactions(t, f)
					if way.broken {
						f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
							return driver.Record{}, false, errDown
						}
					}
					if c.store != nil {
						c.store(s)
					}
					g, _ := newGuard(t, s, way.policy)
					w := httptest.NewRecorder()
					got := thrown(g.Wrap(s.working(func(_ http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
						effect(tx, "paid")
						if c.throws {
							panic("gone")
						}
						return c.err
					}, func(w http.ResponseWriter, _ *http.Request, err error) {
						if !errors.Is(err, c.returns) || (err == nil) != (c.returns == nil) {
							t.Errorf("RunTx: %v, want %v", err, c.returns)
						}
						w.WriteHeader(http.StatusAccepted)
						io.WriteString(w, "mine")
					})), w, way.request())
					if c.throws != (got == "gone") || !c.throws && (w.Code != http.StatusAccepted || w.Body.String() != "mine") {
						t.Errorf("threw %v, answered %d %q", got, w.Code, w.Body)
					}
					drained(t, g)
					s.wantEffects([]string{"paid"}[:c.effects]...)
				})
			})
		}
	}
}

// An observed handler's transaction settles nothing: the record is settled with what the handler answers.
func TestR92_ObservedTransactionsSettleNothing(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	g, seen := newGuard(t, s, semel.Policy{ObserveOnly: true})
	h := g.Wrap(s.working(func(_ http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
		effect(tx, "paid")
		return nil
	}, then(202)))
	for range 2 {
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusAccepted, "after 202", false)
		drained(t, g)
	}
	s.wantEffects("paid", "paid")
	if want := []event.Result{event.Executed, event.Replayed}; !reflect.DeepEqual(seen.results(), want) {
		t.Errorf("decisions %v, want %v", seen.results(), want)
	}
	if rec := loaded(t, s, "k"); rec.State != driver.Done || rec.Response == nil || rec.Response.Status != http.StatusAccepted {
		t.Errorf("the record is %v", rec.State)
	}
}

// While nobody knows what became of a commit there is no other transaction: it could commit a second time.
func TestCase09_R31_NoTransactionInDoubt(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		s.commit = commitUnheard
		g, _ := newGuard(t, s, m.policy)
		h := g.Wrap(s.working(paying, func(_ http.ResponseWriter, r *http.Request, _ error) {
			if err := semel.RunTx(r.Context(), s, func(context.Context, driver.Tx) error {
				t.Error("it has run")
				return nil
			}); !errors.Is(err, semel.ErrSettled) {
				t.Errorf("RunTx: %v", err)
			}
		}))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		s.wantEffects("paid")
	})
}

// snapshots is a transactor whose transactions hold a snapshot: a record that is renewed within one can't be settled in
// it.
type snapshots struct{ *transactor }

func (snapshots) HoldsSnapshot() bool { return true }

// In a transaction that holds a snapshot the lease is renewed before, and then not until its end; under Rerun the
// margin ends the run all the same.
func TestR47_NoRenewalsWithinASnapshot(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprint(onLost, "/", commits), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newTransactor(t)
					var renewals []time.Duration
					start := time.Now()
					s.extends(func(execute func() (bool, error)) (bool, error) {
						renewals = append(renewals, time.Since(start))
						return execute()
					})
					g, _ := newGuard(t, s, shortLease(onLost)) // 3 s, renewed every second
					w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(1500 * time.Millisecond)
						err := semel.RunTx(r.Context(), snapshots{s}, func(_ context.Context, tx driver.Tx) error {
							time.Sleep(2 * time.Second)
							payIn(tx, w)
							if !commits {
								return errDeclined
							}
							return nil
						})
						if commits != (err == nil) {
							t.Errorf("RunTx: %v", err)
						}
						time.Sleep(1500 * time.Millisecond)
					})), post("k", `{}`))
					want := []time.Duration{1000 * time.Millisecond, 1500 * time.Millisecond}
					if commits {
						wantAnswer(t, w, http.StatusCreated, "paid", false)
					} else {
						want = append(want, 3500*time.Millisecond, 4500*time.Millisecond)
					}
					if !reflect.DeepEqual(renewals, want) {
						t.Errorf("renewed after %v, want %v", renewals, want)
					}
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, shortLease(semel.Rerun))
		answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			err := semel.RunTx(r.Context(), snapshots{s}, func(ctx context.Context, tx driver.Tx) error {
				<-ctx.Done()
				if took := time.Since(start); took != 2400*time.Millisecond || !errors.Is(context.Cause(ctx), semel.ErrLeaseLost) {
					t.Errorf("cancelled after %v: %v", took, context.Cause(ctx))
				}
				return ctx.Err()
			})
			if err == nil {
				t.Error("RunTx has committed")
			}
		})), post("k", `{}`))
		drained(t, g)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		s.extends(func(func() (bool, error)) (bool, error) { return false, errDown })
		g, _ := newGuard(t, s, shortLease(semel.Hold))
		w := answer(g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			err := semel.RunTx(r.Context(), snapshots{s}, func(context.Context, driver.Tx) error {
				t.Error("it runs in a transaction without having renewed")
				return nil
			})
			if !errors.Is(err, errDown) {
				t.Errorf("RunTx: %v", err)
			}
		})), post("k", `{}`))
		wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
		if s.began() != 0 {
			t.Errorf("%d transactions have begun", s.began())
		}
	})
}

// A waking store tells of what other processes have settled: who waits looks again at once, not when the next poll is
// due.
type wakingStore struct {
	driver.Store
	settled chan driver.ID
	fails   chan error
}

func (s *wakingStore) Wake(ctx context.Context, settled func(driver.ID)) error {
	for {
		select {
		case id := <-s.settled:
			settled(id)
		case err := <-s.fails:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestR28_AWakingStoreWakesWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New()
		s := &wakingStore{shared, make(chan driver.ID), make(chan error)}
		p := semel.Policy{Wait: time.Hour}
		g, seen := newGuard(t, s, p)
		other, _ := newGuard(t, shared, p)
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan error)
		go func() { running <- g.Run(ctx) }()
		s.fails <- errDown // it is called again
		proceed := make(chan struct{})
		go answer(other.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-proceed
			io.WriteString(w, "elsewhere")
		})), post("k", `{}`))
		synctest.Wait()
		waited := make(chan time.Time)
		go func() {
			wantAnswer(t, answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`)), http.StatusOK, "elsewhere", true)
			waited <- time.Now()
		}()
		time.Sleep(10*time.Second + 3*time.Millisecond) // polls are 500 ms apart by now
		close(proceed)
		synctest.Wait()
		at := time.Now()
		s.settled <- keyed("k")
		if when := <-waited; when != at {
			t.Errorf("woken %v after the store knew", when.Sub(at))
		}
		if seen.count(event.StoreError) != 1 {
			t.Errorf("%d failures were reported, want that of Wake", seen.count(event.StoreError))
		}
		cancel()
		if err := <-running; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}
