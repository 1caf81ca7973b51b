package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/saga"
)

func TestADefinitionThatIsNotValidIsRefusedWithAllThatIsWrong(t *testing.T) {
	t.Parallel()
	do := func(context.Context, *order) error { return nil }
	step := func(name string) saga.Step[order] { return saga.Step[order]{Name: name, Do: do} }
	for _, c := range []struct {
		name  string
		steps []saga.Step[order]
		want  []string
	}{
		{"", []saga.Step[order]{step("a")}, []string{"its name: it is empty"}},
		{strings.Repeat("n", 101), []saga.Step[order]{step("a")}, []string{"101 bytes"}},
		{"place order", []saga.Step[order]{step("a")}, []string{`it is "place order"`}},
		{"o", nil, []string{"it has no steps"}},
		{"o", []saga.Step[order]{step("a"), step("b"), step("a")}, []string{`two steps have the name "a"`}},
		{"o", []saga.Step[order]{step("undo a"), step("ü"), step("")}, []string{"name of step 1", "name of step 2", "name of step 3: it is empty"}},
		{"o", []saga.Step[order]{{Name: "a"}}, []string{`step "a": Do is nil`}},
		{"o", []saga.Step[order]{{Name: "a", Do: do, Timeout: -1}}, []string{"Timeout is negative"}},
		{"o", []saga.Step[order]{{Name: "a", Do: do, Retry: saga.Retry{Backoff: -1}}}, []string{"Retry rests from -1ns"}},
		{"o", []saga.Step[order]{{Name: "a", Do: do, Retry: saga.Retry{Backoff: time.Hour, MaxBackoff: time.Minute}}}, []string{"from 1h0m0s to 1m0s"}},
	} {
		d, err := saga.Define(c.name, c.steps...)
		if d != nil || !errors.Is(err, saga.ErrDefinition) {
			t.Errorf("%q: %v, %v", c.name, d, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q in it", c.name, err, want)
			}
		}
	}
	d, err := saga.Define("o", step("a"))
	must(t, err)
	if _, err := d.WithVersion("v 2"); !errors.Is(err, saga.ErrDefinition) {
		t.Errorf("version: %v", err)
	}
}

func TestDefinitionsThatDoNotBelongTogetherAreNotRegistered(t *testing.T) {
	t.Parallel()
	l := newLedger()
	runner, err := saga.New(newGuard(t, memstore.New(), &failures{}), saga.Options{})
	must(t, err)
	one := l.define(t, "a")
	other, err := saga.Define("other", l.step("a"))
	must(t, err)
	for _, c := range []struct {
		first   *saga.Definition[order]
		earlier []*saga.Definition[order]
		want    string
	}{
		{nil, nil, "it is nil"},
		{one, []*saga.Definition[order]{nil}, "it is nil"},
		{&saga.Definition[order]{}, nil, "it has no steps"},
		{one, []*saga.Definition[order]{other}, `has the name "other"`},
		{one, []*saga.Definition[order]{l.define(t, "b")}, `two have the version "1"`},
	} {
		if _, err := saga.Register(runner, c.first, c.earlier...); !errors.Is(err, saga.ErrDefinition) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q in it", err, c.want)
		}
	}
	_, err = saga.Register(runner, one)
	must(t, err)
	if _, err := saga.Register(runner, one); !errors.Is(err, saga.ErrDefinition) {
		t.Errorf("the same name again: %v", err)
	}
}

// A bareStore has the five verbs, and what else is given to it.
type bareStore struct{ driver.Store }

type listing struct {
	driver.Store
	driver.Lister
}

