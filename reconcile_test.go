package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
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

// seizable is a memory store that can be made to fail, seizing included.
type seizable struct {
	*faulty
	memory *memstore.Store
	seize  func(context.Context, driver.ID, driver.Token) (driver.Record, error)
}

func newSeizable() *seizable {
	memory := memstore.New()
	return &seizable{faulty: &faulty{Store: memory}, memory: memory}
}

func (s *seizable) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	if s.seize != nil {
		return s.seize(ctx, id, t)
	}
	return s.memory.Seize(ctx, id, t)
}

func (s *seizable) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	return s.memory.Forget(ctx, id, by)
}

// audited is a seizable store with an audit trail.
type audited struct {
	*seizable
	mu    sync.Mutex
	trail []driver.AuditEntry
	fails int // entries refused from now on
}

func (a *audited) Audit(ctx context.Context, e driver.AuditEntry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.fails > 0 {
		a.fails--
		return errDown
	}
	a.trail = append(a.trail, e)
	return nil
}

func (a *audited) AuditTrail(_ context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.trail) - 1; i >= 0; i-- {
		if id != nil && a.trail[i].ID != *id {
			continue
		}
		if limit--; !yield(a.trail[i]) || limit == 0 {
			break
		}
	}
	return nil
}

// results returns the results in the trail, the oldest first.
func (a *audited) results() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.trail {
		list = append(list, e.Result)
	}
	return list
}

// paymentID is the identity of post("k", …).
var paymentID = semel.Identify(nil, semel.KindHTTP, "alice", "k")

// found returns an ask that always finds f, and counts.
func found(f semel.Finding) (ask func(context.Context, semel.Inquiry) (semel.Finding, error), asked *int) {
	asked = new(int)
	return func(context.Context, semel.Inquiry) (semel.Finding, error) {
		*asked++
		return f, nil
	}, asked
}

// paid is a finding: the operation was done, with an answer of its own.
func paid() semel.Finding {
	return semel.Finding{Found: semel.FoundDone, Reason: "in the books", Answer: &driver.Response{
		Status: http.StatusCreated,
		Header: http.Header{"Location": {"/payments/7"}, "Link": {"<a>", "<b>, <c>"}, "Content-Type": {"text/plain"}},
		Body:   []byte("payment 7"),
	}}
}

var never = semel.Finding{Found: semel.FoundNever, Reason: "not in the books"}

// lost leaves the operation of post("k", `{}`) unknown: its handler panics under Hold.
func lost(t *testing.T, g *semel.Guard) {
	t.Helper()
	func() {
		defer func() { recover() }() //nolint:errcheck // the handler's own
		answer(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("lost") })), post("k", `{}`))
	}()
}

// reconciled fails unless Reconcile succeeds with the given reading.
func reconciled(t *testing.T, g *semel.Guard, want driver.Reading, ask func(context.Context, semel.Inquiry) (semel.Finding, error)) {
	t.Helper()
	if got, err := g.Reconcile(t.Context(), paymentID, ask); got != want || err != nil {
		t.Errorf("reconciled: it reads as %v, %v; want %v", got, err, want)
	}
}

// still fails unless the record is what it was.
func still(t *testing.T, s driver.Store, want driver.Record) {
	t.Helper()
	got := recordOf(t, s, paymentID)
	got.Now = want.Now
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the record became\n%+v, was\n%+v", got, want)
	}
}

