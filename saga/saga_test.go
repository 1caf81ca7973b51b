package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/saga"
)

type order struct {
	Total int      `json:"total"`
	Done  []string `json:"done"`
}

// A ledger has the effects of other services, which recognise repetitions by the key.
type ledger struct {
	mu      sync.Mutex
	calls   []string
	effects map[string]string // by key
	journal []string          // what has changed something: a compensation without its effect changes nothing
	fail    map[string]func(call int) error
}

func newLedger() *ledger {
	return &ledger{effects: map[string]string{}, fail: map[string]func(int) error{}}
}

func (l *ledger) call(ctx context.Context, what string) error {
	key, ok := saga.Key(ctx)
	if !ok {
		return errors.New("there is no key")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, what)
	if fail := l.fail[what]; fail != nil {
		n := 0
		for _, c := range l.calls {
			if c == what {
				n++
			}
		}
		if err := fail(n); err != nil {
			return err
		}
	}
	if had, ok := l.effects[key]; ok && had != what {
		return fmt.Errorf("%s has the key of %s", what, had)
	}
	if _, had := l.effects[key]; !had {
		if effect, undo := strings.CutPrefix(what, "undo "); !undo || slices.Contains(l.journal, effect) {
			l.journal = append(l.journal, what)
		}
	}
	l.effects[key] = what
	return nil
}

func (l *ledger) took(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.effects {
		if e == what {
			n++
		}
	}
	return n
}

func (l *ledger) wrote() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.journal)
}

func (l *ledger) called() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

func (l *ledger) step(name string) saga.Step[order] {
	return saga.Step[order]{
		Name: name,
		Do: func(ctx context.Context, o *order) error {
			o.Done = append(o.Done, name)
			return l.call(ctx, name)
		},
		Undo: func(ctx context.Context, o *order) error {
			o.Done = append(o.Done, "undo "+name)
			return l.call(ctx, "undo "+name)
		},
		Retry: saga.Retry{Attempts: 2},
	}
}

func (l *ledger) define(t testing.TB, names ...string) *saga.Definition[order] {
	t.Helper()
	var steps []saga.Step[order]
	for _, name := range names {
		steps = append(steps, l.step(name))
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

var ring = func() *keyring.Ring {
	k, err := keyring.New(keyring.Key{ID: "a", Key: []byte("thirty-two bytes, kept elsewhere")})
	if err != nil {
		panic(err)
	}
	return k
}()

const maxState = 2 << 20

func newGuard(t testing.TB, s driver.Store, o event.Observer) *semel.Guard {
	t.Helper()
	g, err := semel.New(s, semel.SingleTenant, semel.Hold, semel.Options{
		Encryption: ring, IdentitySecret: []byte("a secret that nobody guesses, ever"), MaxStepResult: maxState, Observer: o,
	})
	must(t, err)
	return g
}

// An audited store has a trail, as the durable ones have.
type audited struct {
	*memstore.Store
	mu    sync.Mutex
	trail []driver.AuditEntry
}

func (a *audited) Audit(_ context.Context, e driver.AuditEntry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trail = append(a.trail, e)
	return nil
}

func (a *audited) AuditTrail(context.Context, *driver.ID, int, func(driver.AuditEntry) bool) error {
	return nil
}

// A process is a runner on a store.
type process struct {
	failures
	guard  *semel.Guard
	runner *saga.Runner
	orders *saga.Saga[order]
	end    func()
}

func newProcess(t testing.TB, s driver.Store, o saga.Options, d *saga.Definition[order], earlier ...*saga.Definition[order]) *process {
	t.Helper()
	p := &process{}
	p.guard = newGuard(t, s, &p.failures)
	var err error
	if p.runner, err = saga.New(p.guard, o); err != nil {
		t.Fatal(err)
	}
	p.orders, err = saga.Register(p.runner, d, earlier...)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.runner.Run(ctx) }()
	p.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		must(t, p.guard.Drain(context.Background()))
	})
	return p
}

func (p *process) ends(t testing.TB, id string) *saga.Status[order] {
	t.Helper()
	status, err := p.orders.Wait(context.Background(), id)
	must(t, err)
	return status
}

func TestR85_ASagaEndsDoneWithTheStateOfItsLastStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge", "reserve", "ship"))
		defer p.end()
		started, err := p.orders.Start(t.Context(), "order-17", order{Total: 42})
		must(t, err)
		if started.State != saga.Running || started.ID != "order-17" {
			t.Errorf("started: %+v", started)
		}
		got := p.ends(t, "order-17")
		want := []string{"charge", "reserve", "ship"}
		if got.State != saga.Done || got.Failure != nil || got.Value.Total != 42 || !slices.Equal(got.Value.Done, want) || got.EndedAt.IsZero() {
			t.Errorf("ended: %+v", got)
		}
		if !slices.Equal(l.called(), want) {
			t.Errorf("called: %v", l.called())
		}
		if got.Operation != started.Operation {
			t.Errorf("the operation is %s, and was %s", got.Operation, started.Operation)
		}
	})
}

