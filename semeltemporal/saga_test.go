package semeltemporal_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/saga"
	"github.com/semelhq/semel/semeltemporal"
	"github.com/semelhq/semel/semeltemporal/internal/ledger"
)

// failing returns a ledger whose named calls fail.
func failing(faults map[string]func(n int) error) *ledger.Ledger {
	return &ledger.Ledger{Fail: func(_ context.Context, _, what string, n int) (func() error, error) {
		if fail := faults[what]; fail != nil {
			return nil, fail(n)
		}
		return nil, nil
	}}
}

// seen is the answer to the status query.
type seen struct {
	Stuck bool
	Error string
	Saved []string
}

func look(t *testing.T, env *testsuite.TestWorkflowEnvironment) (s seen) {
	t.Helper()
	answer, err := env.QueryWorkflow("saga-status")
	must(t, err)
	must(t, answer.Get(&s))
	return s
}

func TestR85_AStuckCompensationWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		undo   func(n int) error // of the first step
		before int               // calls before it is stuck
		within time.Duration
	}{
		{"at once after a final error", func(n int) error {
			return []error{semel.Final(errors.New("the account is closed")), nil}[min(n, 2)-1]
		}, 1, time.Minute},
		{"after all rounds", func(n int) error {
			return []error{errors.New("the account is closed"), nil}[n/61]
		}, 60, 3 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var env *testsuite.TestWorkflowEnvironment
			retry := func() {
				env.SignalWorkflow("saga-retry", map[string]string{"actor": "ada", "reason": "it is open again"})
			}
			l := failing(map[string]func(int) error{"undo charge": c.undo, "ship": func(int) error {
				retry() // not stuck yet: it does not count
				return semel.Final(errors.New("no"))
			}})
			d := define(t, l, "charge", "ship")
			env = environment(t, d)
			looked := false
			env.RegisterDelayedCallback(func() {
				looked = true
				s := look(t, env)
				if !s.Stuck || !strings.Contains(s.Error, `compensate step "charge": the account is closed`) || !slices.Equal(s.Saved, []string{"charge"}) {
					t.Errorf("when it is stuck: %+v", s)
				}
				if n := len(l.Calls("a")) - 2; n != c.before {
					t.Errorf("compensated %d times before it was stuck, want %d", n, c.before)
				}
			}, c.within)
			env.RegisterDelayedCallback(retry, 30*24*time.Hour)
			end := run(t, env, d)
			if end.Failure == nil || end.Failure.Step != "ship" || !slices.Equal(l.Effects("a"), []string{"charge", "undo charge"}) {
				t.Errorf("ended: %+v, with %q", end.Failure, l.Effects("a"))
			}
			if n := len(l.Calls("a")) - 2; n != c.before+1 || !looked {
				t.Errorf("compensated %d times, want %d; it waited for the operator: %v", n, c.before+1, looked)
			}
		})
	}
}

// A compensation that fails for an hour is tried for an hour.
func TestR85_OnTemporalACompensationIsTriedForAnHour(t *testing.T) {
	t.Parallel()
	var env *testsuite.TestWorkflowEnvironment
	var began time.Time
	l := failing(map[string]func(int) error{
		"charge": func(int) error { began = env.Now(); return nil },
		"ship":   func(int) error { return semel.Final(errors.New("no")) },
		"undo charge": func(int) error {
			if env.Now().Sub(began) < time.Hour {
				return errors.New("it does not answer")
			}
			return nil
		},
	})
	d := define(t, l, "charge", "ship")
	env = environment(t, d)
	run(t, env, d)
	if took := env.Now().Sub(began); took > 90*time.Minute || !slices.Equal(l.Effects("a"), []string{"charge", "undo charge"}) {
		t.Errorf("it ended after %v, with %q", took, l.Effects("a"))
	}
}

// breaking is a worker that makes the first calls of each step fail, before they are made.
type breaking struct {
	interceptor.WorkerInterceptorBase
	err   error
	times int

	mu   sync.Mutex
	made map[string]int
}

type breakingActivity struct {
	interceptor.ActivityInboundInterceptorBase
	*breaking
}

func (b *breaking) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &breakingActivity{breaking: b}
	i.Next = next
	return i
}

func (b *breakingActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	b.mu.Lock()
	if b.made == nil {
		b.made = map[string]int{}
	}
	name := activity.GetInfo(ctx).ActivityType.Name
	b.made[name]++
	n := b.made[name]
	b.mu.Unlock()
	if n <= b.times {
		return nil, b.err
	}
	return b.Next.ExecuteActivity(ctx, in)
}

