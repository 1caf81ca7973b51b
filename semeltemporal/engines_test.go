package semeltemporal_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/saga"
	"github.com/semelhq/semel/semeltemporal"
	"github.com/semelhq/semel/semeltemporal/internal/ledger"
)

var secret = []byte("a secret that nobody guesses, ever")

// An outcome is how a saga has ended, and what it did.
type outcome struct {
	state   saga.State
	failure *saga.Failure
	done    []string // of the last state
	calls   []string
	keys    map[string]string
}

// The same definitions, with the same faults, end the same in both engines, by the same calls under the same keys.
func TestR85_BothEnginesEndASagaTheSame(t *testing.T) {
	t.Parallel()
	down, no := errors.New("it does not answer"), semel.Final(errors.New("no such address"))
	for _, c := range []struct {
		name   string
		faults map[string][]error // of a step's calls; the last one stays
		panics string
		cancel string // the step during which the saga is cancelled
		ends   saga.State
		step   string // that failed
		final  bool
		calls  string
	}{
		{"done", nil, "", "", saga.Done, "", false, "charge reserve ship"},
		{"refused finally, so that what came before is compensated in reverse", map[string][]error{"ship": {no}}, "", "", saga.Compensated, "ship", true, "charge reserve ship undo.reserve undo.charge"},
		{"refused at the first step, so that there is nothing to compensate", map[string][]error{"charge": {no}}, "", "", saga.Compensated, "charge", true, "charge"},
		{"tried again", map[string][]error{"charge": {down, nil}}, "", "", saga.Done, "", false, "charge charge reserve ship"},
		{"tried often enough, so that it may have taken effect", map[string][]error{"reserve": {down}}, "", "", saga.Compensated, "reserve", false, "charge reserve reserve undo.reserve undo.charge"},
		{"refused after a try that may have taken effect", map[string][]error{"reserve": {down, no}}, "", "", saga.Compensated, "reserve", false, "charge reserve reserve undo.reserve undo.charge"},
		{"a compensation that is tried again", map[string][]error{"ship": {no}, "undo reserve": {down, nil}}, "", "", saga.Compensated, "ship", true, "charge reserve ship undo.reserve undo.reserve undo.charge"},
		{"a compensation that fails for many rounds", map[string][]error{"reserve": {no}, "undo charge": {down, down, down, down, down, down, nil}}, "", "", saga.Compensated, "reserve", true, "charge reserve" + strings.Repeat(" undo.charge", 7)},
		{"a panic is an error", nil, "ship", "", saga.Compensated, "ship", false, "charge reserve ship ship undo.ship undo.reserve undo.charge"},
		{"cancelled before its next step", nil, "", "reserve", saga.Compensated, "ship", true, "charge reserve undo.reserve undo.charge"},
		{"cancelled between two tries", map[string][]error{"reserve": {down}}, "", "reserve", saga.Compensated, "reserve", false, "charge reserve undo.reserve undo.charge"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := func(engine func(*testing.T, *saga.Definition[ledger.Order], func(cancel func())) *outcome) *outcome {
				cancel := func() {}
				l := &ledger.Ledger{Fail: func(_ context.Context, _, what string, n int) (func() error, error) {
					if what == c.panics {
						panic("out of order")
					}
					if what == c.cancel {
						cancel()
					}
					errs := c.faults[what]
					if len(errs) == 0 {
						return nil, nil
					}
					return nil, errs[min(n, len(errs))-1]
				}}
				got := engine(t, define(t, l, "charge", "reserve", "ship"), func(f func()) { cancel = f })
				got.calls, got.keys = l.Calls("a"), l.Keys("a")
				return got
			}
			a, b := run(embedded), run(suite)
			for engine, got := range map[string]*outcome{"embedded": a, "on Temporal": b} {
				var calls []string
				for _, what := range got.calls {
					calls = append(calls, strings.ReplaceAll(what, " ", "."))
				}
				if got.state != c.ends || strings.Join(calls, " ") != c.calls {
					t.Errorf("%s: it ended as %s, by %q, want %s, by %q", engine, got.state, strings.Join(calls, " "), c.ends, c.calls)
				}
				if f := got.failure; (f == nil) != (c.step == "") || f != nil && (f.Step != c.step || f.Final != c.final || f.Cancelled != (c.cancel != "") || f.Error == "") {
					t.Errorf("%s: it failed by %+v", engine, f)
				}
			}
			if !slices.Equal(a.done, b.done) || !maps.Equal(a.keys, b.keys) || len(a.keys) == 0 && c.step != "charge" {
				t.Errorf("the states are %v and %v, the keys %v and %v", a.done, b.done, a.keys, b.keys)
			}
			if a.failure != nil && c.panics == "" && a.failure.Error != b.failure.Error {
				t.Errorf("failed by %q and by %q", a.failure.Error, b.failure.Error)
			}
		})
	}
}

func define(t testing.TB, l *ledger.Ledger, names ...string) *saga.Definition[ledger.Order] {
	t.Helper()
	var steps []saga.Step[ledger.Order]
	for _, name := range names {
		steps = append(steps, l.Step(name, saga.Retry{Attempts: 2}))
	}
	d, err := saga.Define("place-order", steps...)
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func embedded(t *testing.T, d *saga.Definition[ledger.Order], cancels func(func())) (got *outcome) {
	synctest.Test(t, func(t *testing.T) {
		ring, err := keyring.New(keyring.Key{ID: "a", Key: []byte("thirty-two bytes, kept elsewhere")})
		must(t, err)
		g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Encryption: ring, DerivationSecret: secret, Observer: event.Log(slog.New(slog.DiscardHandler), "test")})
		must(t, err)
		runner, err := saga.New(g, saga.Options{})
		must(t, err)
		orders, err := saga.Register(runner, d)
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- runner.Run(ctx) }()
		cancels(func() { must(t, orders.Cancel(t.Context(), "a")) })
		_, err = orders.Start(t.Context(), "a", ledger.Order{ID: "a"})
		must(t, err)
		status, err := orders.Wait(t.Context(), "a")
		must(t, err)
		got = &outcome{state: status.State, failure: status.Failure, done: status.Value.Done}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		must(t, g.Drain(t.Context()))
	})
	return got
}

// suite runs a saga in the SDK's own test environment, which skips time.
func suite(t *testing.T, d *saga.Definition[ledger.Order], cancels func(func())) *outcome {
	env := environment(t, d)
	cancels(env.CancelWorkflow)
	end := run(t, env, d)
	got := &outcome{state: saga.Done, failure: end.Failure, done: end.State.Done}
	if end.Failure != nil {
		got.state = saga.Compensated
	}
	return got
}

func environment(t *testing.T, d *saga.Definition[ledger.Order], earlier ...*saga.Definition[ledger.Order]) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	s := &testsuite.WorkflowTestSuite{}
	s.SetLogger(log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	env := s.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // 1 s is little on a busy machine
	must(t, semeltemporal.Register(env, secret, d, earlier...))
	return env
}

// An ending is the result of a workflow.
type ending struct {
	State   ledger.Order
	Failure *saga.Failure
}

func run(t *testing.T, env *testsuite.TestWorkflowEnvironment, d *saga.Definition[ledger.Order]) (end ending) {
	t.Helper()
	env.ExecuteWorkflow("saga/place-order", semeltemporal.Plan(t, d, "a", ledger.Order{ID: "a"}))
	must(t, env.GetWorkflowError())
	must(t, env.GetWorkflowResult(&end))
	return end
}
