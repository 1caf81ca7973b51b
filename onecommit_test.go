package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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

// oneCommit returns a guard in one-commit mode over s.
func oneCommit(t testing.TB, s *transactor) (*semel.Guard, *events) {
	t.Helper()
	return newGuard(t, s, semel.Policy{OneCommit: true})
}

func TestOneCommitIsRefusedWhereItCannotBe(t *testing.T) {
	t.Parallel()
	scope := semel.ScopeFunc(headerScope)
	if _, err := semel.New(memstore.New(), scope, semel.Hold, semel.Options{Policy: semel.Policy{OneCommit: true}}); err == nil || !strings.Contains(err.Error(), "has no transactions") {
		t.Errorf("a store without transactions: %v", err)
	}
	plain, _ := newGuard(t, nil, semel.Policy{})
	if got := thrownBy(func() { plain.Route(semel.Policy{OneCommit: true}) }); !strings.Contains(got, "has no transactions") {
		t.Errorf("Route threw %q", got)
	}
	s := newTransactor(t)
	g, _ := oneCommit(t, s)
	for want, p := range map[string]semel.Policy{
		"Stream":      {Stream: true},
		"Patience":    {Patience: time.Second},
		"ObserveOnly": {ObserveOnly: true},
		"FailOpen":    {FailOpen: true},
	} {
		p.OneCommit = true
		want = "OneCommit does not go with " + want
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate returns %v, want %q", err, want)
		}
		if got := thrownBy(func() { g.Route(p) }); !strings.Contains(got, want) {
			t.Errorf("Route threw %q, want %q", got, want)
		}
		p.OneCommit = false
		if err := p.Validate(); err != nil {
			t.Errorf("without OneCommit: %v", err)
		}
	}
}

// The handler runs in a transaction, with a fence, an attempt and MaxRun, but without a lease. Repeats are answered
// from what was committed, without a transaction, and another body is refused.
func TestR16_OneCommitAnswersRepeatsWithoutATransaction(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	s.extend = func(func() (bool, error)) (bool, error) {
		t.Error("a renewal")
		return true, nil
	}
	g, seen := oneCommit(t, s)
	h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
		op := semel.FromContext(r.Context())
		if _, bounded := r.Context().Deadline(); op.Attempt() != 1 || op.Fence() == 0 || !bounded {
			t.Errorf("attempt %d, fence %d, bounded %v", op.Attempt(), op.Fence(), bounded)
		}
		if stats := doing(g); stats.Running != 1 {
			t.Errorf("stats %+v", stats)
		}
		return paying(w, r, tx)
	}, nil))
	wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
	for range 2 {
		w := answer(h, post("k", `{}`))
		wantAnswer(t, w, http.StatusCreated, "paid", true)
		if w.Header().Get("Location") != "/payments/1" {
			t.Errorf("headers %v", w.Header())
		}
	}
	before := loaded(t, s, "k")
	wantProblem(t, answer(h, post("k", `{"amount":7}`)), http.StatusUnprocessableEntity, refusal.KeyReused)
	sameRecord(t, before, loaded(t, s, "k"))
	if s.began() != 1 || s.marks != 1 {
		t.Errorf("%d transactions with %d marks, want one and one", s.began(), s.marks)
	}
	want := []event.Result{event.Executed, event.Replayed, event.Replayed, event.Mismatch}
	if got := seen.results(); !slices.Equal(got, want) {
		t.Errorf("decisions %v, want %v", got, want)
	}
	if before.Attempt != 1 || before.State != driver.Done {
		t.Errorf("the record is %+v", before)
	}
	s.wantEffects("paid")
	drained(t, g)
	if stats := doing(g); stats != (semel.Stats{}) {
		t.Errorf("stats %+v", stats)
	}
}

// Of many first requests at once one runs; the others wait for their turn and get what it has committed. One with
// another body waits too, and is refused then.
func TestR26_OneCommitRunsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		g, _ := oneCommit(t, s)
		h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			time.Sleep(time.Second)
			return paying(w, r, tx)
		}, nil))
		first := serve(h, post("k", `{}`))
		synctest.Wait()
		var others []*served
		for range 20 {
			others = append(others, serve(h, post("k", `{}`)))
		}
		mismatch := serve(h, post("k", `{"amount":7}`))
		synctest.Wait() // all of them have found no record
		wantAnswer(t, first.answer(), http.StatusCreated, "paid", false)
		for _, other := range others {
			wantAnswer(t, other.answer(), http.StatusCreated, "paid", true)
		}
		wantProblem(t, mismatch.answer(), http.StatusUnprocessableEntity, refusal.KeyReused)
		if s.began() != 22 {
			t.Errorf("%d transactions, want one for each request", s.began())
		}
		s.wantEffects("paid")
		drained(t, g)
	})
}