func TestR52_R75a_AnUnknownOperationIsSettledByAsking(t *testing.T) {
	t.Parallel()
	hold := shortLease(semel.Hold)
	for _, origin := range []struct {
		name string
		make func(t *testing.T, s *memstore.Store, g *semel.Guard)
	}{
		{"its handler panicked", func(t *testing.T, _ *memstore.Store, g *semel.Guard) { lost(t, g) }},
		{"its process died", func(t *testing.T, s *memstore.Store, _ *semel.Guard) {
			dying := &mortal{Store: s}
			g, _ := newGuard(t, dying, hold)
			answer(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { dying.dead.Store(true) })), post("k", `{}`))
			drained(t, g)
		}},
		{"released under Rerun, asked for under Hold", func(t *testing.T, s *memstore.Store, _ *semel.Guard) {
			g, _ := newGuard(t, s, shortLease(semel.Rerun))
			lost(t, g)
		}},
	} {
		for _, c := range []struct {
			name   string
			f      semel.Finding
			err    error
			reads  driver.Reading
			status int
			body   string
			replay bool
		}{
			{"done: that answer is replayed", paid(), nil, driver.ReadsDone, 201, "payment 7", true},
			{"done, but nobody knows the answer", semel.Finding{Found: semel.FoundDone}, nil, driver.ReadsDone, 409, string(refusal.ReplayUnavailable), false},
			{"never: the next request runs", never, nil, driver.ReadsFree, 201, "payment 1", false},
			{"nothing", semel.Finding{}, nil, driver.ReadsUnknown, 409, string(refusal.OutcomeUnknown), false},
			{"a finding that does not exist", semel.Finding{Found: 9}, nil, driver.ReadsUnknown, 409, string(refusal.OutcomeUnknown), false},
			{"an error, whatever is found with it", never, errDown, driver.ReadsUnknown, 409, string(refusal.OutcomeUnknown), false},
		} {
			t.Run(origin.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					g, _ := newGuard(t, store, hold)
					origin.make(t, store, g)
					before := recordOf(t, store, paymentID)

					var q semel.Inquiry
					reads, err := g.Reconcile(t.Context(), paymentID, func(_ context.Context, asked semel.Inquiry) (semel.Finding, error) {
						q = asked
						return c.f, c.err
					})
					if reads != c.reads || !errors.Is(err, c.err) || c.err == nil && err != nil {
						t.Errorf("it reads as %v, %v; want %v, %v", reads, err, c.reads, c.err)
					}
					want := semel.Inquiry{
						ID: paymentID, Fence: before.Fence + 1, Attempt: 1, Operation: "POST /payments",
						Correlation: before.Correlation, Started: before.Started.Time(),
					}
					if q != want {
						t.Errorf("asked about %+v, want %+v", q, want)
					}
					var l ledger
					w := answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`))
					if c.status == 201 {
						wantAnswer(t, w, c.status, c.body, c.replay)
					} else {
						wantProblem(t, w, c.status, refusal.Code(c.body))
					}
					drained(t, g)
				})
			})
		}
	}
}

func TestR75a_NothingElseIsAskedAbout(t *testing.T) {
	t.Parallel()
	claim := func(t *testing.T, s *memstore.Store, onLost semel.LostPolicy, lease time.Duration) driver.Owner {
		t.Helper()
		rec, owned, err := s.Claim(t.Context(), paymentID, driver.Claim{Token: driver.NewToken(), Lease: lease, Retention: time.Hour, OnLost: onLost})
		if err != nil || !owned {
			t.Fatalf("claim: %v, %v", owned, err)
		}
		return rec.Owner()
	}
	settle := func(t *testing.T, s *memstore.Store, by driver.Owner, o driver.Outcome) {
		t.Helper()
		if _, owned, err := s.Settle(t.Context(), paymentID, by, o); err != nil || !owned {
			t.Fatalf("settle: %v, %v", owned, err)
		}
	}
	for _, c := range []struct {
		name string
		make func(*testing.T, *memstore.Store)
		want driver.Reading
	}{
		{"absent", func(*testing.T, *memstore.Store) {}, driver.ReadsAbsent},
		{"running, its lease valid", func(t *testing.T, s *memstore.Store) { claim(t, s, semel.Hold, time.Minute) }, driver.ReadsRunning},
		{"done", func(t *testing.T, s *memstore.Store) {
			settle(t, s, claim(t, s, semel.Hold, time.Minute), driver.Outcome{State: driver.Done})
		}, driver.ReadsDone},
		{"begun, its lease over", func(t *testing.T, s *memstore.Store) {
			by := claim(t, s, semel.Hold, time.Minute)
			if owned, err := s.Extend(t.Context(), paymentID, by, driver.Extension{Lease: time.Second, Begun: true}); err != nil || !owned {
				t.Fatalf("extend: %v, %v", owned, err)
			}
			time.Sleep(2 * time.Second)
		}, driver.ReadsDone},
		{"released", func(t *testing.T, s *memstore.Store) {
			settle(t, s, claim(t, s, semel.Hold, time.Minute), driver.Outcome{State: driver.Free})
		}, driver.ReadsFree},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				c.make(t, store)
				before := recordOf(t, store, paymentID)
				g, _ := newGuard(t, store, shortLease(semel.Hold))
				ask, asked := found(never)
				reconciled(t, g, c.want, ask)
				if *asked != 0 {
					t.Error("it was asked about")
				}
				still(t, store, before)
			})
		})
	}
	t.Run("lapsed, under Rerun", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			claim(t, store, semel.Rerun, time.Second)
			time.Sleep(2 * time.Second)
			before := recordOf(t, store, paymentID)
			g, _ := newGuard(t, store, shortLease(semel.Rerun))
			ask, asked := found(never)
			if reconciled(t, g, driver.ReadsFree, ask); *asked != 0 {
				t.Error("it was asked about")
			}
			still(t, store, before)
		})
	})
}

func TestR75a_Case02_TheLateOwnerChangesNothingOnceItIsAskedAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		lease := shortLease(semel.Hold)
		rec, _, err := store.Claim(t.Context(), paymentID, driver.Claim{Token: driver.NewToken(), Lease: lease.Lease, Retention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lease.Lease)
		g, _ := newGuard(t, store, lease)
		reconciled(t, g, driver.ReadsDone, func(ctx context.Context, q semel.Inquiry) (semel.Finding, error) {
			held := recordOf(t, store, paymentID)
			if held.State != driver.Unknown || held.Fence != q.Fence || q.Fence <= rec.Fence {
				t.Errorf("asked with fence %d about %+v, want it unknown under a fence above %d", q.Fence, held, rec.Fence)
			}
			if owned, err := store.Extend(ctx, paymentID, rec.Owner(), driver.Extension{}); owned || err != nil {
				t.Errorf("the late owner extends: %v, %v", owned, err)
			}
			for _, o := range []driver.Outcome{{State: driver.Done, Response: &driver.Response{Status: 200}}, {State: driver.Free}, {State: driver.Unknown}} {
				if _, owned, err := store.Settle(ctx, paymentID, rec.Owner(), o); owned || err != nil {
					t.Errorf("the late owner settles %v: %v, %v", o.State, owned, err)
				}
			}
			still(t, store, held)
			return paid(), nil
		})
		if got := recordOf(t, store, paymentID); string(got.Response.Body) != "payment 7" {
			t.Errorf("kept %q, want what was found", got.Response.Body)
		}
	})
}

func TestR75a_OfSeveralWhoDecideOneWins(t *testing.T) {
	t.Parallel()
	operator := func(t *testing.T, s *memstore.Store, o driver.Outcome) {
		t.Helper()
		token := driver.NewToken()
		rec, err := s.Seize(t.Context(), paymentID, token)
		if err != nil || rec.Token != token {
			t.Fatalf("the operator's seize: %v", err)
		}
		if _, owned, err := s.Settle(t.Context(), paymentID, rec.Owner(), o); err != nil || !owned {
			t.Fatalf("the operator's settle: %v, %v", owned, err)
		}
	}
	done := driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 200, Body: []byte("decided")}}

	t.Run("the late owner settles before the seize", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSeizable()
			rec, _, err := s.memory.Claim(t.Context(), paymentID, driver.Claim{Token: driver.NewToken(), Lease: time.Second, Retention: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			s.load = func(ctx context.Context, id driver.ID) (driver.Record, error) {
				read, err := s.memory.Load(ctx, id)
				if _, owned, err := s.memory.Settle(ctx, id, rec.Owner(), done); err != nil || !owned {
					t.Errorf("the late owner's settle: %v, %v", owned, err)
				}
				return read, err
			}
			g, _ := newGuard(t, s, shortLease(semel.Hold))
			ask, asked := found(never)
			if reconciled(t, g, driver.ReadsDone, ask); *asked != 0 {
				t.Error("it was asked about")
			}
			if got := recordOf(t, s.memory, paymentID); string(got.Response.Body) != "decided" {
				t.Errorf("kept %q, want the late owner's", got.Response.Body)
			}
		})
	})
	t.Run("an operator decides while it is asked about", func(t *testing.T) {
		t.Parallel()
		s := &audited{seizable: newSeizable()}
		g, _ := newGuard(t, s, semel.Policy{})
		lost(t, g)
		var decided driver.Record
		reconciled(t, g, driver.ReadsDone, func(context.Context, semel.Inquiry) (semel.Finding, error) {
			operator(t, s.memory, done)
			decided = recordOf(t, s.memory, paymentID)
			return never, nil
		})
		still(t, s.memory, decided)
		if got := s.results(); len(got) != 2 || !strings.HasPrefix(got[1], "refused") {
			t.Errorf("audited %q, want that it was asked about and refused", got)
		}
	})
	t.Run("an operator has seized it and not decided", func(t *testing.T) {
		t.Parallel()
		s := memstore.New()
		g, _ := newGuard(t, s, semel.Policy{})
		lost(t, g)
		var seized driver.Record
		reconciled(t, g, driver.ReadsUnknown, func(ctx context.Context, _ semel.Inquiry) (semel.Finding, error) {
			var err error
			if seized, err = s.Seize(ctx, paymentID, driver.NewToken()); err != nil {
				t.Error(err)
			}
			return never, nil
		})
		still(t, s, seized)
	})
	t.Run("another reconcile asks meanwhile", func(t *testing.T) {
		t.Parallel()
		s := memstore.New()
		g, _ := newGuard(t, s, semel.Policy{})
		other, _ := newGuard(t, s, semel.Policy{})
		lost(t, g)
		reconciled(t, g, driver.ReadsDone, func(context.Context, semel.Inquiry) (semel.Finding, error) {
			reconciled(t, other, driver.ReadsDone, func(context.Context, semel.Inquiry) (semel.Finding, error) { return paid(), nil })
			return never, nil
		})
		if got := recordOf(t, s, paymentID); got.State != driver.Done || string(got.Response.Body) != "payment 7" {
			t.Errorf("it is %v with %+v, want the first decision", got.State, got.Response)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		t.Parallel()
		s := memstore.New()
		g, _ := newGuard(t, s, semel.Policy{})
		lost(t, g)
		const n = 20
		var (
			all     sync.WaitGroup
			barrier sync.WaitGroup
		)
		barrier.Add(n)
		for i := range n {
			all.Go(func() {
				barrier.Done()
				barrier.Wait()
				reads, err := g.Reconcile(t.Context(), paymentID, func(context.Context, semel.Inquiry) (semel.Finding, error) {
					return semel.Finding{Found: semel.FoundDone, Answer: &driver.Response{Status: 200, Body: fmt.Append(nil, i)}}, nil
				})
				// One that is overtaken sees it still unknown, or already done.
				if err != nil || reads != driver.ReadsDone && reads != driver.ReadsUnknown {
					t.Errorf("it reads as %v, %v", reads, err)
				}
			})
		}
		all.Wait()
		first := recordOf(t, s, paymentID)
		ask, asked := found(never)
		if reconciled(t, g, driver.ReadsDone, ask); *asked != 0 || first.State != driver.Done {
			t.Errorf("it is %v, and was asked about %d times more", first.State, *asked)
		}
	})
}

func TestR75a_LostRepliesAreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(s *audited, fail func() bool)
	}{
		{"load", func(s *audited, fail func() bool) {
			s.load = func(ctx context.Context, id driver.ID) (driver.Record, error) {
				if fail() {
					return driver.Record{}, errDown
				}
				return s.memory.Load(ctx, id)
			}
		}},
		{"seize, not executed", func(s *audited, fail func() bool) {
			s.seize = func(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
				if fail() {
					return driver.Record{}, errDown
				}
				return s.memory.Seize(ctx, id, t)
			}
		}},
		{"seize, executed", func(s *audited, fail func() bool) {
			s.seize = func(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
				rec, err := s.memory.Seize(ctx, id, t)
				if fail() {
					return driver.Record{}, errDown
				}
				return rec, err
			}
		}},
		{"settle, not executed", func(s *audited, fail func() bool) {
			s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
				if fail() {
					return driver.Record{}, false, errDown
				}
				return s.memory.Settle(ctx, id, by, o)
			}
		}},
		{"settle, executed", func(s *audited, fail func() bool) {
			s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
				rec, owned, err := s.memory.Settle(ctx, id, by, o)
				if fail() {
					return driver.Record{}, false, errDown
				}
				return rec, owned, err
			}
		}},
		{"audit", func(s *audited, _ func() bool) { s.fails = 2 }},
	} {
		for _, f := range []struct {
			found semel.Finding
			reads driver.Reading
			last  string
		}{{paid(), driver.ReadsDone, "done"}, {never, driver.ReadsFree, "never"}} {
			t.Run(c.name+"/"+f.last, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := &audited{seizable: newSeizable()}
					g, seen := newGuard(t, s, shortLease(semel.Hold))
					lost(t, g)
					failures := 0
					c.make(s, func() bool { failures++; return failures <= 2 })
					ask, asked := found(f.found)
					reconciled(t, g, f.reads, ask)
					if *asked != 1 {
						t.Errorf("asked %d times, want once", *asked)
					}
					if n := seen.count(event.StoreError); n != 2 {
						t.Errorf("%d failures reported, want 2", n)
					}
					if got, want := s.results(), []string{"asked", f.last}; !reflect.DeepEqual(got, want) {
						t.Errorf("audited %q, want %q", got, want)
					}
				})
			})
		}
	}
}

func TestR75a_ASettleThatIsNotAcknowledgedInTimeLeavesItUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSeizable()
		g, _ := newGuard(t, s, shortLease(semel.Hold))
		lost(t, g)
		sent := 0
		s.set(func(f *faulty) {
			f.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
				sent++
				return driver.Record{}, false, errDown
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ask, asked := found(paid())
		reads, err := g.Reconcile(ctx, paymentID, ask)
		if reads != driver.ReadsUnknown || !errors.Is(err, errDown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it reads as %v, %v; want unknown, and why", reads, err)
		}
		if sent < 10 {
			t.Errorf("settled %d times within 10 s, want it repeated", sent)
		}
		s.set(func(f *faulty) { f.settle = nil })
		if reconciled(t, g, driver.ReadsDone, ask); *asked != 2 {
			t.Errorf("asked %d times, want a second time", *asked)
		}
	})
}

func TestR75a_AQuestionThatOutlastsItsContextLeavesItUnknown(t *testing.T) {
	t.Parallel()
	s := &audited{seizable: newSeizable()}
	g, _ := newGuard(t, s, semel.Policy{})
	lost(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, f := range []semel.Finding{never, paid()} {
		reads, err := g.Reconcile(ctx, paymentID, func(context.Context, semel.Inquiry) (semel.Finding, error) {
			cancel()
			return f, nil
		})
		if reads != driver.ReadsUnknown || !errors.Is(err, context.Canceled) {
			t.Errorf("it reads as %v, %v; want unknown, cancelled", reads, err)
		}
		if rec := recordOf(t, s.memory, paymentID); rec.State != driver.Unknown {
			t.Errorf("it became %v", rec.State)
		}
	}
}

// The answer is in this process, on its way to a store that was away for longer than the lease.
func TestR75a_ARunThatStillSettlesHereIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSeizable()
		p := shortLease(semel.Hold)
		g, _ := newGuard(t, s, p)
		down := func(f *faulty) {
			f.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
				return driver.Record{}, false, errDown
			}
			f.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, errDown }
		}
		s.set(down)
		var l ledger
		h := g.Wrap(http.HandlerFunc(l.pay))
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusServiceUnavailable, refusal.OutcomePending)
		time.Sleep(2 * p.Lease)
		ask, asked := found(never)
		reconciled(t, g, driver.ReadsUnknown, ask)
		s.set(func(f *faulty) { f.settle, f.extend = nil, nil })
		drained(t, g)
		if *asked != 0 {
			t.Error("it was asked about")
		}
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)

		// Once its settle is abandoned nobody here knows better any more.
		s.set(down)
		key := semel.Identify(nil, semel.KindHTTP, "alice", "k2")
		answer(h, post("k2", `{}`))
		drained(t, g)
		s.set(func(f *faulty) { f.settle, f.extend = nil, nil })
		if reads, err := g.Reconcile(t.Context(), key, ask); reads != driver.ReadsFree || err != nil || *asked != 1 {
			t.Errorf("it reads as %v, %v, asked %d times", reads, err, *asked)
		}
	})
}

// A handler that ignores its deadline is not waited for for ever.
func TestR75a_ARunThatDoesNotEndIsAskedAboutInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := shortLease(semel.Hold)
		g, seen := newGuard(t, nil, p)
		s := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * p.MaxRun)
			w.WriteHeader(http.StatusAccepted)
		})), post("k", `{}`))
		synctest.Wait()
		ask, asked := found(paid())
		for after, want := range []struct {
			reads driver.Reading
			asked int
		}{{driver.ReadsRunning, 0}, {driver.ReadsUnknown, 0}, {driver.ReadsDone, 1}} {
			time.Sleep(time.Duration(after) * (p.MaxRun + 2*p.Lease)) // soon after its start, past MaxRun, past twice that
			if reconciled(t, g, want.reads, ask); *asked != want.asked {
				t.Errorf("look %d: asked %d times, want %d", after, *asked, want.asked)
			}
		}
		wantAnswer(t, s.answer(), http.StatusCreated, "payment 7", true)
		if seen.count(event.Fenced) != 1 {
			t.Error("the late owner was not fenced")
		}
	})
}

func TestR75a_R87_WhatWasDecidedIsAuditedWhoeverHasLeft(t *testing.T) {
	t.Parallel()
	s := &audited{seizable: newSeizable()}
	g, _ := newGuard(t, s, semel.Policy{})
	lost(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.set(func(f *faulty) {
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			defer cancel()
			return s.memory.Settle(ctx, id, by, o)
		}
	})
	ask, _ := found(never)
	if reads, err := g.Reconcile(ctx, paymentID, ask); reads != driver.ReadsFree || err != nil {
		t.Errorf("it reads as %v, %v", reads, err)
	}
	if got, want := s.results(), []string{"asked", "never"}; !reflect.DeepEqual(got, want) {
		t.Errorf("audited %q, want %q", got, want)
	}
}

func TestR35_R75a_WhatIsKeptOfAnAnswerThatWasFound(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("0123456789"), 2000)
	for _, c := range []struct {
		name   string
		policy semel.Policy
		answer driver.Response
		header http.Header // of the replay, besides what the guard adds
		body   string
	}{
		{
			"what belongs to one exchange is left out",
			semel.Policy{KeyHeaders: []string{"Order-Key", "Idempotency-Key"}},
			driver.Response{Status: 201, Body: []byte("x"), Header: http.Header{
				"Content-Type": {"text/plain"}, "Location": {"/a", "/b"}, "X-Own": {"1, 2", "3"}, "Connection": {"X-Hop"}, "X-Hop": {"1"},
				"Set-Cookie": {"a=b"}, "Date": {"Thu, 01 Jan 1970 00:00:00 GMT"}, "Server": {"s"}, "Www-Authenticate": {"Basic"},
				"Ratelimit-Remaining": {"1"}, "Access-Control-Allow-Origin": {"https://other.example"}, "X-Request-Id": {"1"}, "Traceparent": {"1"},
				"Content-Length": {"77"}, "Transfer-Encoding": {"chunked"}, "X-Correlation-Id": {"theirs"}, "Order-Key": {"theirs"},
				"Idempotent-Replayed": {"true"}, "Strict-Transport-Security": {"max-age=1"}, "Alt-Svc": {"h3"},
			}},
			http.Header{"Content-Type": {"text/plain"}, "Location": {"/a", "/b"}, "X-Own": {"1, 2", "3"}},
			"x",
		},
		{
			"only what the route lists",
			semel.Policy{StoreHeaders: []string{"Location"}},
			driver.Response{Status: 201, Body: []byte("x"), Header: http.Header{"Location": {"/a"}, "X-Own": {"1"}}},
			http.Header{"Location": {"/a"}},
			"x",
		},
		{
			"a large body, compressed in the store",
			semel.Policy{},
			driver.Response{Status: 200, Body: large, Header: http.Header{"Content-Type": {"text/plain"}}},
			http.Header{"Content-Type": {"text/plain"}},
			string(large),
		},
		{
			"one that is encoded already",
			semel.Policy{},
			driver.Response{Status: 200, Body: large, Header: http.Header{"Content-Type": {"text/plain"}, "Content-Encoding": {"br"}}},
			http.Header{"Content-Type": {"text/plain"}, "Content-Encoding": {"br"}},
			string(large),
		},
		{"no content", semel.Policy{}, driver.Response{Status: 204, Body: []byte("x")}, http.Header{}, ""},
		{"an error that is final", semel.Policy{}, driver.Response{Status: 402, Header: http.Header{"Content-Type": {"text/plain"}}}, http.Header{"Content-Type": {"text/plain"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			g, _ := newGuard(t, s, c.policy)
			lost(t, g)
			ask, _ := found(semel.Finding{Found: semel.FoundDone, Answer: &c.answer})
			reconciled(t, g, driver.ReadsDone, ask)
			w := answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`))
			wantAnswer(t, w, c.answer.Status, c.body, true)
			got := w.Result().Header
			for _, own := range []string{"Idempotent-Replayed", "Idempotency-Key", "Idempotency-Expires", "Cache-Control", "X-Correlation-Id", "Content-Length"} {
				got.Del(own)
			}
			if !reflect.DeepEqual(got, c.header) {
				t.Errorf("replayed %v, want %v", got, c.header)
			}
			if rec := recordOf(t, s, paymentID); (rec.Response.Codec != "") != (c.answer.Header.Get("Content-Encoding") == "" && len(c.body) > 8<<10) {
				t.Errorf("kept in codec %q", rec.Response.Codec)
			}
		})
	}
}

