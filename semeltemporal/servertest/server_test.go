// Package servertest runs sagas on a real Temporal server, which is in the process, while workers are stopped and
// started all the time.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/server/temporaltest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/saga"
	"github.com/semelhq/semel/semeltemporal"
	"github.com/semelhq/semel/semeltemporal/internal/ledger"
)

var secret = []byte("a secret that nobody guesses, ever")

// The sagas' seed is told, and can be given again: SEED=7.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64N(1e6)
	if given := os.Getenv("SEED"); given != "" {
		var err error
		if n, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", n)
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var names = []string{"charge", "reserve", "ship", "invoice"}

// faults makes a ledger whose calls fail by seed, saga and step alone, so that a worker that dies does not change how a
// saga ends: a call fails once, or always.
func faults(seed uint64) *ledger.Ledger {
	down, no := errors.New("it does not answer"), semel.Final(errors.New("no"))
	return &ledger.Ledger{Fail: func(ctx context.Context, id, what string, n int) (after func() error, before error) {
		h := rand.New(rand.NewPCG(seed, hash(id+"/"+what)))
		kind := h.IntN(24)
		if strings.HasPrefix(what, "undo ") && kind > 5 { // a compensation succeeds in the end
			kind %= 6
		}
		once := n == 1
		switch {
		case kind == 0 && once:
			return nil, down
		case kind == 1 && once: // the effect is had, and the reply lost
			return func() error { return down }, nil
		case kind == 2 && once:
			panic("out of order")
		case kind == 3 && once: // it hangs until its timeout
			<-ctx.Done()
			return nil, ctx.Err()
		case kind == 6:
			return nil, no
		case kind == 7:
			return nil, down
		case kind == 8:
			return func() error { return down }, nil
		}
		return nil, nil
	}}
}

func hash(s string) (h uint64) {
	for _, c := range []byte(s) {
		h = h*1099511628211 ^ uint64(c)
	}
	return h
}

func define(t testing.TB, l *ledger.Ledger) *saga.Definition[ledger.Order] {
	t.Helper()
	var steps []saga.Step[ledger.Order]
	for _, name := range names {
		step := l.Step(name, saga.Retry{Attempts: 3, Backoff: 10 * time.Millisecond})
		step.Timeout = 500 * time.Millisecond
		steps = append(steps, step)
	}
	d, err := saga.Define("place-order", steps...)
	must(t, err)
	return d
}

// An end is what both engines have to agree about.
type end struct {
	state   saga.State
	step    string // that failed
	effects string // that are left: what was done, and not undone
}

// left returns the effects that were not taken back. An effect that was had under two keys, or was taken back without
// its being there for a step that has refused at once, is an error.
func left(l *ledger.Ledger, id string) (string, error) {
	var done, undone []string
	for _, what := range l.Effects(id) {
		if step, undo := strings.CutPrefix(what, "undo "); undo {
			undone = append(undone, step)
		} else {
			done = append(done, what)
		}
	}
	for _, list := range [][]string{done, undone} {
		if len(slices.Compact(slices.Clone(list))) < len(list) {
			return "", fmt.Errorf("saga %s has effects twice: %q", id, l.Effects(id))
		}
	}
	return strings.Join(slices.DeleteFunc(done, func(step string) bool { return slices.Contains(undone, step) }), " "), nil
}

// embedded runs the sagas in the embedded engine, one after the other, and undisturbed.
func embedded(t *testing.T, seed uint64, ids []string) map[string]end {
	ends := map[string]end{}
	synctest.Test(t, func(t *testing.T) {
		ring, err := keyring.New(keyring.Key{ID: "a", Key: []byte("thirty-two bytes, kept elsewhere")})
		must(t, err)
		g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Encryption: ring, DerivationSecret: secret, Observer: event.Log(slog.New(slog.DiscardHandler), "test")})
		must(t, err)
		runner, err := saga.New(g, saga.Options{})
		must(t, err)
		l := faults(seed)
		orders, err := saga.Register(runner, define(t, l))
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- runner.Run(ctx) }()
		for _, id := range ids {
			_, err = orders.Start(ctx, id, ledger.Order{ID: id})
			must(t, err)
		}
		for _, id := range ids {
			status, err := orders.Wait(ctx, id)
			must(t, err)
			ends[id] = ending(t, l, status)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		must(t, g.Drain(t.Context()))
	})
	return ends
}

func ending(t *testing.T, l *ledger.Ledger, status *saga.Status[ledger.Order]) end {
	t.Helper()
	e := end{state: status.State}
	if status.Failure != nil {
		e.step = status.Failure.Step
	}
	var err error
	if e.effects, err = left(l, status.ID); err != nil {
		t.Error(err)
	}
	return e
}