// The wait for a turn is bounded, and leaves nothing behind: no run, no record, nothing to release.
func TestOneCommitWaitsForItsTurnWithinBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*semel.Options)
		want   time.Duration
	}{
		{"SettleWait", func(*semel.Options) {}, usualSettleWait},
		{"a shorter SettleWait", func(o *semel.Options) { o.Policy.SettleWait = 2 * time.Second }, 2 * time.Second},
		{"a request's life", func(o *semel.Options) { o.RequestLife = 3 * time.Second }, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTransactor(t)
				o := semel.Options{Policy: semel.Policy{OneCommit: true}}
				c.change(&o)
				g, seen := newGuardWith(t, s, o)
				h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
					time.Sleep(8 * time.Second)
					return paying(w, r, tx)
				}, nil))
				first := serve(h, post("k", `{}`))
				synctest.Wait()
				second := serve(h, post("k", `{}`))
				leaving, leave := context.WithTimeout(t.Context(), time.Second)
				defer leave()
				third := serve(h, post("k", `{}`).WithContext(leaving))
				third.answer()
				if took := third.at.Sub(third.started); took != c.want {
					t.Errorf("the claim of the client that left ended after %v, want its window of %v", took, c.want)
				}
				w := second.answer()
				wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
				if took := second.at.Sub(second.started); took != c.want || w.Header().Get("Retry-After") != "5" {
					t.Errorf("told after %v to retry after %s, want after %v", took, w.Header().Get("Retry-After"), c.want)
				}
				wantAnswer(t, first.answer(), http.StatusCreated, "paid", false)
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", true)
				s.wantEffects("paid")
				if seen.count(event.GaveUp) != 0 || g.Stats().Owed != 0 {
					t.Error("something is owed")
				}
				drained(t, g)
			})
		})
	}
}

// A store that fails before the handler runs: nothing was run, and nothing is left.
func TestOneCommitStoreFails(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("claim: %w", driver.ErrFull)
	unreadable := fmt.Errorf("load: %w", driver.ErrUnreadable)
	for _, c := range []struct {
		name   string
		store  func(*transactor, error)
		err    error
		status int
		code   refusal.Code
		kind   event.Kind
	}{
		{"load", func(s *transactor, err error) { s.load = func() error { return err } }, errDown, 503, refusal.StoreUnavailable, event.StoreError},
		{"load unreadable", func(s *transactor, err error) { s.load = func() error { return err } }, unreadable, 409, refusal.ReplayUnavailable, event.Unreadable},
		{"begin", func(s *transactor, err error) { s.begin = func(context.Context) error { return err } }, errDown, 503, refusal.StoreUnavailable, event.StoreError},
		{"claim", func(s *transactor, err error) { s.claim = func() error { return err } }, errDown, 503, refusal.StoreUnavailable, event.StoreError},
		{"claim without room", func(s *transactor, err error) { s.claim = func() error { return err } }, full, 503, refusal.StoreUnavailable, event.StoreError},
		{"claim unreadable", func(s *transactor, err error) { s.claim = func() error { return err } }, unreadable, 409, refusal.ReplayUnavailable, event.Unreadable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newTransactor(t)
			c.store(s, c.err)
			g, seen := oneCommit(t, s)
			times := 0
			h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { times++ }))
			wantProblem(t, answer(h, post("k", `{}`)), c.status, c.code)
			if times != 0 || seen.count(c.kind) != 1 {
				t.Errorf("run %d times, %d of %s; want 0 and 1", times, seen.count(c.kind), c.kind)
			}
			s.load, s.begin, s.claim = nil, nil, nil
			answer(h, post("k", `{}`))
			if times != 1 {
				t.Errorf("then run %d times, want once", times)
			}
			s.wantEffects()
			drained(t, g)
		})
	}
}

