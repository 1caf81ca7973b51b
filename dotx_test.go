package semel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

// doTx pays 7 in a transaction, or fails with err.
func doTx(ctx context.Context, g *semel.Guard, s *transactor, times *int, err error) (receipt, error) {
	return semel.DoTx(ctx, g, s, theKey, semel.Bytes("pay 7"), func(_ context.Context, tx driver.Tx) (receipt, error) {
		*times++
		effect(tx, "paid")
		if err != nil {
			return receipt{ID: "dropped"}, err
		}
		return receipt{ID: "r1", Amount: 7}, nil
	})
}

func TestR31_DoTxCommitsResultAndEffects(t *testing.T) {
	t.Parallel()
	final := semel.Final(&codedError{"limit", "above the limit"})
	for _, c := range []struct {
		name    string
		modes   string
		err     error
		commit  func(execute func() error) error
		wants   []error // what the first error wraps; none means success
		effects int
		repeat  string // runs, replays, or the code of a problem
	}{
		{name: "a result", effects: 1, repeat: replays},
		{name: "an error", err: errDeclined, wants: []error{errDeclined}, repeat: runs},
		{name: "a final error", err: final, wants: []error{final}, repeat: replays},
		{name: "refused", commit: commitRefused, wants: []error{driver.ErrRolledBack}, repeat: runs},
		{name: "refused with a final error", err: final, commit: commitRefused, wants: []error{driver.ErrRolledBack}, repeat: runs},
		{name: "committed, reply lost", commit: commitUnheard, effects: 1, repeat: replays},
		{name: "committed with a final error, reply lost", err: final, commit: commitUnheard, wants: []error{final}, repeat: replays},
		{name: "lost", commit: commitLost, wants: []error{refusal.StoreUnavailable, errDown}, repeat: runs},
	} {
		for _, m := range txModes() {
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				s := newTransactor(t)
				s.commit = c.commit
				g, seen := newGuard(t, s, m.policy)
				times := 0
				got, err := doTx(t.Context(), g, s, &times, c.err)
				want := receipt{ID: "r1", Amount: 7}
				if len(c.wants) > 0 {
					want = receipt{}
				}
				for _, e := range c.wants {
					if !errors.Is(err, e) {
						t.Errorf("the error is %v, want one that wraps %v", err, e)
					}
				}
				if (err == nil) != (len(c.wants) == 0) || !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, %v", got, err)
				}
				s.wantEffects([]string{"paid"}[:c.effects]...)
				if n := len(seen.results()); n != 1 {
					t.Errorf("%d decisions", n)
				}
				s.commit = nil
				got, err = doTx(t.Context(), g, s, &times, c.err)
				if (times == 2) != (c.repeat == runs) {
					t.Errorf("run %d times", times)
				}
				if c.repeat == replays {
					var replay *semel.ReplayedError
					if len(c.wants) > 0 {
						if !errors.As(err, &replay) || replay.Error() != "above the limit" || replay.Code() != "limit" {
							t.Errorf("the repeat got %v", err)
						}
					} else if err != nil || !reflect.DeepEqual(got, want) {
						t.Errorf("the repeat got %+v, %v", got, err)
					}
				}
				drained(t, g)
			})
		}
	}
}