// What the worker's death, its end, or a worker of another version does to a call is no try of the step. After the
// first two the step may have been called, so that it is compensated even if it refuses finally.
func TestR85_ACallThatAWorkerDidNotEndIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		broken error
		final  bool // a refusal after it
	}{
		{"the worker is gone", temporal.NewHeartbeatTimeoutError(), false},
		{"the worker stops", temporal.NewNonRetryableApplicationError("context canceled", "semel broken", nil), false},
		{"the worker has other versions", temporal.NewNonRetryableApplicationError("not registered", "semel unknown", nil), true},
		{"the worker does not have the step", temporal.NewNonRetryableApplicationError("not registered", "ActivityNotRegisteredError", nil), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := failing(map[string]func(int) error{"ship": func(int) error { return semel.Final(errors.New("no")) }})
			d := define(t, l, "charge", "ship")
			env := environment(t, d)
			env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&breaking{err: c.broken, times: 5}}}) // Attempts is 2
			end := run(t, env, d)
			want := []string{"charge", "ship", "undo charge"}
			if !c.final {
				want = []string{"charge", "ship", "undo ship", "undo charge"}
			}
			if end.Failure == nil || end.Failure.Step != "ship" || end.Failure.Final != c.final || !slices.Equal(l.Calls("a"), want) {
				t.Errorf("ended: %+v, by %q, want %q", end.Failure, l.Calls("a"), want)
			}
		})
	}
}

// A step that does not heed its timeout is given up a lease later, and has been tried then.
func TestR85_ACallThatDoesNotEndInTimeIsATry(t *testing.T) {
	t.Parallel()
	l := failing(nil)
	d := define(t, l, "charge", "ship")
	env := environment(t, d)
	late := &breaking{err: temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil), times: 2, made: map[string]int{
		"saga/place-order/charge": 2, "saga/place-order/undo ship": 2, "saga/place-order/undo charge": 2,
	}}
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{late}})
	end := run(t, env, d)
	if want := []string{"charge", "undo ship", "undo charge"}; end.Failure == nil || end.Failure.Final || !slices.Equal(l.Calls("a"), want) {
		t.Errorf("ended: %+v, by %q, want %q", end.Failure, l.Calls("a"), want)
	}
}

func TestOnTemporalASagaKeepsTheDefinitionWithWhichItBegan(t *testing.T) {
	t.Parallel()
	began := define(t, failing(nil), "charge", "reserve", "ship")
	for _, c := range []struct {
		name  string
		names []string
		other string // its version
		with  bool   // the definition with which it began is registered too
		err   string
	}{
		{"registered beside the new one", []string{"charge", "check", "ship"}, "2", true, ""},
		{"no longer registered", []string{"check", "charge", "ship"}, "2", false, `it began under version "1", which is not registered`},
		{"changed under the same version", []string{"charge", "check", "ship"}, "1", false, "are others than those with which it began"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := failing(nil)
			d, err := define(t, l, c.names...).WithVersion(c.other)
			must(t, err)
			var earlier []*saga.Definition[ledger.Order]
			if c.with {
				earlier = append(earlier, define(t, l, "charge", "reserve", "ship"))
			}
			env := environment(t, d, earlier...)
			env.ExecuteWorkflow("saga/place-order", semeltemporal.Plan(t, began, "a", ledger.Order{ID: "a"}))
			err = env.GetWorkflowError()
			if c.err == "" {
				if want := []string{"charge", "reserve", "ship"}; err != nil || !slices.Equal(l.Calls("a"), want) {
					t.Errorf("ended by %q, %v, want %q", l.Calls("a"), err, want)
				}
				return
			}
			var thrown *temporal.PanicError // which has the saga wait for a worker that knows it
			if !errors.As(err, &thrown) || !strings.Contains(err.Error(), c.err) || len(l.Calls("a")) != 0 {
				t.Errorf("ended by %q, %v", l.Calls("a"), err)
			}
		})
	}
}

// Temporal bounds the history of a run: a saga that is tried for long goes on in another one, as far as it was.
func TestASagaGoesOnInAnotherRunWhenItsHistoryIsLong(t *testing.T) {
	t.Parallel()
	l := failing(map[string]func(int) error{
		"reserve":     func(int) error { return errors.New("it does not answer") },
		"undo charge": func(n int) error { return []error{errors.New("not now"), nil}[min(n, 2)-1] },
	})
	d := define(t, l, "charge", "reserve")
	next := semeltemporal.Plan(t, d, "a", ledger.Order{ID: "a"})
	runs := 0
	for {
		runs++
		env := environment(t, d)
		env.SetContinueAsNewSuggested(true)
		env.ExecuteWorkflow("saga/place-order", next)
		var long *workflow.ContinueAsNewError
		if err := env.GetWorkflowError(); !errors.As(err, &long) {
			must(t, err)
			break
		}
		next = semeltemporal.EmptyPlan()
		must(t, converter.GetDefaultDataConverter().FromPayloads(long.Input, next))
	}
	if want := []string{"charge", "reserve", "reserve", "undo reserve", "undo charge", "undo charge"}; runs != 7 || !slices.Equal(l.Calls("a"), want) {
		t.Errorf("ended in %d runs by %q, want 7 by %q", runs, l.Calls("a"), want)
	}
}