// A handler that works in no transaction of its own is in the operation's all the same: its answer is recorded with the
// commit, or nothing is.
func TestR31_OneCommitWithoutRunTx(t *testing.T) {
	t.Parallel()
	unknownByDecide := func(p *semel.Policy) {
		p.Decide = func(int, http.Header, []byte) semel.Verdict { return semel.VerdictUnknown }
	}
	refused := func(s *transactor) { s.commit = commitRefused }
	lost := func(s *transactor) { s.commit = commitLost }
	unheard := func(s *transactor) {
		s.commit = commitUnheard
	}
	for _, c := range []struct {
		name   string
		change func(*semel.Policy)
		store  func(*transactor)
		status int // of the handler; 0 means that it writes none
		says   func(*semel.Operation)
		code   refusal.Code // of the answer, "" means the handler's
		keeps  bool
		events int // store errors
	}{
		{name: "success", status: 201, keeps: true},
		{name: "nothing written, which means 200", change: func(p *semel.Policy) { p.EmptyOK = true }, keeps: true},
		{name: "a refusal that is kept", status: 404, keeps: true},
		{name: "an error", status: 500, keeps: true},
		{name: "an error where errors are released", change: func(p *semel.Policy) { p.OnError = semel.ReleaseErrors }, status: 500},
		{name: "a refusal that is released", status: 429},
		{name: "released by the handler", status: 201, says: (*semel.Operation).Release},
		{name: "unknown to the route", change: unknownByDecide, status: 201},
		{name: "lost", status: 201, says: func(op *semel.Operation) { op.Lost(errDeclined) }, code: refusal.StoreUnavailable},
		{name: "a commit that is refused", store: refused, status: 201, code: refusal.StoreUnavailable, events: 1},
		{name: "a refusal whose commit is refused", store: refused, status: 404, code: refusal.StoreUnavailable, events: 1},
		{name: "a commit that is lost", store: lost, status: 201, code: refusal.StoreUnavailable, events: 1},
		{name: "a commit whose reply is lost", store: unheard, status: 201, keeps: true, events: 1},
		{name: "a settle that fails", store: func(s *transactor) {
			s.settle = func(driver.Outcome) (bool, error) { return false, errDown }
		}, status: 201, code: refusal.StoreUnavailable, events: 1},
		{name: "a settle that is refused", store: func(s *transactor) {
			s.settle = func(driver.Outcome) (bool, error) { return true, nil }
		}, status: 201, code: refusal.StoreUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newTransactor(t)
			if c.store != nil {
				c.store(s)
			}
			p := semel.Policy{OneCommit: true}
			if c.change != nil {
				c.change(&p)
			}
			g, seen := newGuard(t, s, p)
			times := 0
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				times++
				if c.says != nil {
					c.says(semel.FromContext(r.Context()))
				}
				if c.status > 0 {
					w.WriteHeader(c.status)
					io.WriteString(w, "mine")
				}
			}))
			status, body := c.status, "mine"
			if status == 0 {
				status, body = http.StatusOK, ""
			}
			w := answer(h, post("k", `{}`))
			if c.code != "" {
				wantProblem(t, w, http.StatusServiceUnavailable, c.code)
			} else {
				wantAnswer(t, w, status, body, false)
			}
			drained(t, g)
			if rec := loaded(t, s, "k"); c.keeps != (rec.State == driver.Done) || !c.keeps && rec.State != driver.Absent {
				t.Errorf("the record is %v", rec.State)
			}
			if n := seen.count(event.StoreError); n != c.events || len(seen.results()) != 1 {
				t.Errorf("%d store errors, decisions %v", n, seen.results())
			}
			s.settle, s.commit = nil, nil
			w = answer(h, post("k", `{}`))
			if c.keeps {
				wantAnswer(t, w, status, body, true)
			}
			if (times == 2) == c.keeps {
				t.Errorf("run %d times", times)
			}
			s.wantEffects()
		})
	}
}

// What became of a commit without a reply is asked for with the same claim: it is for the store to say.
func TestCase09_OneCommitAsksWithItsClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		reply error // of the first claim that asks
		asks  int
	}{
		{"there is no record, and no room for one", fmt.Errorf("claim: %w", driver.ErrFull), 1},
		{"no reply again", errDown, 2},
		{"nobody else", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTransactor(t)
				asked := 0
				s.commit = func(func() error) error {
					s.claim = func() error {
						if asked++; asked == 1 {
							return c.reply
						}
						return nil
					}
					return errDown
				}
				g, seen := oneCommit(t, s)
				h := g.Wrap(s.working(paying, nil))
				wantProblem(t, answer(h, post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
				if asked != c.asks {
					t.Errorf("asked %d times, want %d", asked, c.asks)
				}
				if seen.count(event.NotReplayable) != 0 {
					t.Error("reported as not replayable")
				}
				drained(t, g)
				s.commit, s.claim = nil, nil
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
				s.wantEffects("paid")
			})
		})
	}
}