// A derived key leaves a doubt that a rollback does not take away.
func TestR43_DoTxWithADerivedKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		mode   int
		err    error
		lost   bool
		wants  error
		repeat error // nil means that it runs
	}{
		{"an error under Hold", 0, errDeclined, false, errDeclined, &semel.ReplayedError{}},
		{"an error under Rerun", 1, errDeclined, false, errDeclined, nil},
		{"an error in one-commit mode", 2, errDeclined, false, errDeclined, &semel.ReplayedError{}},
		{"lost under Hold", 0, nil, true, refusal.OutcomeUnknown, refusal.OutcomeUnknown},
		{"lost under Rerun", 1, nil, true, refusal.OutcomePending, nil},
		{"lost in one-commit mode", 2, nil, true, refusal.StoreUnavailable, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newTransactor(t)
			if c.lost {
				s.commit = commitLost
			}
			g, _ := newGuard(t, s, txModes()[c.mode].policy)
			times := 0
			do := func() error {
				_, err := semel.DoTx(t.Context(), g, s, theKey, semel.Bytes("pay 7"), func(ctx context.Context, tx driver.Tx) (string, error) {
					times++
					semel.FromContext(ctx).Key("charge")
					return "done", c.err
				})
				return err
			}
			if err := do(); !errors.Is(err, c.wants) {
				t.Errorf("got %v, want %v", err, c.wants)
			}
			s.commit = nil
			err := do()
			var replay *semel.ReplayedError
			switch {
			case (times == 2) != (c.repeat == nil):
				t.Errorf("run %d times; the repeat got %v", times, err)
			case errors.As(c.repeat, &replay):
				if !errors.As(err, &replay) || replay.Error() != errDeclined.Error() {
					t.Errorf("the repeat got %v", err)
				}
			case c.repeat != nil && !errors.Is(err, c.repeat):
				t.Errorf("the repeat got %v, want %v", err, c.repeat)
			}
		})
	}
}

// A function that gives a result although its transaction was rolled back is overruled.
func TestR31_DoOverrulesAResultAfterARollback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		does  func(*semel.Operation)
		wants []error // by mode
		state []driver.State
	}{
		{
			"nothing else", func(*semel.Operation) {},
			[]error{refusal.StoreUnavailable, refusal.StoreUnavailable, refusal.StoreUnavailable},
			[]driver.State{driver.Free, driver.Free, driver.Absent},
		},
		{
			"a derived key", func(op *semel.Operation) { op.Key("charge") },
			[]error{refusal.OutcomeUnknown, refusal.OutcomePending, refusal.StoreUnavailable},
			[]driver.State{driver.Unknown, driver.Free, driver.Absent},
		},
		{
			"lost", func(op *semel.Operation) { op.Lost(errDeclined) },
			[]error{refusal.OutcomeUnknown, refusal.OutcomePending, refusal.StoreUnavailable},
			[]driver.State{driver.Unknown, driver.Free, driver.Absent},
		},
	} {
		for i, m := range txModes() {
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				s := newTransactor(t)
				g, _ := newGuard(t, s, m.policy)
				got, err := semel.Do(t.Context(), g, theKey, semel.Bytes("pay 7"), func(ctx context.Context) (string, error) {
					err := semel.RunTx(ctx, s, func(_ context.Context, tx driver.Tx) error {
						effect(tx, "paid")
						return errDeclined
					})
					if !errors.Is(err, errDeclined) {
						t.Errorf("RunTx: %v", err)
					}
					c.does(semel.FromContext(ctx))
					return "paid all the same", nil
				})
				if got != "" || !errors.Is(err, c.wants[i]) {
					t.Errorf("got %q, %v; want %v", got, err, c.wants[i])
				}
				if rec := doKey(t, s); rec.State != c.state[i] {
					t.Errorf("the record is %v, want %v", rec.State, c.state[i])
				}
				s.wantEffects()
				drained(t, g)
			})
		}
	}
}

// A transaction in Do can't see the result, unless it is DoTx's own.
func TestR31_RunTxInDoHasNoAnswer(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("pay 7"), func(ctx context.Context) (string, error) {
			return "paid", semel.RunTx(ctx, s, func(_ context.Context, tx driver.Tx) error {
				effect(tx, "paid")
				return nil
			})
		})
		if !errors.Is(err, refusal.NoAnswer) {
			t.Errorf("got %v", err)
		}
		s.wantEffects()
	})
}

// Where there is no result, any transaction of the function settles the operation.
func TestR31_RunTxInDoOfNoResultSettles(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		times := 0
		do := func(inTx, after error) error {
			_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("pay 7"), func(ctx context.Context) (struct{}, error) {
				times++
				err := semel.RunTx(ctx, s, func(_ context.Context, tx driver.Tx) error {
					effect(tx, "paid")
					return inTx
				})
				return struct{}{}, errors.Join(err, after)
			})
			return err
		}
		if err := do(errDeclined, nil); !errors.Is(err, errDeclined) {
			t.Errorf("got %v, want that it was rolled back", err)
		}
		s.wantEffects()
		for range 2 {
			if err := do(nil, errDeclined); err != nil {
				t.Errorf("got %v, want what was committed", err)
			}
		}
		s.wantEffects("paid")
		if times != 2 {
			t.Errorf("it has run %d times, want 2", times)
		}
	})
}

