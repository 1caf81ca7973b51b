package semel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"runtime"
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

// receipt is a result of Do.
type receipt struct {
	ID     string            `json:"id"`
	Amount int64             `json:"amount"`
	Meta   map[string]string `json:"meta,omitempty"`
	Next   *receipt          `json:"next,omitempty"`
}

var theKey = semel.Key{Scope: "alice", Operation: "pay", Value: "k"}

// doKey returns the record of theKey.
func doKey(t *testing.T, s driver.Store) driver.Record {
	t.Helper()
	return recordOf(t, s, semel.Identify(nil, semel.KindDo, "alice", "k"))
}

func TestR26_DoRunsOnceForAHundredCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := memstore.New(), &ledger{}
		p := semel.Policy{Wait: time.Minute, MaxWaiters: 200}
		var guards []*semel.Guard
		for range 2 { // as two processes
			g, _ := newGuardWith(t, s, semel.Options{Policy: p, MaxAttempts: -1})
			guards = append(guards, g)
		}
		want := receipt{ID: "r1", Amount: 7, Meta: map[string]string{"a": "b"}, Next: &receipt{ID: "r2"}}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				got, err := semel.Do(t.Context(), guards[i%2], theKey, semel.Bytes("pay 7"), func(context.Context) (receipt, error) {
					l.add()
					time.Sleep(3 * time.Second)
					return want, nil
				})
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("Do returns %+v, %v; want %+v", got, err, want)
				}
			})
		}
		wg.Wait()
		checkEffects(t, l, 1)
		checkRecords(t, s, 1)
	})
}

func TestDoGivesEveryRepeatTheFirstResult(t *testing.T) {
	t.Parallel()
	t.Run("struct", func(t *testing.T) {
		t.Parallel()
		repeats(t, receipt{ID: "r", Meta: map[string]string{"ü": "\x00<&"}})
	})
	t.Run("string", func(t *testing.T) { t.Parallel(); repeats(t, "text") })
	t.Run("empty string", func(t *testing.T) { t.Parallel(); repeats(t, "") })
	t.Run("zero", func(t *testing.T) { t.Parallel(); repeats(t, 0) })
	t.Run("false", func(t *testing.T) { t.Parallel(); repeats(t, false) })
	t.Run("large number", func(t *testing.T) { t.Parallel(); repeats(t, int64(math.MaxInt64)) })
	t.Run("nil pointer", func(t *testing.T) { t.Parallel(); repeats[*receipt](t, nil) })
	t.Run("nil slice", func(t *testing.T) { t.Parallel(); repeats[[]int](t, nil) })
	t.Run("empty slice", func(t *testing.T) { t.Parallel(); repeats(t, []int{}) })
	t.Run("nil any", func(t *testing.T) { t.Parallel(); repeats[any](t, nil) })
	t.Run("nothing", func(t *testing.T) { t.Parallel(); repeats(t, struct{}{}) })
	t.Run("bytes", func(t *testing.T) { t.Parallel(); repeats(t, []byte{0, 1, 255}) })
	t.Run("raw JSON null", func(t *testing.T) { t.Parallel(); repeats(t, json.RawMessage("null")) })
	t.Run("large enough to be compressed", func(t *testing.T) { t.Parallel(); repeats(t, strings.Repeat("x", 100_000)) })
}

// repeats runs Do three times with a result (case 21: also one that is easily taken for none).
func repeats[T any](t *testing.T, want T) {
	g, seen := newGuard(t, nil, semel.Policy{})
	runs := 0
	for range 3 {
		got, err := semel.Do(t.Context(), g, theKey, semel.JSON(7), func(context.Context) (T, error) {
			runs++
			return want, nil
		})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Do returns %#v, %v; want %#v", got, err, want)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
	if got := seen.results(); !slices.Equal(got, []event.Result{"executed", "replayed", "replayed"}) {
		t.Errorf("decided %v", got)
	}
}

// TestCase21_DoResults names the rows of TestDoGivesEveryRepeatTheFirstResult that look like no result.
func TestCase21_DoStoresResultsThatLookLikeNone(t *testing.T) {
	t.Parallel()
	repeats[*receipt](t, nil)
	repeats(t, 0)
	repeats(t, "")
	repeats(t, false)
}

// codedError is an error with a code.
type codedError struct{ code, text string }

func (e *codedError) Error() string { return e.text }
func (e *codedError) Code() string  { return e.code }

func TestDoReplaysAFinalErrorWithItsMessageAndCode(t *testing.T) {
	t.Parallel()
	declined := &codedError{"card_declined", "the card was declined"}
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		for _, p := range []semel.Policy{{}, {KeepOnlySuccess: true}, {OnError: semel.ReleaseErrors}} {
			p.OnLost = onLost
			g, _ := newGuard(t, nil, p)
			runs := 0
			do := func() (receipt, error) {
				return semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (receipt, error) {
					runs++
					return receipt{ID: "half"}, fmt.Errorf("pay: %w", semel.Final(declined))
				})
			}
			got, err := do()
			if !errors.Is(err, declined) || err.Error() != "pay: the card was declined" || !reflect.DeepEqual(got, receipt{}) {
				t.Errorf("the first call returns %+v, %v", got, err)
			}
			got, err = do()
			var replayed *semel.ReplayedError
			if !errors.As(err, &replayed) || err.Error() != "pay: the card was declined" || replayed.Code() != "card_declined" || !reflect.DeepEqual(got, receipt{}) {
				t.Errorf("the repeat returns %+v, %#v", got, err)
			}
			if runs != 1 {
				t.Errorf("%d runs, want 1", runs)
			}
		}
	}
	if semel.Final(nil) != nil {
		t.Error("Final(nil) is an error")
	}
	var p *semel.Problem
	if err := semel.Final(declined); errors.As(err, &p) {
		t.Error("a final error is a refusal")
	}
}

