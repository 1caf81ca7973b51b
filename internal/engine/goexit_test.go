package engine

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
)

func exits() error {
	runtime.Goexit()
	return nil
}

// A store that ends the goroutine of a settle takes nobody's turn with it: the settle is sent again, and so are those of
// the principal's other large answers.
func TestR60_ASettleThatEndsItsGoroutineGivesItsTurnBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		r, _ := newRoute(s, testPolicy(driver.Hold), nil)
		run := started(t, r, 1)
		s.on("settle", exits)
		large := driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 200, Body: make([]byte, answersAtOnce)}}
		run.HandlerEnded()
		apart(func() { run.Settle(large) })
		s.on("settle", nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if rec, err := s.Load(t.Context(), run.ID()); err != nil || rec.State != driver.Done || rec.Response == nil {
			t.Errorf("the record is %v, %v", rec.State, err)
		}
		if len(r.answers.busy) != 0 {
			t.Errorf("%d principals have turns", len(r.answers.busy))
		}
		drained(t, r.Engine)
	})
}

// A run whose claim is given back ends, though the store ends the goroutine that gives it back.
func TestR32_ARunThatIsNotStartedEndsWhateverTheStoreDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		r, _ := newRoute(s, testPolicy(driver.Hold), nil)
		run := started(t, r, 1)
		s.on("settle", exits)
		apart(run.Unstarted)
		s.on("settle", nil)
		drained(t, r.Engine)
		if rec, err := s.Load(t.Context(), run.ID()); err != nil || rec.State != driver.Free || rec.Attempt != 0 {
			t.Errorf("the record is %v after %d attempts, %v", rec.State, rec.Attempt, err)
		}
	})
}

// A step that may have been saved, by a store that has ended the goroutine, is read again before its name is used again.
func TestR84_AStepWhoseSaveEndedItsGoroutineIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		r, _ := newRoute(s, testPolicy(driver.Rerun), nil)
		run := started(t, r, 1)
		if _, found, err := run.TakeStep(t.Context(), "charge"); found || err != nil {
			t.Fatalf("found %t, %v", found, err)
		}
		s.on("savestep", exits)
		apart(func() {
			defer run.GiveStepBack("charge")
			run.SaveStep("charge", []byte("first")) //nolint:errcheck // it does not return
		})
		s.on("savestep", nil)
		result, found, err := run.TakeStep(t.Context(), "charge")
		if string(result) != "first" || !found || err != nil {
			t.Errorf("got %q, %t, %v; want the saved result", result, found, err)
		}
		run.HandlerEnded()
		run.Settle(driver.Outcome{State: driver.Done})
		drained(t, r.Engine)
	})
}

// A oneCommit is a store of one transaction at a time, for one operation.
type oneCommit struct {
	*script
	settle, rollback func()
	committed        bool
}

func (s *oneCommit) Begin(context.Context) (driver.Tx, error) { return &oneTx{store: s}, nil }

func (s *oneCommit) BeginClaim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Tx, driver.Record, bool, error) {
	if err := s.ask("claim"); err != nil {
		return nil, driver.Record{}, false, err
	}
	rec, err := s.Store.Load(ctx, id)
	if err == nil && rec.State == driver.Absent {
		rec = driver.Record{State: driver.Running, Fingerprint: c.Fingerprint, Token: c.Token, Fence: 1, Attempt: 1}
		return &oneTx{store: s, claim: c}, rec, true, nil
	}
	return nil, rec, false, err
}

type oneTx struct {
	store *oneCommit
	claim driver.Claim
}

func (x *oneTx) Mark(context.Context) error   { return nil }
func (x *oneTx) Undo(context.Context) error   { return nil }
func (x *oneTx) Commit(context.Context) error { return nil }
func (x *oneTx) Rollback()                    { call(x.store.rollback) }