// A result whose type is an interface may hold nothing.
func TestDoTxWithInterfacesThatHoldNothing(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		for i := range 2 {
			got, err := semel.DoTx(t.Context(), g, s, theKey, semel.Bytes("any"), func(context.Context, driver.Tx) (any, error) { return nil, nil })
			if got != nil || err != nil {
				t.Errorf("call %d: %v, %v", i, got, err)
			}
			other := semel.Key{Scope: "alice", Operation: "pay", Value: "other"}
			got, err = semel.DoTx(t.Context(), g, s, other, semel.Bytes("any"), func(context.Context, driver.Tx) (any, error) { return "x", nil })
			if got != "x" || err != nil {
				t.Errorf("call %d: %v, %v", i, got, err)
			}
		}
		if s.began() != 2 {
			t.Errorf("%d transactions, want one for each key", s.began())
		}
	})
}

// A result that can't be stored is given to its own caller; repeats are told that there is none. One that throws when
// it is encoded rolls all back.
func TestR31_DoTxResultsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, seen := newGuard(t, s, m.policy)
		for i, want := range []error{nil, refusal.ReplayUnavailable} {
			_, err := semel.DoTx(t.Context(), g, s, theKey, semel.Bytes("x"), func(_ context.Context, tx driver.Tx) (func(), error) {
				effect(tx, "paid")
				return func() {}, nil
			})
			if !errors.Is(err, want) {
				t.Errorf("call %d: %v, want %v", i, err, want)
			}
		}
		s.wantEffects("paid")
		if seen.count(event.NotReplayable) != 1 {
			t.Errorf("%d reported as not replayable", seen.count(event.NotReplayable))
		}
		throws := func() (v any) {
			defer func() { v = recover() }()
			semel.DoTx(t.Context(), g, s, semel.Key{Scope: "alice", Operation: "pay", Value: "other"}, semel.Bytes("x"), func(_ context.Context, tx driver.Tx) (json.Marshaler, error) { //nolint:errcheck // it throws
				effect(tx, "dropped")
				return thrower{}, nil
			})
			return nil
		}
		if v := throws(); v != "unreadable" {
			t.Errorf("threw %v", v)
		}
		s.wantEffects("paid")
		drained(t, g)
	})
}

// thrower throws when it is encoded.
type thrower struct{}

func (thrower) MarshalJSON() ([]byte, error) { panic("unreadable") }

// What fn throws is thrown by DoTx, and was rolled back.
func TestR32_DoTxThatThrows(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, seen := newGuard(t, s, m.policy)
		func() {
			defer func() {
				if v := recover(); v != "gone" {
					t.Errorf("threw %v", v)
				}
			}()
			semel.DoTx(t.Context(), g, s, theKey, semel.Bytes("pay 7"), func(_ context.Context, tx driver.Tx) (receipt, error) { //nolint:errcheck // it throws
				effect(tx, "paid")
				panic("gone")
			})
		}()
		times := 0
		if _, err := doTx(t.Context(), g, s, &times, nil); err != nil || times != 1 {
			t.Errorf("the repeat: %v, run %d times", err, times)
		}
		s.wantEffects("paid")
		if seen.count(event.Panic) != 1 {
			t.Errorf("%d panics", seen.count(event.Panic))
		}
	})
}