func TestARunIsToldWhyTheLastOneEnded(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, memstore.New(), semel.Policy{OnError: semel.ReleaseErrors})
	for i, want := range []string{"", "attempt 1", "attempt 2", "attempt 3"} {
		semel.Do(t.Context(), g, theKey, semel.Bytes("pay 7"), func(ctx context.Context) (int, error) { //nolint:errcheck // its error is the next one's
			op := semel.FromContext(ctx)
			if got := op.LastError(); got != want || op.Attempt() != i+1 {
				t.Errorf("run %d: the last error is %q, want %q", op.Attempt(), got, want)
			}
			return 0, fmt.Errorf("attempt %d", op.Attempt())
		})
	}
	var none *semel.Operation
	if none.LastError() != "" {
		t.Error("a nil operation has a last error")
	}
}

func TestAFinalErrorIsKnownUntilItIsReplayed(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, memstore.New(), semel.Policy{})
	for _, final := range []bool{true, false} {
		_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("pay 7"), func(context.Context) (int, error) {
			return 0, fmt.Errorf("pay: %w", semel.Final(errDeclined))
		})
		if semel.IsFinal(err) != final {
			t.Errorf("%v: final is %v, want %v", err, !final, final)
		}
	}
	if semel.IsFinal(nil) || semel.IsFinal(errDeclined) {
		t.Error("an error that nobody has marked is final")
	}
}

func TestR43_DoTreatsAnErrorAsA5xx(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		p    semel.Policy
		kept bool
	}{
		{semel.Policy{OnLost: semel.Hold}, true},
		{semel.Policy{OnLost: semel.Rerun}, false},
		{semel.Policy{OnLost: semel.Hold, OnError: semel.ReleaseErrors}, false},
		{semel.Policy{OnLost: semel.Rerun, OnError: semel.KeepErrors}, true},
		{semel.Policy{OnLost: semel.Hold, KeepOnlySuccess: true}, false},
	} {
		s := memstore.New()
		g, _ := newGuard(t, s, tc.p)
		runs := 0
		do := func() (int, error) {
			return semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(ctx context.Context) (int, error) {
				if runs++; semel.FromContext(ctx).Attempt() != runs {
					t.Errorf("attempt %d of run %d", semel.FromContext(ctx).Attempt(), runs)
				}
				if runs == 1 {
					return 5, errors.New("deadlock detected")
				}
				return 7, nil
			})
		}
		if v, err := do(); v != 0 || err == nil || err.Error() != "deadlock detected" {
			t.Errorf("%+v: the first call returns %d, %v", tc.p, v, err)
		}
		rec := doKey(t, s)
		v, err := do()
		if tc.kept {
			var replayed *semel.ReplayedError
			if rec.State != driver.Done || v != 0 || !errors.As(err, &replayed) || err.Error() != "deadlock detected" || runs != 1 {
				t.Errorf("%+v: %v; the repeat returns %d, %v after %d runs; want the first error", tc.p, rec.State, v, err, runs)
			}
			continue
		}
		if rec.State != driver.Free || rec.Error != "deadlock detected" || v != 7 || err != nil || runs != 2 {
			t.Errorf("%+v: %v %q; the repeat returns %d, %v after %d runs; want a second run", tc.p, rec.State, rec.Error, v, err, runs)
		}
	}
}