func (x *oneTx) Settle(ctx context.Context, id driver.ID, _ driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if x.store.committed {
		rec, _, err := x.store.Store.Claim(ctx, id, x.claim)
		if err != nil {
			return rec, false, err
		}
		if _, _, err := x.store.Store.Settle(ctx, id, rec.Owner(), o); err != nil {
			return rec, false, err
		}
	}
	call(x.store.settle)
	rec, err := x.store.Store.Load(ctx, id)
	return rec, true, err
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// A one-commit run whose commit has ended its goroutine ends, with what has become of the commit.
func TestR31_ACommitThatEndsItsGoroutineIsAskedAbout(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &oneCommit{script: newScript(), settle: runtime.Goexit, committed: committed}
			p := testPolicy(driver.Hold)
			p.OneCommit = true
			r, seen := newRoute(s, p, nil)
			run := started(t, r, 1)
			run.HandlerEnded()
			apart(func() { run.Settle(driver.Outcome{State: driver.Done}) })
			drained(t, r.Engine)
			if s.count("claim") != 2 || seen.count(event.SettleAbandoned) != 0 {
				t.Errorf("committed %t: asked %d times, abandoned %d", committed, s.count("claim")-1, seen.count(event.SettleAbandoned))
			}
		})
	}
}

// What a rollback throws is told, and the client that has gone is refused as ever.
func TestR31_ARollbackThatThrowsIsTold(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	s := &oneCommit{script: newScript(), rollback: func() { panic("rollback") }}
	s.on("claim", func() error { leave(); return nil })
	p := testPolicy(driver.Hold)
	p.OneCommit = true
	r, seen := newRoute(s, p, nil)
	var rec driver.Record
	run, refused := r.Claim(ctx, askFor(1), &rec)
	if run != nil || refused == nil || !errors.Is(refused, context.Canceled) || !refused.Shut {
		t.Errorf("got %v, %v", run, refused)
	}
	if seen.count(event.StoreError) != 1 {
		t.Errorf("told %d errors, want the rollback's", seen.count(event.StoreError))
	}
	drained(t, r.Engine)
}

// A store that ends the goroutine of a renewal, or of a commit, does not end the renewals of a run whose handler goes on
// elsewhere: nobody else may run the operation meanwhile.
func TestR47_ARunWhoseTransactionEndedItsGoroutineKeepsItsLease(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(s *script, run *Run){
		"renewal": func(s *script, run *Run) {
			s.on("extend", exits)
			run.lease.pause() //nolint:errcheck // it does not return
		},
		"commit": func(s *script, run *Run) {
			run.Attach(nil, keepingFace{})
			run.Transact(context.Background(), exitingTransactor{s}, func(context.Context, driver.Tx) error { return nil }) //nolint:errcheck // it does not return
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript()
			p := testPolicy(driver.Rerun)
			r, _ := newRoute(s, p, nil)
			run := started(t, r, 1)
			apart(func() { act(s, run) })
			s.on("extend", nil)
			time.Sleep(p.Lease + time.Second)
			synctest.Wait()
			rec, err := s.Load(t.Context(), run.ID())
			if got := rec.Reads(driver.Rerun); got != driver.ReadsRunning || err != nil {
				t.Errorf("%s: it reads as %v, %v; want running", name, got, err)
			}
			if err := run.Context().Err(); err != nil {
				t.Errorf("%s: the handler was told to stop: %v", name, err)
			}
			run.HandlerEnded()
			run.Settle(run.Decide(Ending{}).Outcome)
			drained(t, r.Engine)
		})
	}
}

// A keepingFace has always an answer to keep.
type keepingFace struct{}

func (keepingFace) Mark() error { return nil }
func (keepingFace) Rewind(bool) {}
func (keepingFace) Ended()      {}
func (keepingFace) Freeze(error) (driver.Outcome, bool, error) {
	return driver.Outcome{State: driver.Done}, true, nil
}

// An exitingTransactor ends the goroutine that commits.
type exitingTransactor struct{ *script }

func (exitingTransactor) Begin(context.Context) (driver.Tx, error) {
	return &oneTx{store: &oneCommit{script: newScript(), settle: runtime.Goexit}}, nil
}

func (exitingTransactor) BeginClaim(context.Context, driver.ID, driver.Claim) (driver.Tx, driver.Record, bool, error) {
	return nil, driver.Record{}, false, errors.ErrUnsupported
}