func TestCase20_R75a_AnAnswerThatWasFoundAndCantBeKept(t *testing.T) {
	t.Parallel()
	t.Run("above the limit", func(t *testing.T) {
		t.Parallel()
		g, seen := newGuard(t, nil, semel.Policy{MaxResponseBody: 8})
		lost(t, g)
		ask, _ := found(paid())
		reconciled(t, g, driver.ReadsDone, ask)
		wantProblem(t, answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`)), http.StatusConflict, refusal.ReplayUnavailable)
		if seen.count(event.NotReplayable) != 1 {
			t.Error("nobody was told")
		}
	})
	t.Run("the store is full", func(t *testing.T) {
		t.Parallel()
		s := newSeizable()
		g, seen := newGuard(t, s, semel.Policy{})
		lost(t, g)
		s.set(func(f *faulty) {
			f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
				if o.Response != nil {
					return driver.Record{}, false, driver.ErrFull
				}
				return s.memory.Settle(ctx, id, by, o)
			}
		})
		ask, _ := found(paid())
		reconciled(t, g, driver.ReadsDone, ask)
		wantProblem(t, answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`)), http.StatusConflict, refusal.ReplayUnavailable)
		if seen.count(event.NotReplayable) != 1 {
			t.Error("nobody was told")
		}
	})
	for name, a := range map[string]driver.Response{
		"encoded for the store": {Status: 200, Codec: "gzip", Body: []byte("x")},
		"not a final status":    {Status: 103},
		"no status at all":      {Status: 1000},
		"a result without JSON": {Body: []byte("{")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			g, _ := newGuard(t, s, semel.Policy{})
			lost(t, g)
			ask, _ := found(semel.Finding{Found: semel.FoundDone, Answer: &a})
			if reads, err := g.Reconcile(t.Context(), paymentID, ask); reads != driver.ReadsUnknown || err == nil {
				t.Errorf("it reads as %v, %v; want it unknown, and why", reads, err)
			}
			if rec := recordOf(t, s, paymentID); rec.State != driver.Unknown {
				t.Errorf("it became %v", rec.State)
			}
		})
	}
}