func TestR44_AFunctionSaysWhatBecomesOfItsResult(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		onLost semel.LostPolicy
		say    func(*semel.Operation)
		err    error
		state  driver.State
		first  error // sentinel of the first call's error, nil if it is the function's own
	}{
		"released with a value": {semel.Hold, (*semel.Operation).Release, nil, driver.Free, nil},
		"released with error":   {semel.Hold, (*semel.Operation).Release, errors.New("e"), driver.Free, nil},
		"released though final": {semel.Hold, (*semel.Operation).Release, semel.Final(errors.New("e")), driver.Free, nil},
		"kept with error":       {semel.Rerun, (*semel.Operation).Keep, errors.New("e"), driver.Done, nil},
		"lost under Hold":       {semel.Hold, func(o *semel.Operation) { o.Lost(errors.New("upstream")) }, nil, driver.Unknown, refusal.OutcomeUnknown},
		"lost under Rerun":      {semel.Rerun, func(o *semel.Operation) { o.Lost(errors.New("upstream")) }, nil, driver.Free, refusal.OutcomePending},
		"lost, without a cause": {semel.Hold, func(o *semel.Operation) { o.Lost(nil) }, semel.Final(errors.New("e")), driver.Unknown, refusal.OutcomeUnknown},
	} {
		s := memstore.New()
		g, seen := newGuard(t, s, semel.Policy{OnLost: tc.onLost})
		v, err := semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(ctx context.Context) (int, error) {
			tc.say(semel.FromContext(ctx))
			return 7, tc.err
		})
		if got := doKey(t, s).State; got != tc.state {
			t.Errorf("%s: the record is %v, want %v", name, got, tc.state)
		}
		switch {
		case tc.first != nil:
			if v != 0 || !errors.Is(err, tc.first) {
				t.Errorf("%s: Do returns %d, %v; want %v", name, v, err, tc.first)
			}
		case !errors.Is(err, tc.err) || tc.err == nil && v != 7:
			t.Errorf("%s: Do returns %d, %v", name, v, err)
		}
		if got := len(seen.results()); got != 1 {
			t.Errorf("%s: %d decisions, want 1", name, got)
		}
	}
}

func TestR32_APanicOrGoexitSettlesAndIsThrownAgain(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		throw  func()
		thrown any
	}{
		"panic":  {func() { panic(boom) }, boom},
		"abort":  {func() { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
		"goexit": {func() { runtime.Goexit() }, nil},
		"a nil derefs": {func() { var r *receipt; r.Amount++ }, //nolint:nilness // the dereference is what is tested
			"runtime error: invalid memory address or nil pointer dereference"},
	} {
		for onLost, state := range map[semel.LostPolicy]driver.State{semel.Hold: driver.Unknown, semel.Rerun: driver.Free} {
			s := memstore.New()
			g, seen := newGuard(t, s, semel.Policy{OnLost: onLost})
			var thrown any
			returned := false
			done := make(chan struct{})
			go func() { // Goexit ends its goroutine
				defer close(done)
				defer func() { thrown = recover() }()
				semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) { //nolint:errcheck // it throws
					tc.throw()
					return 1, nil
				})
				returned = true
			}()
			<-done
			if returned {
				t.Errorf("%s: Do returned", name)
			}
			if err, ok := thrown.(runtime.Error); ok {
				thrown = err.Error()
			}
			if thrown != tc.thrown {
				t.Errorf("%s: Do threw %v, want %v", name, thrown, tc.thrown)
			}
			if got := doKey(t, s); got.State != state || got.Error != "the handler did not return" {
				t.Errorf("%s, %v: the record is %v %q, want %v", name, onLost, got.State, got.Error, state)
			}
			if got := seen.results(); !slices.Equal(got, []event.Result{event.Failed}) {
				t.Errorf("%s: decided %v, want failed", name, got)
			}
			if seen.count(event.Panic) != 1 {
				t.Errorf("%s: no event of the panic", name)
			}
			if err := g.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// brokenResult can't be read: it panics when it is marshalled.
type brokenResult struct{}

func (brokenResult) MarshalJSON() ([]byte, error) { panic("broken result") }

// nilError is an error whose nil pointer is not nil, and panics when it is read.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// A result that panics when it is read must not leave its run unsettled: leases would be renewed and Drain wait for
// ever.
func TestR32_AResultThatPanicsWhenItIsReadIsSettled(t *testing.T) {
	t.Parallel()
	for onLost, state := range map[semel.LostPolicy]driver.State{semel.Hold: driver.Unknown, semel.Rerun: driver.Free} {
		for name, do := range map[string]func(g *semel.Guard){
			"value": func(g *semel.Guard) {
				semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (brokenResult, error) { //nolint:errcheck // it throws
					return brokenResult{}, nil
				})
			},
			"error": func(g *semel.Guard) {
				semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) { //nolint:errcheck // it throws
					var e *nilError
					return 1, e
				})
			},
		} {
			s := memstore.New()
			g, seen := newGuard(t, s, semel.Policy{OnLost: onLost})
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: Do does not throw", name)
					}
				}()
				do(g)
			}()
			if err := g.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if got := doKey(t, s).State; got != state {
				t.Errorf("%s, %v: the record is %v, want %v", name, onLost, got, state)
			}
			if got := seen.results(); !slices.Equal(got, []event.Result{event.Failed}) {
				t.Errorf("%s: decided %v, want failed", name, got)
			}
		}
	}
}