// A store that never says what became of a commit: the client is told that it is pending, and in the end the guard
// gives up, so that Drain returns.
func TestCase09_OneCommitNeverFindsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		s.commit = func(func() error) error {
			s.begin = func(context.Context) error { return errDown }
			return errDown
		}
		p := shortLease(semel.Hold)
		p.OneCommit = true
		g, seen := newGuard(t, s, p)
		start := time.Now()
		wantProblem(t, answer(g.Wrap(s.working(paying, nil)), post("k", `{}`)), http.StatusServiceUnavailable, refusal.OutcomePending)
		if g.Stats().Running != 1 {
			t.Error("the run is over before its end")
		}
		drained(t, g)
		if took := time.Since(start); took != time.Minute || seen.count(event.SettleAbandoned) != 1 || seen.count(event.Fenced) != 0 {
			t.Errorf("given up after %v, %d abandoned, %d fenced", took, seen.count(event.SettleAbandoned), seen.count(event.Fenced))
		}
		s.wantEffects()
	})
}

// A record of a run with a lease, as of another route, means in one-commit mode what it means elsewhere, and costs no
// transaction.
func TestOneCommitMeetsLeasedRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		onLost  semel.LostPolicy
		then    func(t *testing.T, s driver.Store, leased driver.Owner)
		status  int
		code    refusal.Code
		attempt uint32 // of the run that is started; 0 means none
	}{
		{"running", semel.Hold, func(*testing.T, driver.Store, driver.Owner) {}, 409, refusal.InProgress, 0},
		{"lapsed under Hold", semel.Hold, func(*testing.T, driver.Store, driver.Owner) { time.Sleep(time.Minute) }, 409, refusal.OutcomeUnknown, 0},
		{"lapsed under Rerun", semel.Rerun, func(*testing.T, driver.Store, driver.Owner) { time.Sleep(time.Minute) }, 201, "", 2},
		{"released", semel.Rerun, func(t *testing.T, s driver.Store, by driver.Owner) {
			if _, owned, err := s.Settle(t.Context(), keyed("k"), by, driver.Outcome{State: driver.Free}); err != nil || !owned {
				t.Errorf("settle: %v, %v", owned, err)
			}
		}, 201, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTransactor(t)
				leased, _ := newGuard(t, s, semel.Policy{OnLost: c.onLost})
				var by driver.Owner
				var stuck sync.WaitGroup
				release := make(chan struct{})
				stuck.Go(func() {
					answer(leased.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						rec := loaded(t, s, "k")
						by = rec.Owner()
						s.extends(func(func() (bool, error)) (bool, error) { return false, errDown }) // its process hangs
						<-release
					})), post("k", `{}`))
				})
				synctest.Wait()
				c.then(t, s, by)
				g := leased.Route(semel.Policy{OneCommit: true, OnLost: c.onLost})
				w := answer(g.Wrap(s.working(paying, nil)), post("k", `{}`))
				if c.attempt == 0 {
					wantProblem(t, w, c.status, c.code)
					if s.began() != 0 {
						t.Error("a transaction was begun")
					}
				} else {
					wantAnswer(t, w, c.status, "paid", false)
					if rec := loaded(t, s, "k"); rec.Attempt != c.attempt || rec.Fence <= by.Fence {
						t.Errorf("attempt %d, fence %d after %d", rec.Attempt, rec.Fence, by.Fence)
					}
				}
				close(release)
				stuck.Wait()
				drained(t, g)
			})
		})
	}
}

// A request waits for a leased run as on other routes.
func TestR28_OneCommitWaitsForALeasedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		leased, _ := newGuard(t, s, semel.Policy{})
		g := leased.Route(semel.Policy{OneCommit: true, Wait: time.Minute})
		first := serve(leased.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(3 * time.Second)
			io.WriteString(w, "leased")
		})), post("k", `{}`))
		synctest.Wait()
		second := serve(g.Wrap(s.working(paying, nil)), post("k", `{}`))
		wantAnswer(t, first.answer(), http.StatusOK, "leased", false)
		wantAnswer(t, second.answer(), http.StatusOK, "leased", true)
		s.wantEffects()
	})
}