func TestARunnerSaysWhatItsGuardLacks(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	sealing := newGuard(t, s, &failures{})
	plain, err := semel.New(s, semel.SingleTenant, semel.Hold, semel.Options{IdentitySecret: []byte("a secret that nobody guesses, ever")})
	must(t, err)
	for _, c := range []struct {
		name  string
		guard *semel.Guard
		o     saga.Options
		want  string
	}{
		{"no encryption", plain, saga.Options{}, "Options.Encryption"},
		{"a store that can't list", newGuard(t, bareStore{s}, &failures{}), saga.Options{}, "can't be searched"},
		{"a store that keeps no steps", newGuard(t, listing{bareStore{s}, s}, &failures{}), saga.Options{}, "keeps no steps"},
		{"Retention", sealing, saga.Options{Retention: -1}, "Retention is negative"},
		{"Retention below MaxRun", sealing, saga.Options{Retention: time.Minute}, "Retention is 1m0s"},
		{"Lease", sealing, saga.Options{Lease: -1}, "Lease is negative"},
		{"MaxRun", sealing, saga.Options{MaxRun: -1}, "MaxRun is negative"},
		{"Interval", sealing, saga.Options{Interval: -1}, "Interval is negative"},
		{"Backoff", sealing, saga.Options{Backoff: -1}, "Backoff is negative"},
		{"MaxBackoff", sealing, saga.Options{MaxBackoff: time.Millisecond}, "MaxBackoff is 1ms"},
		{"Concurrency", sealing, saga.Options{Concurrency: -1}, "Concurrency is negative"},
	} {
		if _, err := saga.New(c.guard, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestASagaThatIsNotRegisteredIsLeftToOthersAndTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		s := memstore.New()
		d := l.define(t, "charge", "ship")
		dying := &mortal{Store: s, dieAt: 3}
		p := newProcess(t, dying, saga.Options{}, d)
		p.orders.Start(t.Context(), "a", order{}) //nolint:errcheck // it dies
		foreign, err := saga.Define("refund-order", l.step("refund"))
		must(t, err)
		q := newProcess(t, s, saga.Options{}, foreign)
		time.Sleep(time.Hour)
		if want := `saga "place-order": saga definition: it is not registered here`; !strings.Contains(q.told(), want) {
			t.Errorf("told: %q", q.told())
		}
		r := newProcess(t, s, saga.Options{}, d)
		if got := r.ends(t, "a"); got.State != saga.Done || !slices.Equal(l.wrote(), []string{"charge", "ship"}) {
			t.Errorf("ended: %+v, %v", got, l.wrote())
		}
		dying.revive()
		for _, p := range []*process{p, q, r} {
			p.end()
		}
	})
}

// A parcel's weight may be what JSON has no number for.
type parcel struct {
	Weight float64
	Label  string
}

func registerParcels(t *testing.T, r *saga.Runner, steps ...saga.Step[parcel]) *saga.Saga[parcel] {
	t.Helper()
	d, err := saga.Define("parcel", steps...)
	must(t, err)
	s, err := saga.Register(r, d)
	must(t, err)
	return s
}

func TestAStateThatCanNotBeStoredFailsItsStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge"))
		defer p.end()
		nothing := 0.0
		parcels := registerParcels(t, p.runner, saga.Step[parcel]{
			Name: "weigh",
			Do:   func(ctx context.Context, p *parcel) error { p.Weight = 1 / nothing; return l.call(ctx, "weigh") },
			Undo: func(ctx context.Context, p *parcel) error { return l.call(ctx, "undo weigh") },
		})
		_, err := parcels.Start(t.Context(), "a", parcel{})
		must(t, err)
		got, err := parcels.Wait(t.Context(), "a")
		must(t, err)
		if got.State != saga.Compensated || !strings.Contains(got.Failure.Error, "encode the state after the step: json: unsupported value") {
			t.Errorf("ended: %+v, %+v", got, got.Failure)
		}
		if want := []string{"weigh", "undo weigh"}; !slices.Equal(l.wrote(), want) {
			t.Errorf("wrote %v", l.wrote())
		}
		if _, err := parcels.Start(t.Context(), "b", parcel{Weight: 1 / nothing}); err == nil || !strings.Contains(err.Error(), "encode its input") {
			t.Errorf("such an input: %v", err)
		}
		if _, err := parcels.Status(t.Context(), "b"); !errors.Is(err, saga.ErrNotFound) {
			t.Errorf("status: %v", err)
		}
		if _, err := parcels.Start(t.Context(), "no,id", parcel{}); err == nil {
			t.Error("an id that is no key is taken")
		}
	})
}

// The largest state that a step can save is part of an end that can be stored, whatever text an error has.
func TestTheEndOfASagaIsStoredIfItsStepsAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, memstore.New(), saga.Options{}, newLedger().define(t, "charge"))
		defer p.end()
		empty, err := json.Marshal(map[string]any{"state": parcel{}})
		must(t, err)
		label := strings.Repeat("x", maxState-len(empty))
		parcels := registerParcels(t, p.runner,
			saga.Step[parcel]{Name: "print", Do: func(_ context.Context, p *parcel) error { p.Label = label; return nil }},
			saga.Step[parcel]{Name: "send", Do: func(context.Context, *parcel) error {
				return semel.Final(errors.New(strings.Repeat("ü", 1<<20)))
			}},
		)
		_, err = parcels.Start(t.Context(), "a", parcel{})
		must(t, err)
		got, err := parcels.Wait(t.Context(), "a")
		must(t, err)
		if got.State != saga.Compensated || got.Value.Label != label || got.Failure.Step != "send" || len(got.Failure.Error) > 5<<10 {
			t.Errorf("ended as %s with %d bytes of state, %d of error", got.State, len(got.Value.Label), len(got.Failure.Error))
		}
	})
}