// exitingResult ends the goroutine that encodes it, as a failing helper of a test does.
type exitingResult struct{}

func (exitingResult) MarshalJSON() ([]byte, error) {
	runtime.Goexit()
	return nil, nil
}

// Nor must one whose reading ends the goroutine.
func TestR32_AResultThatEndsTheGoroutineIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		g, seen := newGuard(t, s, semel.Policy{})
		ended := make(chan struct{})
		returned := false
		go func() {
			defer close(ended)
			semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (exitingResult, error) { //nolint:errcheck // it does not return
				return exitingResult{}, nil
			})
			returned = true
		}()
		<-ended
		drained(t, g)
		if rec := doKey(t, s); returned || rec.State != driver.Unknown {
			t.Errorf("returned is %t, the record is %v, want the goroutine's end and unknown", returned, rec.State)
		}
		if got := seen.results(); !slices.Equal(got, []event.Result{event.Failed}) {
			t.Errorf("decided %v, want failed", got)
		}
	})
}

// A settle that throws has made nothing durable, also one that only ends its goroutine.
func TestR32_DoThrowsWhatItsSettleThrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memstore.New()}
		store.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
			runtime.Goexit()
			return driver.Record{}, false, nil
		}
		g, _ := newGuard(t, store, semel.Policy{})
		returned, done := false, make(chan any)
		go func() {
			defer func() { done <- recover() }()
			semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) { return 1, nil }) //nolint:errcheck // it does not return
			returned = true
		}()
		if thrown := <-done; thrown != nil || returned {
			t.Errorf("threw %v, returned is %t; want that its goroutine has ended", thrown, returned)
		}
	})
}

func TestDoWithoutAnAnswerThatCanBeStored(t *testing.T) {
	t.Parallel()
	t.Run("not JSON", func(t *testing.T) { t.Parallel(); unstorable(t, semel.Policy{}, math.NaN()) })
	t.Run("a channel", func(t *testing.T) { t.Parallel(); unstorable(t, semel.Policy{OnLost: semel.Rerun}, make(chan int)) })
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		unstorable(t, semel.Policy{MaxResponseBody: 100}, strings.Repeat("x", 100))
	})
}

// unstorable runs Do with a result that its own caller gets, and no other.
func unstorable[T any](t *testing.T, p semel.Policy, value T) {
	s := memstore.New()
	g, seen := newGuard(t, s, p)
	runs := 0
	do := func() (T, error) {
		return semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (T, error) {
			runs++
			return value, nil
		})
	}
	got, err := do()
	if err != nil || fmt.Sprint(got) != fmt.Sprint(value) {
		t.Errorf("the first call returns %v, %v", got, err)
	}
	if _, err = do(); !errors.Is(err, refusal.ReplayUnavailable) {
		t.Errorf("the repeat returns %v, want replay unavailable", err)
	}
	if rec := doKey(t, s); rec.State != driver.Done || rec.Response != nil || runs != 1 {
		t.Errorf("%d runs, the record is %v with answer %v; want one run, done without an answer", runs, rec.State, rec.Response)
	}
	if seen.count(event.NotReplayable) != 1 {
		t.Error("that the answer can't be stored is not reported")
	}
}

func TestAStoredResultOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t, nil, semel.Policy{})
	do := func(v string) (string, error) {
		return semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (string, error) { return v, nil })
	}
	if _, err := do("text"); err != nil {
		t.Fatal(err)
	}
	n, err := semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) {
		t.Error("the function runs again")
		return 1, nil
	})
	if n != 0 || !errors.Is(err, refusal.ReplayUnavailable) {
		t.Errorf("Do returns %d, %v; want replay unavailable", n, err)
	}
	if seen.count(event.StoreError) != 1 {
		t.Error("that the result does not decode is not reported")
	}
}