var quiet = log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))

func newServer(t *testing.T) client.Client {
	t.Helper()
	return temporaltest.NewServer(temporaltest.WithT(t), temporaltest.WithBaseClientOptions(client.Options{Logger: quiet})).GetDefaultClient()
}

// work starts a worker. Its options are the defaults: those of temporaltest would have sagas fail.
func work(t *testing.T, c client.Client, queue string, d *saga.Definition[ledger.Order], earlier ...*saga.Definition[ledger.Order]) worker.Worker {
	w := worker.New(c, queue, worker.Options{})
	if err := errors.Join(semeltemporal.Register(w, secret, d, earlier...), w.Start()); err != nil {
		t.Error(err)
	}
	return w
}

func TestR85_FiveHundredSagasEndAsInTheEmbeddedEngine(t *testing.T) {
	seed := seed(t)
	var ids []string
	for i := range 500 {
		ids = append(ids, fmt.Sprintf("order-%d", i))
	}
	want := embedded(t, seed, ids)

	l := faults(seed)
	d := define(t, l)
	c := newServer(t)
	ctx, stop := context.WithTimeout(t.Context(), 8*time.Minute)
	defer stop()
	var workers sync.WaitGroup
	killed := make(chan int, 3)
	over := make(chan struct{})
	for i := range 3 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for n := 0; ; n++ {
				w := work(t, c, "orders", d)
				select {
				case <-time.After(time.Second + time.Duration(random.IntN(4000))*time.Millisecond):
					w.Stop()
				case <-over:
					w.Stop()
					killed <- n
					return
				}
			}
		})
	}
	orders, err := semeltemporal.New(c, "orders", d, semeltemporal.Options{Lease: 2 * time.Second, Backoff: 100 * time.Millisecond})
	must(t, err)
	states := map[saga.State]int{}
	for _, id := range ids {
		_, err := orders.Start(ctx, id, ledger.Order{ID: id})
		must(t, err)
	}
	for _, id := range ids {
		var status *saga.Status[ledger.Order]
		for { // a question that a worker was asked when it was stopped is asked again
			if status, err = orders.Wait(ctx, id); err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		states[status.State]++
		if got := ending(t, l, status); got != want[id] {
			t.Errorf("saga %s ended as %+v by %q, in the embedded engine as %+v", id, got, l.Calls(id), want[id])
		}
		keys := l.Keys(id)
		for _, name := range names {
			for _, undo := range []bool{false, true} {
				what := name
				if undo {
					what = "undo " + name
				}
				if key, had := keys[what]; had && key != d.StepKey(secret, id, name, undo) {
					t.Errorf("saga %s: %s has the key %s", id, what, key)
				}
			}
		}
	}
	close(over)
	workers.Wait()
	stops := <-killed + <-killed + <-killed
	t.Logf("%v, with workers stopped %d times", states, stops)
	if states[saga.Done] < 50 || states[saga.Compensated] < 50 || stops < 3 {
		t.Errorf("the sagas ended as %v, with workers stopped %d times: too little was tried", states, stops)
	}
}

func TestR85_ARepeatedStartOnTemporalReturnsTheSameSaga(t *testing.T) {
	c := newServer(t)
	l := &ledger.Ledger{}
	d := define(t, l)
	w := work(t, c, "orders", d)
	defer w.Stop()
	orders, err := semeltemporal.New(c, "orders", d, semeltemporal.Options{})
	must(t, err)
	ctx := t.Context()
	if _, err := orders.Status(ctx, "a"); !errors.Is(err, saga.ErrNotFound) {
		t.Errorf("before it was started: %v", err)
	}
	if err := orders.Cancel(ctx, "a"); !errors.Is(err, saga.ErrNotFound) {
		t.Errorf("cancelled before it was started: %v", err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := orders.Start(ctx, "a", ledger.Order{ID: "a", Total: 42}); err != nil {
				t.Errorf("start: %v", err)
			}
		})
	}
	wg.Wait()
	first, err := orders.Wait(ctx, "a")
	must(t, err)
	again, err := orders.Start(ctx, "a", ledger.Order{ID: "a", Total: 42})
	must(t, err)
	for _, status := range []*saga.Status[ledger.Order]{first, again} {
		if status.State != saga.Done || status.Value.Total != 42 || !slices.Equal(status.Value.Done, names) || len(status.Saved) != len(names) || status.EndedAt.IsZero() || status.Operation != "saga/place-order/a" {
			t.Errorf("ended: %+v", status)
		}
	}
	if _, err := orders.Start(ctx, "a", ledger.Order{ID: "a", Total: 43}); !errors.Is(err, saga.ErrOtherInput) {
		t.Errorf("with another input: %v", err)
	}
	if err := orders.Cancel(ctx, "a"); !errors.Is(err, saga.ErrEnded) {
		t.Errorf("cancelled after its end: %v", err)
	}
	if err := orders.Retry(ctx, "a", "ada", "why not"); !errors.Is(err, saga.ErrNotStuck) {
		t.Errorf("retried after its end: %v", err)
	}
	if !slices.Equal(l.Calls("a"), names) {
		t.Errorf("called: %q", l.Calls("a"))
	}
}