// Temporal would end the workflow whose next activity gets too much, with nothing compensated.
func TestAStateThatIsTooLargeForTemporalIsAnError(t *testing.T) {
	t.Parallel()
	l := failing(nil)
	d, err := saga.Define("place-order", l.Step("charge", saga.Retry{}), saga.Step[ledger.Order]{
		Name: "grow", Retry: saga.Retry{Attempts: 1},
		Do: func(_ context.Context, o *ledger.Order) error {
			o.Done = append(o.Done, strings.Repeat("x", 1<<20))
			return nil
		},
	})
	must(t, err)
	end := run(t, environment(t, d), d)
	if end.Failure == nil || end.Failure.Step != "grow" || !strings.Contains(end.Failure.Error, "want at most 1048576") || !slices.Equal(l.Effects("a"), []string{"charge", "undo charge"}) {
		t.Errorf("ended: %+v, with %q", end.Failure, l.Effects("a"))
	}
}

// Package client sends the keys of both engines, in a step that does nothing for it.
func TestR85_AStepsCallsCarryItsKeyOnTemporal(t *testing.T) {
	t.Parallel()
	var keys []string
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 2 {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer bank.Close()
	transport, err := client.New(nil, client.Options{Bare: true})
	must(t, err)
	post := func(ctx context.Context, _ *ledger.Order) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, bank.URL, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		res, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return semel.Final(fmt.Errorf("status %d", res.StatusCode))
		}
		return nil
	}
	d, err := saga.Define("place-order", saga.Step[ledger.Order]{Name: "charge", Do: post, Undo: post}, saga.Step[ledger.Order]{Name: "ship", Do: post})
	must(t, err)
	run(t, environment(t, d), d)
	want := []string{d.StepKey(secret, "a", "charge", false), d.StepKey(secret, "a", "ship", false), d.StepKey(secret, "a", "charge", true)}
	if !slices.Equal(keys, want) {
		t.Errorf("sent with the keys %q, want %q", keys, want)
	}
}

func TestWhatIsNotValidIsRefused(t *testing.T) {
	t.Parallel()
	d := define(t, failing(nil), "charge")
	other, err := saga.Define("other", d.Steps()...)
	must(t, err)
	env := environment(t, other)
	var c struct{ temporalclient.Client }
	orders, err := semeltemporal.New(c, "orders", d, semeltemporal.Options{})
	must(t, err)
	loud, err := saga.Define("loud", saga.Step[chan int]{Name: "say", Do: func(context.Context, *chan int) error { return nil }})
	must(t, err)
	louds, err := semeltemporal.New(c, "orders", loud, semeltemporal.Options{})
	must(t, err)
	made := func(o semeltemporal.Options) error {
		_, err := semeltemporal.New(c, "orders", d, o)
		return err
	}
	started := func(id string) error {
		_, err := orders.Start(t.Context(), id, ledger.Order{})
		return err
	}
	for _, x := range []struct {
		err  error
		want string
	}{
		{semeltemporal.Register(env, []byte("short"), d), "the secret has 5 bytes"},
		{semeltemporal.Register[ledger.Order](env, secret, nil), "it is nil"},
		{semeltemporal.Register(env, secret, d, d), `two have the version "1"`},
		{semeltemporal.Register(env, secret, d, other), `an earlier one has the name "other"`},
		{semeltemporal.Register(env, secret, other), "already registered"},
		{made(semeltemporal.Options{Lease: -1}), "negative"},
		{made(semeltemporal.Options{Backoff: time.Minute, MaxBackoff: time.Second}), "rest from 1m0s to 1s"},
		{started(""), "its id is not"},
		{started("a b"), "its id is not"},
		{func() error {
			_, err := orders.Start(t.Context(), "a", ledger.Order{ID: strings.Repeat("x", 1<<20)})
			return err
		}(), "encode its input: it has"},
		{started(strings.Repeat("x", 256)), "its id is not"},
		{func() error { _, err := louds.Start(t.Context(), "a", nil); return err }(), "encode its input"},
		{orders.Retry(t.Context(), "a", "", "why not"), "who decides"},
	} {
		if x.err == nil || !strings.Contains(x.err.Error(), x.want) {
			t.Errorf("%v, want %q", x.err, x.want)
		}
	}
}