func TestR16_DoRefusesAnotherRequestUnderTheSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		g, seen := newGuard(t, s, semel.Policy{})
		do := func(request semel.Fingerprinter, d time.Duration) error {
			_, err := semel.Do(t.Context(), g, theKey, request, func(context.Context) (int, error) {
				time.Sleep(d)
				return 1, nil
			})
			return err
		}
		go do(semel.Bytes("first"), 10*time.Second) //nolint:errcheck // it succeeds, see below
		time.Sleep(5 * time.Second)
		before := recordBytes(t, doKey(t, s))
		if err := do(semel.Bytes("other"), 0); !errors.Is(err, refusal.KeyReused) {
			t.Errorf("while running: %v, want key reused", err)
		}
		if err := do(semel.Bytes("first"), 0); !errors.Is(err, refusal.InProgress) {
			t.Errorf("while running: %v, want in progress", err)
		} else if p := problemOf(err); p.RetryAfter != 5*time.Second || !p.Retryable {
			t.Errorf("Retry-After is %v, want the age of the run, 5s", p.RetryAfter)
		}
		if after := recordBytes(t, doKey(t, s)); string(before) != string(after) {
			t.Error("a refusal changed the record")
		}
		time.Sleep(10 * time.Second)
		for _, other := range []semel.Fingerprinter{semel.Bytes("other"), semel.Bytes(""), semel.Bytes(nil), semel.JSON("first")} {
			if err := do(other, 0); !errors.Is(err, refusal.KeyReused) {
				t.Errorf("when done: %v, want key reused", err)
			}
		}
		if err := do(semel.Bytes("first"), 0); err != nil {
			t.Errorf("the first request, repeated: %v", err)
		}
		want := []event.Result{"mismatch", "in_progress", "executed", "mismatch", "mismatch", "mismatch", "mismatch", "replayed"}
		if got := seen.results(); !slices.Equal(got, want) {
			t.Errorf("decided %v, want %v", got, want)
		}
	})
}

func problemOf(err error) *semel.Problem {
	var p *semel.Problem
	if !errors.As(err, &p) {
		return &semel.Problem{}
	}
	return p
}

func TestCase14_R13_AnotherOperationIsNotGivenTheResult(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	do := func(p semel.Policy, v string) (string, string, error) {
		var derived string
		got, err := semel.Do(t.Context(), g.Route(p), semel.Key{Scope: "alice", Value: "k"}, semel.Bytes("7"), func(ctx context.Context) (string, error) {
			derived = semel.FromContext(ctx).Key("ledger")
			return v, nil
		})
		return got, derived, err
	}
	if got, _, err := do(semel.Policy{Operation: "charge"}, "charged"); got != "charged" || err != nil {
		t.Errorf("the first returns %q, %v", got, err)
	}
	if got, _, err := do(semel.Policy{Operation: "refund"}, "refunded"); !errors.Is(err, refusal.KeyReused) {
		t.Errorf("another operation returns %q, %v; want key reused", got, err)
	}
	got, first, err := do(semel.Policy{Operation: "charge", PerOperation: true}, "charged")
	if got != "charged" || err != nil || first == "" {
		t.Errorf("by operation, the first returns %q, %v", got, err)
	}
	got, second, err := do(semel.Policy{Operation: "refund", PerOperation: true}, "refunded")
	if got != "refunded" || err != nil || second == first {
		t.Errorf("by operation, another returns %q, %v, derived keys %s and %s", got, err, first, second)
	}
}

func TestR10_DoAndHTTPNeverMeetNorDoPrincipals(t *testing.T) {
	t.Parallel()
	s, l := memstore.New(), &ledger{}
	g, _ := newGuard(t, s, semel.Policy{})
	derived := map[string]string{}
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		derived[semel.FromContext(r.Context()).Key("x")] = "http"
		l.pay(w, r)
	}))
	checkRun(t, answer(h, post("k", `{}`)))
	for _, key := range []semel.Key{theKey, {Scope: "bob", Operation: "pay", Value: "k"}, {Scope: "alice", Operation: "pay", Value: "k2"}, {Scope: "al", Operation: "pay", Value: "icek"}} {
		n, err := semel.Do(t.Context(), g, key, semel.Bytes(`{}`), func(ctx context.Context) (int, error) {
			derived[semel.FromContext(ctx).Key("x")] = fmt.Sprint(key)
			return l.add(), nil
		})
		if err != nil || n != l.count() {
			t.Errorf("%v: Do returns %d, %v", key, n, err)
		}
	}
	checkEffects(t, l, 5)
	checkRecords(t, s, 5)
	if len(derived) != 5 {
		t.Errorf("derived keys %v, want five", derived)
	}
}

