package saga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
)

// Options are the settings of a [Runner]. The zero value of each field means the documented default.
type Options struct {
	// Retention is how long a saga that has ended is remembered: so long a repeated start finds it. Defaults to 30 days.
	Retention time.Duration
	// Lease is how long a run owns its saga without renewal: so long after the death of its process another one takes it
	// over. Defaults to 30 s.
	Lease time.Duration
	// MaxRun is the longest that one run may take. A saga that needs longer goes on in another run. Defaults to 15 min.
	MaxRun time.Duration
	// Interval is the time between two looks for sagas to go on with. Defaults to 5 s.
	Interval time.Duration
	// Backoff is how long a saga rests whose run has ended without an end; it doubles with each run, up to MaxBackoff.
	// Defaults to 1 s and 5 min.
	Backoff, MaxBackoff time.Duration
	// MaxAttempts is how many runs a saga has before it counts as stuck, those that ended with their process included.
	// Negative means no limit. Defaults to 30, which with the other defaults is about two hours.
	MaxAttempts int
	// Concurrency is how many sagas a runner goes on with at once. Those that are started here do not count. Defaults to 8.
	Concurrency int
	// Desk is for [Saga.Retry]: it writes down who has decided. Defaults to none, so that Retry fails.
	Desk *admin.Desk
}

// A Runner runs the sagas of one guard's store that are registered with it. Several processes may have one each: a saga
// whose process has died is taken over by another one.
type Runner struct {
	guard     *semel.Guard // for sagas
	marks     *semel.Guard // for cancellations
	completer *semel.Completer
	o         Options
	stopping  chan struct{}
	stop      sync.Once

	mu    sync.Mutex
	sagas map[string]func(ctx context.Context, key semel.Key, b *beginning) error
}

// maxEnding lets every end be stored: the state in it was stored as the result of a step, which has a limit of its own.
const maxEnding = 1 << 30

// New returns a runner. The guard's store has to keep steps and to be listable, as all of semel's are but the memory
// store's cache; and the guard needs Options.Encryption, because the inputs of sagas are stored. A saga uses nothing of
// the guard's own policy.
func New(guard *semel.Guard, o Options) (*Runner, error) {
	const day = 24 * time.Hour
	o.Retention = cmp.Or(o.Retention, 30*day)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 30)
	r := &Runner{o: o, stopping: make(chan struct{}), sagas: map[string]func(context.Context, semel.Key, *beginning) error{}}
	policy := semel.Policy{
		OnLost: semel.Rerun, Complete: true, Retention: o.Retention, Lease: o.Lease, MaxRun: o.MaxRun,
		MaxResponseBody: maxEnding,
	}
	completing := semel.CompleterOptions{
		Do:       map[semel.Kind]func(context.Context, semel.Key, []byte) error{semel.KindSaga: r.resume},
		Interval: o.Interval, Backoff: o.Backoff, MaxBackoff: o.MaxBackoff, MaxAttempts: o.MaxAttempts, Concurrency: o.Concurrency,
	}
	_, err := guard.Completer(nil, completing) // says what the guard lacks
	if err = errors.Join(policy.Validate(), err); !guard.KeepsSteps() {
		err = errors.Join(err, fmt.Errorf("the guard's store keeps no steps: %w", errors.ErrUnsupported))
	}
	if err != nil {
		return nil, fmt.Errorf("new saga runner: %w", err)
	}
	r.guard = guard.Route(policy)
	marking := semel.Policy{OnLost: semel.Rerun, Retention: o.Retention, Lease: o.Lease, MaxRun: o.MaxRun, Wait: cancelWait}
	r.marks = guard.Route(marking)
	if r.completer, err = r.guard.Completer(nil, completing); err != nil {
		return nil, fmt.Errorf("new saga runner: %w", err)
	}
	return r, nil
}

// cancelWait is how long a call of Cancel waits for another one of the same saga.
const cancelWait = 5 * time.Second

// Run goes on with sagas that no process runs, until ctx ends: those of dead processes, those whose last run has ended
// without an end, and those that an operator has set free. Then it has the runs of this process stop at the next step,
// waits for the ones that it has started, and returns ctx's error. For those that were started here, wait with the
// guard's Drain. Run it once.
func (r *Runner) Run(ctx context.Context) error {
	defer r.stop.Do(func() { close(r.stopping) })
	stop := context.AfterFunc(ctx, func() { r.stop.Do(func() { close(r.stopping) }) })
	defer stop()
	return r.completer.Run(ctx)
}

// errStopping ends a run because its process ends. Another run goes on with the saga.
var errStopping = errors.New("the process is stopping")

// resume goes on with a saga whose run has ended without an end. It leaves a saga that it can't run to other processes.
func (r *Runner) resume(ctx context.Context, key semel.Key, request []byte) error {
	r.mu.Lock()
	run := r.sagas[key.Scope]
	r.mu.Unlock()
	if run == nil {
		return fmt.Errorf("saga %q: %w: it is not registered here", key.Scope, ErrDefinition)
	}
	b, err := decodeBeginning(request)
	if err != nil {
		return err
	}
	return run(ctx, key, b)
}

// Register makes a saga known to a runner. Sagas begin under the first definition. The earlier ones are those under
// which sagas still run; all have the same name, and a version each. Register before [Runner.Run].
func Register[S any](r *Runner, definition *Definition[S], earlier ...*Definition[S]) (*Saga[S], error) {
	s := &Saga[S]{runner: r, definitions: append([]*Definition[S]{definition}, earlier...)}
	versions := map[string]bool{}
	for _, d := range s.definitions {
		switch {
		case d == nil:
			return nil, fmt.Errorf("register saga: %w: it is nil", ErrDefinition)
		case d.name != definition.name:
			return nil, fmt.Errorf("register saga %q: %w: an earlier one has the name %q", definition.name, ErrDefinition, d.name)
		case len(d.steps) == 0:
			return nil, fmt.Errorf("register saga %q: %w: it has no steps", d.name, ErrDefinition)
		case versions[d.version]:
			return nil, fmt.Errorf("register saga %q: %w: two have the version %q", d.name, ErrDefinition, d.version)
		}
		versions[d.version] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sagas[definition.name] != nil {
		return nil, fmt.Errorf("register saga %q: %w: the name is registered already", definition.name, ErrDefinition)
	}
	r.sagas[definition.name] = func(ctx context.Context, key semel.Key, b *beginning) error {
		if _, err := s.definition(b); err != nil {
			return err
		}
		_, err := semel.Do(ctx, r.guard, key, b, func(ctx context.Context) (ending, error) { return s.run(ctx, key.Value) })
		return err
	}
	return s, nil
}