// Keys of one-commit routes count against their principal as others do; what was not recorded is claimed anew.
func TestR60_OneCommitCountsKeys(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	g, _ := newGuardWith(t, s, semel.Options{Policy: semel.Policy{OneCommit: true}, MaxKeys: 2, MaxAttempts: 3})
	h := g.Wrap(s.working(paying, nil))
	for i, key := range []string{"a", "b", "a", "b", "a"} {
		wantAnswer(t, answer(h, post(key, `{}`)), http.StatusCreated, "paid", i > 1)
	}
	wantProblem(t, answer(h, post("c", `{}`)), http.StatusTooManyRequests, refusal.TooManyKeys)
	wantProblem(t, answer(h, post("a", `{}`)), http.StatusTooManyRequests, refusal.TooManyAttempts)
	s.wantEffects("paid", "paid")
}

// A job in one-commit mode, with DoTx and without.
func TestR31_DoInOneCommitMode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		store func(*transactor)
		err   error
		lost  bool
		wants error
		state driver.State
	}{
		{"a result", nil, nil, false, nil, driver.Done},
		{"an error", nil, errDeclined, false, errDeclined, driver.Done}, // OnError is Keep, and nothing was rolled back
		{"a final error", nil, semel.Final(errDeclined), false, errDeclined, driver.Done},
		{"lost", nil, nil, true, refusal.StoreUnavailable, driver.Absent},
		{"a commit that is refused", func(s *transactor) { s.commit = commitRefused }, nil, false, refusal.StoreUnavailable, driver.Absent},
		{"a commit that is lost", func(s *transactor) { s.commit = commitLost }, nil, false, refusal.StoreUnavailable, driver.Absent},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newTransactor(t)
			if c.store != nil {
				c.store(s)
			}
			g, _ := oneCommit(t, s)
			got, err := semel.Do(t.Context(), g, theKey, semel.Bytes("pay 7"), func(ctx context.Context) (string, error) {
				if c.lost {
					semel.FromContext(ctx).Lost(errDown)
				}
				return "done", c.err
			})
			if !errors.Is(err, c.wants) || (c.wants == nil) != (err == nil) || (got == "done") != (err == nil) && c.err == nil {
				t.Errorf("got %q, %v; want %v", got, err, c.wants)
			}
			if rec := doKey(t, s); rec.State != c.state {
				t.Errorf("the record is %v, want %v", rec.State, c.state)
			}
			s.wantEffects()
			drained(t, g)
		})
	}
}

// An operation in one-commit mode has one transaction, which holds its claim. Once that is over, there is no other one.
func TestOneCommitHasOneTransaction(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	s.commit = commitRefused
	g, _ := oneCommit(t, s)
	h := g.Wrap(s.working(paying, func(_ http.ResponseWriter, r *http.Request, _ error) {
		if err := semel.RunTx(r.Context(), s, func(context.Context, driver.Tx) error {
			t.Error("it has run")
			return nil
		}); !errors.Is(err, driver.ErrRolledBack) {
			t.Errorf("RunTx: %v", err)
		}
	}))
	wantProblem(t, answer(h, post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
	if s.began() != 1 {
		t.Errorf("%d transactions", s.began())
	}
	s.wantEffects()
	drained(t, g)
}

// Nothing leaves before the commit, of an event stream neither, and a connection is not handed over, whether or not the
// handler works in the transaction.
func TestR31_R38_OneCommitHoldsStreams(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	g, _ := oneCommit(t, s)
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	w := httptest.NewRecorder()
	h := g.Wrap(http.HandlerFunc(func(live http.ResponseWriter, _ *http.Request) {
		if _, _, err := live.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack: %v", err)
		}
		live.Header().Set("Content-Type", "text/event-stream")
		for range 2 {
			if _, err := io.WriteString(live, "data: 1\n\n"); err != nil {
				t.Errorf("write: %v", err)
			}
			if err := http.NewResponseController(live).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
		if w.Flushed || w.Body.Len() > 0 {
			t.Error("a part has left before the commit")
		}
	}))
	h.ServeHTTP(hijackable{w, server}, post("k", `{}`))
	wantAnswer(t, w, http.StatusOK, "data: 1\n\ndata: 1\n\n", false)
	wantAnswer(t, answer(h, post("k", `{}`)), http.StatusOK, "data: 1\n\ndata: 1\n\n", true)
}
