// Package saga runs business processes over several services, each of which ends done or compensated. A saga is one
// operation of a guard. Its steps are recovery points, so that a process that dies is taken over by another one, which
// goes on after the last saved step. If a step fails, the steps before it are compensated in reverse.
//
//	order, err := saga.Define("place-order",
//		saga.Step[Order]{Name: "charge", Do: charge, Undo: refund},
//		saga.Step[Order]{Name: "reserve", Do: reserve, Undo: release},
//		saga.Step[Order]{Name: "ship", Do: ship},
//	)
//	runner, err := saga.New(guard, saga.Options{})
//	orders, err := saga.Register(runner, order)
//	go runner.Run(ctx)
//	status, err := orders.Start(ctx, "order-17", Order{Total: 4200})
package saga

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/settings"
)

// A Step is one step of a saga, and what takes it back. S is the saga's state: whatever the steps tell each other.
type Step[S any] struct {
	// Name is the step's name within the saga: 1 to 100 letters, digits and "._-". The key that is derived for the step
	// comes from it ([Key]), so that a step that is renamed is another step.
	Name string
	// Do has the step's effect. It may change the state; what it changed is dropped if it returns an error. It can be
	// called again after any error, and after a crash, so that the service it calls has to recognise a repetition by
	// [Key], which package client sends by itself.
	//
	// An error that [semel.Final] has marked says that the service refused, and that nothing happened: it is not tried
	// again, and the steps before are compensated. So is this one, if it may have been called before: an earlier call can
	// have had the effect. Any other error is tried again, as Retry says. When that is exhausted, the step may have taken
	// effect, so that it is compensated too. A panic counts as an error.
	Do func(ctx context.Context, state *S) error
	// Undo takes the step back. It has to succeed if there is nothing to take back, and a call of Do that arrives later has
	// to be refused then: it can be that of a process that is thought dead. It is tried again, as Retry says. When
	// that is exhausted, the saga rests and a runner tries again, until Options.MaxAttempts; then it is stuck, until an
	// operator has it tried again ([Saga.Retry]). After a final error it is stuck at once. Defaults to nothing to undo.
	Undo func(ctx context.Context, state *S) error
	// Retry says how often Do and Undo are tried again within one run.
	Retry Retry
	// Timeout is when the context of one call of Do or Undo ends. Defaults to what is left of Options.MaxRun.
	Timeout time.Duration
}

// Retry says how often a step is tried, and how long it rests in between. The rest is shortened at random, by up to a
// half.
type Retry struct {
	// Attempts is how often it is tried. Negative means until it succeeds, or the run ends. Defaults to 5.
	Attempts int
	// Backoff is the first rest; it doubles each time, up to MaxBackoff. Defaults to 200 ms and 30 s.
	Backoff, MaxBackoff time.Duration
}

const (
	defaultAttempts   = 5
	defaultBackoff    = 200 * time.Millisecond
	defaultMaxBackoff = 30 * time.Second
)

func (r Retry) withDefaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = defaultAttempts
	}
	if r.Backoff == 0 {
		r.Backoff = defaultBackoff
	}
	if r.MaxBackoff == 0 {
		r.MaxBackoff = max(defaultMaxBackoff, r.Backoff)
	}
	return r
}

// Definition is a saga's name and steps, in one version. It is not changed once it is made.
type Definition[S any] struct {
	name    string
	version string
	steps   []Step[S]
	outline string // tells definitions apart that have the same version
}

// ErrDefinition means that a definition is not valid, or that the one under which a saga has begun is not registered.
var ErrDefinition = errors.New("saga definition")

// Define makes the definition of a saga. Its name has 1 to 100 letters, digits and "._-", and belongs to one set of
// definitions. It has at least one step. No two steps have the same name. The error says all that is wrong.
func Define[S any](name string, steps ...Step[S]) (*Definition[S], error) {
	var f settings.Faults
	err := checkName(name)
	f.If(err != nil, "its name: %w", err)
	f.If(len(steps) == 0, "it has no steps")
	seen := map[string]bool{}
	d := &Definition[S]{name: name, version: "1"}
	for i, step := range steps {
		err := checkName(step.Name)
		f.If(err != nil, "name of step %d: %w", i+1, err)
		f.If(seen[step.Name], "two steps have the name %q", step.Name)
		seen[step.Name] = true
		f.If(step.Do == nil, "step %q: Do is nil", step.Name)
		step.Retry = step.Retry.withDefaults()
		f.If(step.Retry.Backoff < 0 || step.Retry.MaxBackoff < step.Retry.Backoff,
			"step %q: Retry rests from %v to %v", step.Name, step.Retry.Backoff, step.Retry.MaxBackoff)
		f.If(step.Timeout < 0, "step %q: Timeout is negative: %v", step.Name, step.Timeout)
		d.steps = append(d.steps, step)
	}
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("define saga %q: %w: %w", name, ErrDefinition, err)
	}
	d.outline = outline(d.steps)
	return d, nil
}

// WithVersion returns the definition under another version. A saga keeps the version with which it began. Change the
// version whenever steps are added, removed, renamed or put into another order, and register the earlier definition
// beside the new one as long as sagas of it run. A process that lacks the version leaves the saga to others, and reports
// [event.CompletionFailed]. It is 1 to 100 letters, digits and "._-". Defaults to "1".
func (d *Definition[S]) WithVersion(version string) (*Definition[S], error) {
	if err := checkName(version); err != nil {
		return nil, fmt.Errorf("define saga %q: %w: its version: %w", d.name, ErrDefinition, err)
	}
	other := *d
	other.version = version
	return &other, nil
}

// Name returns the saga's name.
func (d *Definition[S]) Name() string { return d.name }

// Version returns the definition's version.
func (d *Definition[S]) Version() string { return d.version }

// Steps returns the steps in order, with the defaults filled in.
func (d *Definition[S]) Steps() []Step[S] { return append([]Step[S](nil), d.steps...) }

// StepKey returns the key that is derived for a step of the saga that was started as id, or for the step's compensation:
// what [Key] returns in its context, with a guard whose Options.DerivationSecret is secret. It is for other engines that
// run the definition, and for those who look for an effect by its key.
func (d *Definition[S]) StepKey(secret []byte, id, step string, undo bool) string {
	if undo {
		step = undoPrefix + step
	}
	return digest.New(secret).DerivedKey(string(semel.KindSaga), d.name, id, step)
}

func outline[S any](steps []Step[S]) string {
	sum := sha256.New()
	for _, step := range steps {
		fmt.Fprintln(sum, step.Name, step.Undo != nil)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func checkName(name string) error {
	const longest = 100
	if name == "" {
		return errors.New("it is empty")
	}
	if len(name) > longest {
		return fmt.Errorf("it has %d bytes, want at most %d", len(name), longest)
	}
	if i := strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}); i >= 0 {
		return fmt.Errorf("it is %q, want letters, digits and ._- only", name)
	}
	return nil
}