// Final means that nothing happened. An earlier call, in this run or another, may have had the effect all the same.
func TestCase35_AStepThatRefusesAfterItWasCalledBeforeIsCompensated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.fail["ship"] = func(n int) error {
			return []error{errors.New("no reply"), semel.Final(errors.New("closed"))}[min(n, 2)-1]
		}
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge", "ship"))
		defer p.end()
		_, err := p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		if got := p.ends(t, "a"); got.State != saga.Compensated || got.Failure.Final || got.Failure.Error != "closed" {
			t.Errorf("ended: %+v, %+v", got, got.Failure)
		}
		if want := []string{"charge", "ship", "ship", "undo ship", "undo charge"}; !slices.Equal(l.called(), want) {
			t.Errorf("called %v", l.called())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		s := memstore.New()
		d := l.define(t, "charge", "ship")
		dying := &mortal{Store: s, dieAt: 13} // before the save of its second step
		p := newProcess(t, dying, saga.Options{}, dying.define(t, d))
		p.orders.Start(t.Context(), "a", order{}) //nolint:errcheck // it dies
		synctest.Wait()
		if want := []string{"charge", "ship"}; !slices.Equal(l.wrote(), want) {
			t.Fatalf("it died after %v", l.wrote())
		}
		l.fail["ship"] = func(int) error { return semel.Final(errors.New("closed")) }
		q := newProcess(t, s, saga.Options{}, d)
		if got := q.ends(t, "a"); got.State != saga.Compensated || got.Failure.Final {
			t.Errorf("ended: %+v, %+v", got, got.Failure)
		}
		if want := []string{"charge", "ship", "undo ship", "undo charge"}; !slices.Equal(l.wrote(), want) {
			t.Errorf("wrote %v", l.wrote())
		}
		dying.revive()
		p.end()
		q.end()
	})
}

func TestCase35_ACompensationThatRefusesIsStuckAlsoAfterOtherErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.fail["ship"] = func(int) error { return semel.Final(errors.New("no")) }
		l.fail["undo charge"] = func(n int) error {
			return []error{errors.New("no reply"), semel.Final(errors.New("closed"))}[min(n, 2)-1]
		}
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge", "ship"))
		defer p.end()
		_, err := p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		if got := p.ends(t, "a"); got.State != saga.Stuck || got.Attempts != 1 || !strings.Contains(got.Error, "closed") {
			t.Errorf("ended: %+v", got)
		}
		if err := p.orders.Retry(t.Context(), "a", admin.Decision{Actor: "ada", Reason: "open again"}); err == nil || !strings.Contains(err.Error(), "Options.Desk") {
			t.Errorf("retry without a desk: %v", err)
		}
	})
}

// A step makes a final error of whatever it gets, also when its run ends. That is no end of the saga.
func TestASagaGoesOnWhoseRunWasTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		steps := l.define(t, "charge", "ship").Steps()
		do, calls := steps[1].Do, 0
		steps[1].Do = func(ctx context.Context, o *order) error {
			if calls++; calls == 1 {
				<-ctx.Done()
				return semel.Final(ctx.Err())
			}
			return do(ctx, o)
		}
		d, err := saga.Define("place-order", steps...)
		must(t, err)
		p := newProcess(t, memstore.New(), saga.Options{MaxRun: time.Minute}, d)
		defer p.end()
		_, err = p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		if got := p.ends(t, "a"); got.State != saga.Done || got.Attempts != 2 {
			t.Errorf("ended: %+v", got)
		}
	})
}

// A step that hangs, panics or ends its goroutine is called again, and the saga ends.
func TestAStepThatDoesNotReturnIsCalledAgain(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(ctx context.Context) error{
		"hangs":                         func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"panics":                        func(context.Context) error { panic(semel.Final(errors.New("no"))) },
		"panics when its error is read": func(context.Context) error { return unreadable{} },
		"ends its goroutine":            func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				steps := l.define(t, "charge", "ship").Steps()
				do, calls := steps[1].Do, 0
				steps[1].Timeout = time.Minute
				steps[1].Do = func(ctx context.Context, o *order) error {
					if calls++; calls == 1 {
						return hurt(ctx)
					}
					return do(ctx, o)
				}
				d, err := saga.Define("place-order", steps...)
				must(t, err)
				p := newProcess(t, memstore.New(), saga.Options{}, d)
				defer p.end()
				_, err = p.orders.Start(t.Context(), "a", order{})
				must(t, err)
				if got := p.ends(t, "a"); got.State != saga.Done || !slices.Equal(l.wrote(), []string{"charge", "ship"}) {
					t.Errorf("ended: %+v, %v", got, l.wrote())
				}
			})
		})
	}
}

type unreadable struct{}

func (unreadable) Error() string { panic("it can't be read") }