// The caller leaves in the middle: the transaction commits, and a repeat gets its result. So it does if its commit gets
// no reply for long.
func TestCase09_DoTxGoesOnWithoutItsCaller(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		for _, m := range txModes() {
			t.Run(fmt.Sprint(m.name, "/", silent), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					m, s := m.brief(), newTransactor(t)
					start := time.Now()
					reply := func() error {
						if silent && time.Since(start) < 20*time.Second {
							return errDown
						}
						return nil
					}
					s.commit = func(execute func() error) error {
						if err := execute(); err != nil {
							return err
						}
						return reply()
					}
					s.asked = func(context.Context, driver.Outcome) error { return reply() }
					s.begin = func(context.Context) error {
						if s.began() == 0 {
							return nil
						}
						return reply()
					}
					g, _ := newGuard(t, s, m.policy)
					ctx, leave := context.WithCancel(t.Context())
					_, err := semel.DoTx(ctx, g, s, theKey, semel.Bytes("pay 7"), func(_ context.Context, tx driver.Tx) (receipt, error) {
						effect(tx, "paid")
						if !silent {
							leave()
						}
						time.Sleep(time.Second)
						return receipt{ID: "r1", Amount: 7}, nil
					})
					leave()
					if !errors.Is(err, refusal.OutcomePending) {
						t.Errorf("got %v", err)
					}
					drained(t, g)
					times := 0
					got, err := doTx(t.Context(), g, s, &times, nil)
					if want := (receipt{ID: "r1", Amount: 7}); err != nil || !reflect.DeepEqual(got, want) || times != 0 {
						t.Errorf("the repeat got %+v, %v, run %d times", got, err, times)
					}
					s.wantEffects("paid")
				})
			})
		}
	}
}

// A job that runs unprotected within the operation of another one is not a part of that: its transaction is a plain
// one.
func TestDoTxBypassedWithinAnOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTransactor(t)
		outer, _ := newGuard(t, s, semel.Policy{})
		broken := &faulty{Store: memstore.New()}
		broken.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, errDown
		}
		inner, _ := newGuard(t, broken, semel.Policy{FailOpen: true})
		h := outer.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, err := semel.DoTx(r.Context(), inner, s, theKey, semel.Bytes("x"), func(ctx context.Context, tx driver.Tx) (string, error) {
				effect(tx, "job")
				if semel.FromContext(ctx) != nil {
					t.Error("the job has an operation")
				}
				return "done", nil
			})
			if got != "done" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			s.working(paying, nil).ServeHTTP(w, r)
		}))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		s.wantEffects("job", "paid")
		drained(t, outer, inner)
	})
}

// Without a guard's operation, an unprotected job's transaction is a plain one too.
func TestDoTxBypassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, errDown
		}
		s := transactions(t, f)
		g, _ := newGuard(t, s, semel.Policy{FailOpen: true})
		times := 0
		if got, err := doTx(t.Context(), g, s, &times, nil); err != nil || got.ID != "r1" {
			t.Errorf("got %+v, %v", got, err)
		}
		s.wantEffects("paid")
		if _, err := doTx(t.Context(), g, s, &times, errDeclined); !errors.Is(err, errDeclined) {
			t.Errorf("got %v", err)
		}
		s.wantEffects("paid")
		drained(t, g)
	})
}

// A job that returns while its transaction goes on elsewhere ends with it.
func TestR31_ATransactionThatAJobLeavesBehind(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		begun, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		var wg sync.WaitGroup
		go func() {
			_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("pay 7"), func(ctx context.Context) (string, error) {
				wg.Go(func() {
					err := semel.RunTx(ctx, s, func(_ context.Context, tx driver.Tx) error {
						close(begun)
						<-goOn
						effect(tx, "paid")
						return errDeclined
					})
					if !errors.Is(err, errDeclined) {
						t.Errorf("RunTx: %v", err)
					}
				})
				<-begun
				return "paid", nil
			})
			done <- err
		}()
		<-begun
		select {
		case err := <-done:
			t.Fatalf("ended with %v while the transaction is under way", err)
		case <-time.After(50 * time.Millisecond): // nothing tells that the function has returned
		}
		close(goOn)
		if err := <-done; !errors.Is(err, refusal.StoreUnavailable) {
			t.Errorf("got %v", err)
		}
		wg.Wait()
		s.wantEffects()
		drained(t, g)
	})
}