// Another engine that runs the definition derives the same keys.
func TestR85_TheKeyOfAStepIsDerivedFromSagaIDAndStepAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secret := []byte("a secret that nobody guesses, ever")
		g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Encryption: ring, DerivationSecret: secret})
		must(t, err)
		r, err := saga.New(g, saga.Options{})
		must(t, err)
		var keys []string
		note := func(ctx context.Context, _ *order) error {
			key, _ := saga.Key(ctx)
			keys = append(keys, key)
			return nil
		}
		d, err := saga.Define("place-order", saga.Step[order]{Name: "charge", Do: note, Undo: note},
			saga.Step[order]{Name: "ship", Do: func(context.Context, *order) error { return semel.Final(errors.New("no")) }})
		must(t, err)
		orders, err := saga.Register(r, d)
		must(t, err)
		_, err = orders.Start(t.Context(), "order-17", order{})
		must(t, err)
		_, err = orders.Wait(t.Context(), "order-17")
		must(t, err)
		want := []string{d.StepKey(secret, "order-17", "charge", false), d.StepKey(secret, "order-17", "charge", true)}
		if !slices.Equal(keys, want) || want[0] == want[1] || want[0] == d.StepKey(nil, "order-17", "charge", false) || want[0] == d.StepKey(secret, "order-18", "charge", false) {
			t.Errorf("the steps had the keys %q, want %q", keys, want)
		}
	})
}

func TestR85_AFinalRefusalIsNotTriedAgainAndWhatCameBeforeIsCompensatedInReverse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.fail["ship"] = func(int) error { return semel.Final(errors.New("no such address")) }
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge", "reserve", "ship"))
		defer p.end()
		_, err := p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		got := p.ends(t, "a")
		if got.State != saga.Compensated || got.Failure == nil || got.Failure.Step != "ship" || got.Failure.Error != "no such address" || !got.Failure.Final {
			t.Errorf("ended: %+v, %+v", got, got.Failure)
		}
		if want := []string{"charge", "reserve", "ship", "undo reserve", "undo charge"}; !slices.Equal(l.called(), want) {
			t.Errorf("called: %v", l.called())
		}
		if want := []string{"charge", "reserve", "undo reserve", "undo charge"}; !slices.Equal(got.Value.Done, want) {
			t.Errorf("the state has %v", got.Value.Done)
		}
	})
}

// Case 35: what is tried again is an error that is not final, and no more often than the step says. Then the step may
// have taken effect, and is compensated too.
func TestCase35_AnErrorIsTriedAgainAndAFinalOneIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		down := errors.New("it does not answer")
		l.fail["charge"] = func(n int) error { return []error{down, nil}[n-1] }
		l.fail["reserve"] = func(int) error { return down }
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge", "reserve", "ship"))
		defer p.end()
		_, err := p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		got := p.ends(t, "a")
		if got.State != saga.Compensated || got.Failure.Final || got.Failure.Step != "reserve" {
			t.Errorf("ended: %+v, %+v", got, got.Failure)
		}
		if want := []string{"charge", "charge", "reserve", "reserve", "undo reserve", "undo charge"}; !slices.Equal(l.called(), want) {
			t.Errorf("called: %v", l.called())
		}
	})
}

func TestCase34_ARepeatedStartReturnsTheSameSagaAndItsEndStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		s := memstore.New()
		p, q := newProcess(t, s, saga.Options{}, l.define(t, "charge", "ship")), newProcess(t, s, saga.Options{}, l.define(t, "charge", "ship"))
		defer p.end()
		defer q.end()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := []*process{p, q}[i%2].orders.Start(t.Context(), "a", order{Total: 1}); err != nil {
					t.Errorf("start: %v", err)
				}
			})
		}
		wg.Wait()
		first := q.ends(t, "a")
		again, err := p.orders.Start(t.Context(), "a", order{Total: 1})
		must(t, err)
		if again.State != saga.Done || !slices.Equal(again.Value.Done, first.Value.Done) || !again.EndedAt.Equal(first.EndedAt) {
			t.Errorf("started again: %+v, ended as %+v", again, first)
		}
		if _, err := p.orders.Start(t.Context(), "a", order{Total: 2}); !errors.Is(err, saga.ErrOtherInput) {
			t.Errorf("with another input: %v", err)
		}
		if want := []string{"charge", "ship"}; !slices.Equal(l.called(), want) {
			t.Errorf("called: %v", l.called())
		}
	})
}