func TestR75a_AResultOfDoCanBeFoundToo(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	key := semel.Key{Scope: "alice", Operation: "pay", Value: "k"}
	job := func() (string, error) {
		return semel.Do(t.Context(), g, key, semel.Bytes("x"), func(ctx context.Context) (string, error) {
			semel.FromContext(ctx).Lost(errDown)
			return "", nil
		})
	}
	if _, err := job(); !errors.Is(err, refusal.OutcomeUnknown) {
		t.Fatalf("the job ended with %v, want it lost", err)
	}
	id := semel.Identify(nil, semel.KindDo, key.Scope, key.Value)
	ask, _ := found(semel.Finding{Found: semel.FoundDone, Answer: &driver.Response{Body: []byte(`"receipt 7"`)}})
	if reads, err := g.Reconcile(t.Context(), id, ask); reads != driver.ReadsDone || err != nil {
		t.Fatalf("it reads as %v, %v", reads, err)
	}
	if got, err := job(); got != "receipt 7" || err != nil {
		t.Errorf("replayed %q, %v; want what was found", got, err)
	}
}

func TestR75a_R87_EachDecisionIsInTheAuditTrail(t *testing.T) {
	t.Parallel()
	s := &audited{seizable: newSeizable()}
	g, _ := newGuard(t, s, semel.Policy{})
	lost(t, g)
	nothing, asked := found(semel.Finding{Reason: "not known yet"})
	for range 3 {
		reconciled(t, g, driver.ReadsUnknown, nothing)
	}
	if got, want := s.results(), []string{"asked", "later"}; *asked != 3 || !reflect.DeepEqual(got, want) {
		t.Errorf("asked %d times, audited %q; want %q once", *asked, got, want)
	}
	ask, _ := found(paid())
	reconciled(t, g, driver.ReadsDone, ask)
	want := []driver.AuditEntry{
		{Result: "asked", Reason: "its outcome is unknown"},
		{Result: "later", Reason: "not known yet"},
		{Result: "done", Reason: "in the books"},
	}
	for i := range want {
		want[i].ID, want[i].Operation, want[i].Actor, want[i].Action = paymentID, "POST /payments", "reconcile", "reconcile"
	}
	if !reflect.DeepEqual(s.trail, want) {
		t.Errorf("audited\n%+v, want\n%+v", s.trail, want)
	}
}