func TestDoRefusesWhatItCanNotIdentify(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, seen := newGuard(t, s, semel.Policy{KeyFormat: semel.KeyFormat{MaxLength: 10, Strict: true}})
	for _, tc := range []struct {
		key     semel.Key
		request semel.Fingerprinter
		want    error
		text    string
	}{
		{semel.Key{Operation: "pay", Value: "k"}, semel.Bytes("r"), refusal.ScopeInvalid, "the scope is empty"},
		{semel.Key{Scope: "alice", Operation: "pay"}, semel.Bytes("r"), refusal.KeyInvalid, "empty"},
		{semel.Key{Scope: "alice", Operation: "pay", Value: `"k"`}, semel.Bytes("r"), refusal.KeyInvalid, "is not allowed"},
		{semel.Key{Scope: "alice", Operation: "pay", Value: "k\x00POST"}, semel.Bytes("r"), refusal.KeyInvalid, "byte 0x00"},
		{semel.Key{Scope: "alice", Operation: "pay", Value: "12345678901"}, semel.Bytes("r"), refusal.KeyInvalid, "longer than 10"},
		{theKey, semel.JSON(make(chan int)), refusal.RequestUnreadable, "could not be read"},
	} {
		_, err := semel.Do(t.Context(), g, tc.key, tc.request, func(context.Context) (int, error) {
			t.Errorf("%+v: the function runs", tc.key)
			return 1, nil
		})
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%+v: %v, want %v with %q", tc.key, err, tc.want, tc.text)
		}
		if got := seen.last(); got.ID != (driver.ID{}) || got.Result != event.Refused {
			t.Errorf("%+v: the event is %+v, want a refusal without an id", tc.key, got)
		}
	}
	checkRecords(t, s, 0)
}

func TestR29_WhoeverStopsWaitingForDoIsToldItGoesOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		p   semel.Policy
		ctx func(context.Context) (context.Context, context.CancelFunc)
	}{
		"cancelled": {semel.Policy{}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 2*time.Second)
		}},
		"patience": {semel.Policy{Patience: 2 * time.Second}, context.WithCancel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, l := memstore.New(), &ledger{}
				g, seen := newGuard(t, s, tc.p)
				type valueKey struct{}
				ctx, cancel := tc.ctx(context.WithValue(t.Context(), valueKey{}, "kept"))
				defer cancel()
				do := func(ctx context.Context) (int, error) {
					return semel.Do(ctx, g, theKey, semel.Bytes("r"), func(ctx context.Context) (int, error) {
						time.Sleep(10 * time.Second)
						if ctx.Err() != nil || ctx.Value(valueKey{}) != "kept" {
							t.Errorf("the function's context: %v, value %v", ctx.Err(), ctx.Value(valueKey{}))
						}
						return l.add(), nil
					})
				}
				start := time.Now()
				_, err := do(ctx)
				if !errors.Is(err, refusal.OutcomePending) || time.Since(start) != 2*time.Second {
					t.Errorf("after %v Do returns %v, want outcome pending after 2s", time.Since(start), err)
				}
				if p := problemOf(err); !p.Retryable || p.RetryAfter != time.Second {
					t.Errorf("the refusal is %+v, want retryable after 1s", p)
				}
				if _, err := do(t.Context()); !errors.Is(err, refusal.InProgress) {
					t.Errorf("meanwhile a repeat returns %v, want in progress", err)
				}
				if err := g.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				if got, err := do(t.Context()); got != 1 || err != nil {
					t.Errorf("then a repeat returns %d, %v; want the first result", got, err)
				}
				checkEffects(t, l, 1)
				if got := seen.results(); !slices.Equal(got, []event.Result{"failed", "in_progress", "replayed"}) {
					t.Errorf("decided %v", got)
				}
			})
		})
	}
}

// A panic that nobody waits for any more is not lost: the event says what was thrown.
func TestR32_APanicAfterTheCallerLeftIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, seen := newGuard(t, nil, semel.Policy{Patience: time.Second})
		_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) {
			time.Sleep(2 * time.Second)
			panic("too late")
		})
		if !errors.Is(err, refusal.OutcomePending) {
			t.Errorf("Do returns %v, want outcome pending", err)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := seen.last(); e.Kind != event.Panic || e.Err == nil || !strings.HasPrefix(e.Err.Error(), "panic: too late\n") {
			t.Errorf("the last event is %+v, want the panic", e)
		}
	})
}

func TestR28_DoWaitsNoLongerThanPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, semel.Policy{Wait: time.Minute, Patience: 2 * time.Second})
		do := func() error {
			_, err := semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) {
				time.Sleep(10 * time.Second)
				return 1, nil
			})
			return err
		}
		go do() //nolint:errcheck // it is told that its outcome is pending
		synctest.Wait()
		start := time.Now()
		if err := do(); !errors.Is(err, refusal.InProgress) || time.Since(start) != 2*time.Second {
			t.Errorf("after %v a repeat returns %v, want in progress after 2s", time.Since(start), err)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCase06_DoTellsWhenItsOutcomeIsNotDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		g, _ := newGuard(t, s, semel.Policy{})
		s.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
			return driver.Record{}, false, errors.New("down")
		}
		runs := 0
		do := func() (int, error) {
			return semel.Do(t.Context(), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) {
				runs++
				return runs, nil
			})
		}
		if n, err := do(); n != 0 || !errors.Is(err, refusal.OutcomePending) {
			t.Errorf("Do returns %d, %v; want outcome pending", n, err)
		}
		s.set(func(f *faulty) { f.settle = nil })
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := do(); n != 1 || err != nil {
			t.Errorf("then Do returns %d, %v; want the first result", n, err)
		}
	})
}

// The client of a late owner gets what the record says, never the late owner's own result.
func TestCase02_R48_ALateOwnerOfDoReturnsTheRecordsResult(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		second func(*semel.Operation) (int, error) // the run that took over
		want   int
		is     error
		result event.Result
		late   func(*semel.Operation) // what the late owner says of its own
	}{
		"done":            {func(*semel.Operation) (int, error) { return 2, nil }, 2, nil, event.Replayed, nil},
		"done, late lost": {func(*semel.Operation) (int, error) { return 2, nil }, 2, nil, event.Replayed, func(o *semel.Operation) { o.Lost(errors.New("x")) }},
		"final error": {
			func(*semel.Operation) (int, error) { return 0, semel.Final(errStoreDown) }, 0, &semel.ReplayedError{}, event.Replayed, nil,
		},
		"free": {
			func(o *semel.Operation) (int, error) { o.Release(); return 0, nil }, 0, refusal.InProgress, event.InProgress, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				cut := &faulty{Store: store}
				cut.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) {
					return false, errors.New("cut off")
				}
				late, seen := newGuard(t, cut, shortLease(semel.Rerun))
				next, _ := newGuard(t, store, shortLease(semel.Rerun))
				done := make(chan struct{})
				go func() {
					defer close(done)
					n, err := semel.Do(t.Context(), late, theKey, semel.Bytes("r"), func(ctx context.Context) (int, error) {
						if tc.late != nil {
							tc.late(semel.FromContext(ctx))
						}
						time.Sleep(20 * time.Second) // deaf to its context
						return 1, nil
					})
					var replayed *semel.ReplayedError
					switch {
					case n != tc.want:
						t.Errorf("the late owner gets %d, want %d", n, tc.want)
					case errors.As(tc.is, &replayed):
						if !errors.As(err, &replayed) {
							t.Errorf("the late owner gets %v, want the stored error", err)
						}
					case !errors.Is(err, tc.is):
						t.Errorf("the late owner gets %v, want %v", err, tc.is)
					}
				}()
				time.Sleep(10 * time.Second)
				semel.Do(t.Context(), next, theKey, semel.Bytes("r"), func(ctx context.Context) (int, error) { //nolint:errcheck // seen in the record
					op := semel.FromContext(ctx)
					if op.Attempt() != 2 {
						t.Errorf("attempt %d took over, want 2", op.Attempt())
					}
					return tc.second(op)
				})
				before := recordBytes(t, doKey(t, store))
				<-done
				if after := recordBytes(t, doKey(t, store)); string(before) != string(after) {
					t.Error("the late owner changed the record")
				}
				if got := seen.results(); !slices.Equal(got, []event.Result{tc.result}) {
					t.Errorf("decided %v, want %v", got, tc.result)
				}
				if seen.count(event.Fenced) != 1 {
					t.Error("that it was fenced is not reported")
				}
			})
		})
	}
}