// A compensation that fails for an hour is tried for an hour.
func TestR85_ACompensationIsTriedAgainForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		began := time.Now()
		l.fail["ship"] = func(int) error { return semel.Final(errors.New("no")) }
		l.fail["undo charge"] = func(int) error {
			if time.Since(began) < time.Hour {
				return errors.New("it does not answer")
			}
			return nil
		}
		p := newProcess(t, memstore.New(), saga.Options{}, l.define(t, "charge", "ship"))
		defer p.end()
		_, err := p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		time.Sleep(30 * time.Minute)
		status, err := p.orders.Status(t.Context(), "a")
		must(t, err)
		if status.State != saga.Compensating || !strings.Contains(status.Error, "it does not answer") {
			t.Errorf("after half an hour: %+v", status)
		}
		if got := p.ends(t, "a"); got.State != saga.Compensated || l.took("undo charge") != 1 {
			t.Errorf("ended: %+v", got)
		}
		if took := time.Since(began); took > 90*time.Minute {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestR85_AStuckCompensationIsListedAndTriedAgainByAnOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		s := &audited{Store: memstore.New()}
		desk, err := admin.New(s, admin.Options{Encryption: ring})
		must(t, err)
		l.fail["ship"] = func(int) error { return semel.Final(errors.New("no")) }
		l.fail["undo charge"] = func(n int) error { return []error{semel.Final(errors.New("the account is closed")), nil}[min(n, 2)-1] }
		p := newProcess(t, s, saga.Options{Desk: desk}, l.define(t, "charge", "ship"))
		defer p.end()
		for _, id := range []string{"stuck", "fine"} {
			if id == "fine" {
				delete(l.fail, "ship")
			}
			_, err := p.orders.Start(t.Context(), id, order{})
			must(t, err)
			p.ends(t, id)
		}
		var listed []string
		list := func(states ...saga.State) []string {
			listed = nil
			must(t, p.orders.List(t.Context(), func(s *saga.Status[order]) bool {
				listed = append(listed, s.ID+" "+string(s.State))
				return true
			}, states...))
			slices.Sort(listed)
			return listed
		}
		if got := list(saga.Stuck); !slices.Equal(got, []string{"stuck stuck"}) {
			t.Errorf("listed: %v", got)
		}
		if got := list(); !slices.Equal(got, []string{"fine done", "stuck stuck"}) {
			t.Errorf("listed: %v", got)
		}
		if got := list(saga.Compensated, saga.Running); len(got) != 0 {
			t.Errorf("listed: %v", got)
		}
		status, err := p.orders.Start(t.Context(), "stuck", order{})
		must(t, err)
		if status.State != saga.Stuck || !strings.Contains(status.Error, "the account is closed") || !strings.Contains(status.Error, "charge") {
			t.Errorf("started again: %+v", status)
		}
		by := admin.Decision{Actor: "ada", Reason: "the account is open again"}
		if err := p.orders.Retry(t.Context(), "fine", by); !errors.Is(err, saga.ErrNotStuck) {
			t.Errorf("retry of one that ended: %v", err)
		}
		must(t, p.orders.Retry(t.Context(), "stuck", by))
		for status = p.ends(t, "stuck"); status.State == saga.Stuck; status = p.ends(t, "stuck") {
			time.Sleep(time.Second)
		}
		if status.State != saga.Compensated || l.took("undo charge") != 1 {
			t.Errorf("ended: %+v", status)
		}
		if len(s.trail) == 0 || s.trail[0].Actor != "ada" || s.trail[0].Reason != "the account is open again" {
			t.Errorf("written down: %+v", s.trail)
		}
	})
}

func TestASagaIsCancelledBeforeItsNextStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		s := memstore.New()
		under, release := make(chan struct{}), make(chan struct{})
		l.fail["late"] = func(int) error { return nil }
		d, err := saga.Define("place-order", l.step("charge"), saga.Step[order]{
			Name: "wait", Do: func(context.Context, *order) error { close(under); <-release; return nil },
			Undo: func(ctx context.Context, _ *order) error { return l.call(ctx, "undo wait") },
		}, l.step("ship"))
		must(t, err)
		p := newProcess(t, s, saga.Options{}, d)
		defer p.end()
		other := newProcess(t, s, saga.Options{}, d)
		defer other.end()
		_, err = p.orders.Start(t.Context(), "a", order{})
		must(t, err)
		<-under
		must(t, other.orders.Cancel(t.Context(), "a"))
		close(release)
		got := p.ends(t, "a")
		if got.State != saga.Compensated || !got.Failure.Cancelled || got.Failure.Step != "ship" {
			t.Errorf("ended: %+v, %+v", got, got.Failure)
		}
		if want := []string{"charge", "undo wait", "undo charge"}; !slices.Equal(l.called(), want) {
			t.Errorf("called: %v", l.called())
		}
		if err := p.orders.Cancel(t.Context(), "a"); !errors.Is(err, saga.ErrEnded) {
			t.Errorf("cancelled after its end: %v", err)
		}
		must(t, p.orders.Cancel(t.Context(), "later"))
		_, err = p.orders.Start(t.Context(), "later", order{})
		must(t, err)
		if got := p.ends(t, "later"); got.State != saga.Compensated || len(l.called()) != 3 {
			t.Errorf("cancelled before its start: %+v, %v", got, l.called())
		}
	})
}