// A saga that a step of another one starts has keys of its own, also if that step's key was given by WithStepKey.
func TestASagaThatIsStartedInAStepHasItsOwnKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge", "ship"))
		defer p.end()
		_, err := p.orders.Start(semel.WithStepKey(t.Context(), "the key of the step"), "a", order{})
		must(t, err)
		if got := p.ends(t, "a"); got.State != saga.Done || !slices.Equal(l.wrote(), []string{"charge", "ship"}) {
			t.Errorf("ended: %+v, %v", got, l.wrote())
		}
		if key, ok := saga.Key(semel.WithStepKey(t.Context(), "the key")); !ok || key != "the key" {
			t.Errorf("key %q, %v", key, ok)
		}
		if key, ok := saga.Key(t.Context()); ok {
			t.Errorf("a key outside: %q", key)
		}
	})
}

// Sagas that can't be read hide no others from a list.
func TestAListTellsOfTheSagasThatItCanNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		p := newProcess(t, s, saga.Options{}, newLedger().define(t, "charge"))
		defer p.end()
		labels, err := saga.Define("labels", saga.Step[string]{Name: "print", Do: func(_ context.Context, s *string) error { return nil }})
		must(t, err)
		texts, err := saga.Register(p.runner, labels)
		must(t, err)
		for i := range 3 {
			_, err := texts.Start(t.Context(), fmt.Sprint("text-", i), "text")
			must(t, err)
			_, err = texts.Wait(t.Context(), fmt.Sprint("text-", i))
			must(t, err)
		}
		numbers, err := saga.Define("labels", saga.Step[int]{Name: "print", Do: func(_ context.Context, n *int) error { return nil }})
		must(t, err)
		q := newProcess(t, s, saga.Options{}, newLedger().define(t, "charge"))
		defer q.end()
		counts, err := saga.Register(q.runner, numbers)
		must(t, err)
		_, err = counts.Start(t.Context(), "number", 7)
		must(t, err)
		_, err = counts.Wait(t.Context(), "number")
		must(t, err)
		var listed []string
		err = counts.List(t.Context(), func(s *saga.Status[int]) bool { listed = append(listed, s.ID); return true })
		if !slices.Equal(listed, []string{"number"}) || err == nil || strings.Count(err.Error(), "decode its state") != 3 || !strings.Contains(err.Error(), `"text-1"`) {
			t.Errorf("listed %v, %v", listed, err)
		}
	})
}

// A cancellation is asked for by several at once. All of them are told that it is noted.
func TestASagaIsCancelledBySeveralAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		s := memstore.New()
		d := l.define(t, "charge", "ship")
		p, q := newProcess(t, &slow{s}, saga.Options{}, d), newProcess(t, &slow{s}, saga.Options{}, d)
		defer p.end()
		defer q.end()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				if err := []*process{p, q}[i%2].orders.Cancel(t.Context(), "a"); err != nil {
					t.Errorf("cancel: %v", err)
				}
			})
		}
		wg.Wait()
		_, err := p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		if got := p.ends(t, "a"); got.State != saga.Compensated || !got.Failure.Cancelled || len(l.called()) != 0 {
			t.Errorf("ended: %+v, %v", got, l.called())
		}
	})
}

// A slow store takes a moment to settle.
type slow struct{ *memstore.Store }

func (s *slow) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Settle(ctx, id, by, o)
}

// A saga that can't get over a step is given up by those who cancel it and have it tried again.
func TestASagaThatIsStuckInAStepIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		s := &audited{Store: memstore.New()}
		desk, err := admin.New(s, admin.Options{Encryption: ring})
		must(t, err)
		l.fail["ship"] = func(int) error { return errors.New("it does not answer") }
		steps := l.define(t, "charge", "ship").Steps()
		steps[1].Retry = saga.Retry{Attempts: -1}
		d, err := saga.Define("place-order", steps...)
		must(t, err)
		p := newProcess(t, s, saga.Options{Desk: desk, MaxRun: time.Minute, MaxAttempts: 2}, d)
		defer p.end()
		_, err = p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		if got := p.ends(t, "a"); got.State != saga.Stuck || !strings.Contains(got.Error, "given up after 2 runs") {
			t.Fatalf("ended: %+v", got)
		}
		must(t, p.orders.Cancel(t.Context(), "a"))
		must(t, p.orders.Retry(t.Context(), "a", admin.Decision{Actor: "ada", Reason: "nobody wants it any more"}))
		time.Sleep(time.Minute)
		if got := p.ends(t, "a"); got.State != saga.Compensated || !got.Failure.Cancelled {
			t.Errorf("ended: %+v", got)
		}
		if want := []string{"charge", "undo charge"}; !slices.Equal(l.wrote(), want) {
			t.Errorf("wrote %v", l.wrote())
		}
	})
}