func TestR87_NothingIsAskedThatCantBeAudited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &audited{seizable: newSeizable(), fails: 1000}
		g, _ := newGuard(t, s, shortLease(semel.Hold))
		lost(t, g)
		ask, asked := found(never)
		reads, err := g.Reconcile(t.Context(), paymentID, ask)
		if reads != driver.ReadsUnknown || !errors.Is(err, errDown) || *asked != 0 {
			t.Errorf("it reads as %v, %v, asked %d times; want it left alone", reads, err, *asked)
		}
		s.fails = 0
		reads, err = g.Reconcile(t.Context(), paymentID, func(context.Context, semel.Inquiry) (semel.Finding, error) {
			s.fails = 1000
			return never, nil
		})
		if reads != driver.ReadsFree || !errors.Is(err, errDown) {
			t.Errorf("it reads as %v, %v; want what was decided, and that it is not audited", reads, err)
		}
	})
}

func TestReconcileNeedsAStoreThatCanBeSeized(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, &faulty{Store: memstore.New()}, semel.Policy{})
	lost(t, g)
	ask, asked := found(never)
	if reads, err := g.Reconcile(t.Context(), paymentID, ask); reads != driver.ReadsUnknown || !errors.Is(err, errors.ErrUnsupported) || *asked != 0 {
		t.Errorf("it reads as %v, %v, asked %d times", reads, err, *asked)
	}
}

func TestR41a_AnUnreadableRecordIsNotReconciled(t *testing.T) {
	t.Parallel()
	s := newSeizable()
	loads := 0
	s.load = func(context.Context, driver.ID) (driver.Record, error) {
		loads++
		return driver.Record{}, driver.ErrUnreadable
	}
	g, seen := newGuard(t, s, semel.Policy{})
	ask, asked := found(never)
	reads, err := g.Reconcile(t.Context(), paymentID, ask)
	if reads != driver.ReadsUnknown || !errors.Is(err, driver.ErrUnreadable) || *asked != 0 || loads != 1 || seen.count(event.Unreadable) != 1 {
		t.Errorf("it reads as %v, %v, asked %d times, read %d times, %v", reads, err, *asked, loads, seen.list)
	}
}