func TestR85_AStuckSagaOnTemporalIsTriedAgainByAnOperator(t *testing.T) {
	c := newServer(t)
	l := &ledger.Ledger{Fail: func(_ context.Context, _, what string, n int) (func() error, error) {
		if what == "reserve" || what == "undo charge" && n == 1 {
			return nil, semel.Final(errors.New("the account is closed"))
		}
		return nil, nil
	}}
	d := define(t, l)
	w := work(t, c, "orders", d)
	defer w.Stop()
	orders, err := semeltemporal.New(c, "orders", d, semeltemporal.Options{})
	must(t, err)
	_, err = orders.Start(t.Context(), "a", ledger.Order{ID: "a"})
	must(t, err)
	status, err := orders.Wait(t.Context(), "a")
	must(t, err)
	if status.State != saga.Stuck || !strings.Contains(status.Error, `compensate step "charge": the account is closed`) || !slices.Equal(status.Saved, []string{"charge"}) {
		t.Errorf("stuck: %+v", status)
	}
	must(t, orders.Retry(t.Context(), "a", "ada", "it is open again"))
	for status.State == saga.Stuck {
		status, err = orders.Wait(t.Context(), "a")
		must(t, err)
	}
	if status.State != saga.Compensated || status.Failure.Step != "reserve" || !slices.Equal(l.Effects("a"), []string{"charge", "undo charge"}) {
		t.Errorf("ended: %+v, with %q", status, l.Effects("a"))
	}
}

func TestASagaOnTemporalIsCancelledBeforeItsNextStep(t *testing.T) {
	c := newServer(t)
	under, release := make(chan struct{}), make(chan struct{})
	l := &ledger.Ledger{Fail: func(_ context.Context, _, what string, n int) (func() error, error) {
		if what == "reserve" {
			close(under)
			<-release
		}
		return nil, nil
	}}
	var steps []saga.Step[ledger.Order]
	for _, name := range names {
		steps = append(steps, l.Step(name, saga.Retry{}))
	}
	d, err := saga.Define("place-order", steps...)
	must(t, err)
	w := work(t, c, "orders", d)
	defer w.Stop()
	orders, err := semeltemporal.New(c, "orders", d, semeltemporal.Options{})
	must(t, err)
	_, err = orders.Start(t.Context(), "a", ledger.Order{ID: "a"})
	must(t, err)
	<-under
	must(t, orders.Cancel(t.Context(), "a"))
	close(release)
	status, err := orders.Wait(t.Context(), "a")
	must(t, err)
	if status.State != saga.Compensated || !status.Failure.Cancelled || status.Failure.Step != "ship" {
		t.Errorf("ended: %+v, %+v", status, status.Failure)
	}
	if want := []string{"charge", "reserve", "undo reserve", "undo charge"}; !slices.Equal(l.Calls("a"), want) {
		t.Errorf("called: %q, want %q", l.Calls("a"), want)
	}
}

// A worker of other versions can't go on with a saga: it waits, and says so, until one comes that has its version.
func TestASagaOnTemporalWaitsForItsVersion(t *testing.T) {
	c := newServer(t)
	l := &ledger.Ledger{}
	first := define(t, l)
	second, err := saga.Define("place-order", l.Step("check", saga.Retry{}))
	must(t, err)
	second, err = second.WithVersion("2")
	must(t, err)
	w := work(t, c, "orders", second)
	orders, err := semeltemporal.New(c, "orders", first, semeltemporal.Options{})
	must(t, err)
	_, err = orders.Start(t.Context(), "a", ledger.Order{ID: "a"})
	must(t, err)
	for {
		status, err := orders.Status(t.Context(), "a")
		if err != nil {
			continue // the workflow's first task is under way
		}
		if status.Error != "" {
			if status.State != saga.Running || !strings.Contains(status.Error, `it began under version "1", which is not registered`) {
				t.Errorf("without its version: %+v", status)
			}
			break
		}
	}
	w.Stop()
	w = work(t, c, "orders", second, first)
	defer w.Stop()
	status, err := orders.Wait(t.Context(), "a")
	must(t, err)
	if status.State != saga.Done || !slices.Equal(l.Calls("a"), names) {
		t.Errorf("ended: %+v, by %q", status, l.Calls("a"))
	}
}