// failures are the completions that have failed, as the observer of a guard is told them.
type failures struct {
	mu   sync.Mutex
	errs []string
}

func (f *failures) Observe(_ context.Context, e event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Kind == event.CompletionFailed {
		f.errs = append(f.errs, e.Err.Error())
	}
}

func (f *failures) told() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.errs, "; ")
}

// A process that lacks the definition under which a saga began leaves it alone, loudly; a process that has it goes on.
func TestASagaKeepsTheDefinitionWithWhichItBegan(t *testing.T) {
	t.Parallel()
	version := func(t *testing.T, d *saga.Definition[order], version string) *saga.Definition[order] {
		d, err := d.WithVersion(version)
		must(t, err)
		return d
	}
	for _, c := range []struct {
		name string
		next func(t *testing.T, l *ledger) *saga.Definition[order]
		also bool // the first definition is registered too
		err  string
	}{
		{"registered beside the new one", func(t *testing.T, l *ledger) *saga.Definition[order] {
			return version(t, l.define(t, "check", "charge", "ship"), "2")
		}, true, ""},
		{"the same first step", func(t *testing.T, l *ledger) *saga.Definition[order] {
			return version(t, l.define(t, "charge", "check", "ship"), "2")
		}, true, ""},
		{"no longer registered", func(t *testing.T, l *ledger) *saga.Definition[order] {
			return version(t, l.define(t, "check", "charge", "ship"), "2")
		}, false, `it began under version "1", which is not registered here`},
		{"changed under the same version", func(t *testing.T, l *ledger) *saga.Definition[order] {
			return l.define(t, "charge", "check", "ship")
		}, false, "are others than those with which it began"},
	} {
		for _, step := range []string{"charge", "reserve"} {
			t.Run(c.name+", in "+step, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newLedger()
					s := memstore.New()
					v1 := l.define(t, "charge", "reserve", "ship")
					steps := v1.Steps()
					for i := range steps {
						steps[i].Retry.Backoff, steps[i].Retry.MaxBackoff = time.Hour, time.Hour
					}
					slow, err := saga.Define("place-order", steps...)
					must(t, err)
					l.fail[step] = func(n int) error { return []error{errors.New("not now"), nil}[min(n, 2)-1] }
					p := newProcess(t, s, saga.Options{}, slow)
					_, err = p.orders.Start(t.Context(), "a", order{})
					must(t, err)
					synctest.Wait()
					p.end() // between two tries of the step

					var earlier []*saga.Definition[order]
					if c.also {
						earlier = append(earlier, v1)
					}
					q := newProcess(t, s, saga.Options{}, c.next(t, l), earlier...)
					defer q.end()
					if c.err != "" {
						time.Sleep(time.Hour)
						if status, err := q.orders.Status(t.Context(), "a"); err != nil || status.State != saga.Running || status.Attempts != 1 {
							t.Errorf("without its definition: %+v, %v", status, err)
						}
						if !strings.Contains(q.told(), c.err) {
							t.Errorf("told: %q", q.told())
						}
						// A start that takes the saga over can't go on either.
						_, err := q.orders.Start(t.Context(), "a", order{})
						must(t, err)
						synctest.Wait()
						if status, err := q.orders.Status(t.Context(), "a"); err != nil || status.State != saga.Running || !strings.Contains(status.Error, c.err) {
							t.Errorf("started again: %+v, %v", status, err)
						}
						r := newProcess(t, s, saga.Options{}, v1)
						defer r.end()
						q = r
					}
					if got := q.ends(t, "a"); got.State != saga.Done {
						t.Errorf("ended: %+v", got)
					}
					if n := l.took("check"); n != 0 {
						t.Errorf("a step of the other version was done %d times", n)
					}
					if l.took("charge") != 1 || l.took("reserve") != 1 || l.took("ship") != 1 {
						t.Errorf("called: %v", l.called())
					}
				})
			})
		}
	}
}