// When an operator has forgotten the operation, the key may be another request's by the time the late owner ends.
func TestCase02_R48_ALateOwnerOfDoIsNotGivenAnotherRequestsResult(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]bool{"the key is new": false, "the key is another request's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				g, seen := newGuard(t, s, semel.Policy{})
				do := func(request string, d time.Duration) (string, error) {
					return semel.Do(t.Context(), g, theKey, semel.Bytes(request), func(context.Context) (string, error) {
						time.Sleep(d)
						return "result of " + request, nil
					})
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if got, err := do("first", 20*time.Second); got != "" || !errors.Is(err, refusal.OutcomeUnknown) {
						t.Errorf("the late owner gets %q, %v; want outcome unknown", got, err)
					}
				}()
				synctest.Wait()
				id, token := semel.Identify(nil, semel.KindDo, "alice", "k"), driver.NewToken()
				rec, err := s.Seize(t.Context(), id, token)
				if err != nil || rec.Token != token {
					t.Fatalf("seize: %v, %v", rec.State, err)
				}
				if forgotten, err := s.Forget(t.Context(), id, rec.Owner()); err != nil || !forgotten {
					t.Fatalf("forget: %v, %v", forgotten, err)
				}
				if next {
					if got, err := do("second", 0); got != "result of second" || err != nil {
						t.Errorf("the second request gets %q, %v", got, err)
					}
				}
				<-done
				if got := seen.results(); got[len(got)-1] != event.Unknown {
					t.Errorf("decided %v, want unknown for the late owner", got)
				}
			})
		})
	}
}

func TestR63_DoFailsClosedUnlessAskedToFailOpen(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		s := &faulty{Store: memstore.New()}
		s.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, errStoreDown
		}
		g, seen := newGuard(t, s, semel.Policy{FailOpen: open})
		runs := 0
		do := func(ctx context.Context) (int, error) {
			return semel.Do(ctx, g, theKey, semel.Bytes("r"), func(ctx context.Context) (int, error) {
				if runs++; semel.FromContext(ctx) != nil {
					t.Error("an unprotected run has an operation")
				}
				return runs, nil
			})
		}
		n, err := do(t.Context())
		want := []event.Result{event.Refused}
		if open {
			want = []event.Result{event.Bypassed}
		}
		if got := seen.results(); !slices.Equal(got, want) {
			t.Errorf("open %v: decided %v, want %v", open, got, want)
		}
		if open && (n != 1 || err != nil) || !open && (n != 0 || !errors.Is(err, refusal.StoreUnavailable) || !errors.Is(err, errStoreDown)) {
			t.Errorf("open %v: Do returns %d, %v", open, n, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		before := runs
		if _, err := do(ended); !errors.Is(err, refusal.StoreUnavailable) || runs != before {
			t.Errorf("open %v: for a caller that has left, Do returns %v after %d runs", open, err, runs-before)
		}
	}
}

func TestR60_TheCapsHoldForDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuardWith(t, nil, semel.Options{MaxAttempts: 2, MaxKeys: 1})
		do := func(key string) error {
			_, err := semel.Do(t.Context(), g, semel.Key{Scope: "alice", Operation: "pay", Value: key}, semel.Bytes("r"), func(context.Context) (int, error) { return 1, nil })
			return err
		}
		time.Sleep(100 * time.Millisecond) // within a second
		for i, want := range []error{nil, nil, refusal.TooManyAttempts} {
			if err := do("k"); !errors.Is(err, want) {
				t.Errorf("attempt %d: %v, want %v", i, err, want)
			} else if p := problemOf(err); want != nil && (p.RetryAfter <= 0 || p.RetryAfter%time.Second != 0) {
				t.Errorf("Retry-After is %v, want whole seconds", p.RetryAfter)
			}
		}
		if err := do("k2"); !errors.Is(err, refusal.TooManyKeys) {
			t.Errorf("the second key: %v, want too many keys", err)
		}
	})
}

// A consumer or a saga of the same name as a caller's scope never gets the caller's result.
func TestDoKeepsTheKindsOfOperationsApart(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{})
	for _, kind := range []semel.Kind{"", semel.KindMessage, semel.KindSaga} {
		key := theKey
		key.Kind = kind
		for range 2 {
			got, err := semel.Do(t.Context(), g, key, semel.Bytes("pay 7"), func(context.Context) (semel.Kind, error) { return kind, nil })
			if got != kind || err != nil {
				t.Errorf("kind %q: got %q, %v", kind, got, err)
			}
		}
		if kind == "" {
			kind = semel.KindDo
		}
		if rec := recordOf(t, s, semel.Identify(nil, kind, "alice", "k")); rec.State != driver.Done || rec.Attempt != 1 {
			t.Errorf("kind %q: the record is %+v", kind, rec)
		}
	}
	key := theKey
	key.Kind = semel.KindHTTP
	_, err := semel.Do(t.Context(), g, key, semel.Bytes("pay 7"), func(context.Context) (string, error) {
		t.Error("an HTTP operation was run by Do")
		return "", nil
	})
	if !errors.Is(err, refusal.ScopeInvalid) {
		t.Errorf("kind http: %v", err)
	}
}
