package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/thrown"
)

// Key returns the key that is derived for the call of Do or Undo whose context it is: from the saga and the step, and
// for Undo another one ([Definition.StepKey]). It is the same each time the call is tried, in whatever process. ok is
// false outside of both.
func Key(ctx context.Context) (key string, ok bool) { return semel.StepKey(ctx) }

// Names of the saved steps besides those of the definition: a compensation, and the failure that it is for.
const (
	undoPrefix   = "undo "
	failedPrefix = "failed "
)

// A saved is what is stored of a step: the state after it, or why it failed, and the definition under which it ran.
type saved struct {
	Version string          `json:"version"`
	Outline string          `json:"outline"`
	State   json.RawMessage `json:"state,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
}

// A Failure says why a saga is compensated.
type Failure struct {
	Step  string `json:"step"`  // the one that failed, or before which the saga was cancelled
	Error string `json:"error"` // of its last try
	// Final says that the step has refused, so that nothing of it has to be taken back.
	Final     bool `json:"final,omitempty"`
	Cancelled bool `json:"cancelled,omitempty"`
}

// An ending is the stored result of a saga.
type ending struct {
	State   json.RawMessage `json:"state"`
	Failure *Failure        `json:"failure,omitempty"`
}

// An execution is one run of a saga.
type execution[S any] struct {
	*Saga[S]
	id         string
	definition *Definition[S]
	had        []string // names that earlier runs have saved
	first      *saved   // the result by which the definition was found
	state      []byte   // after the last step, encoded
}

// run runs a saga to its end. An error says that it has not ended: a later run goes on.
func (s *Saga[S]) run(ctx context.Context, id string, input []byte) (ending, error) {
	x := &execution[S]{Saga: s, id: id, definition: s.definitions[0], state: input}
	if err := x.begunUnder(ctx); err != nil {
		semel.FromContext(ctx).Unknown()
		return ending{}, err
	}
	failure, after, err := x.forwards(ctx)
	if err != nil {
		return ending{}, err
	}
	if failure != nil {
		if err := x.backwards(ctx, failure, after); err != nil {
			return ending{}, err
		}
	}
	return ending{x.state, failure}, nil
}

// begunUnder finds the definition under which the saga began, by what earlier runs have saved.
func (x *execution[S]) begunUnder(ctx context.Context) (err error) {
	if x.had, err = semel.SavedSteps(ctx); err != nil || len(x.had) == 0 {
		return err
	}
	for _, d := range x.definitions {
		name := d.steps[0].Name
		if !slices.Contains(x.had, name) {
			name = failedPrefix + name
		}
		if !slices.Contains(x.had, name) {
			continue
		}
		if x.first == nil {
			if x.first, err = x.recall(ctx, name); err != nil {
				return err
			}
		}
		switch {
		case x.first.Version != d.version:
		case x.first.Outline != d.outline():
			return fmt.Errorf("%w: the steps of version %q are others than those with which it began", ErrDefinition, d.version)
		default:
			x.definition = d
			return nil
		}
	}
	began := "one whose steps are unknown"
	if x.first != nil {
		began = fmt.Sprintf("version %q", x.first.Version)
	}
	return fmt.Errorf("%w: it began under %s, which is not registered", ErrDefinition, began)
}

// recall returns a result that an earlier run has saved.
func (x *execution[S]) recall(ctx context.Context, name string) (*saved, error) {
	if x.first != nil && (name == x.definition.steps[0].Name || name == failedPrefix+x.definition.steps[0].Name) {
		return x.first, nil // a step's result is taken once in a run
	}
	return semel.Step(ctx, name, func(context.Context) (*saved, error) {
		return nil, fmt.Errorf("the saved step %q is gone", name)
	})
}

// forwards does the steps. If one fails it returns why, and how many steps have to be compensated.
func (x *execution[S]) forwards(ctx context.Context) (failure *Failure, undo int, err error) {
	for i := range x.definition.steps {
		step := &x.definition.steps[i]
		if failure, err = x.forward(ctx, step); err != nil || failure != nil {
			if undo = i + 1; failure != nil && failure.Final {
				undo--
			}
			return failure, undo, err
		}
	}
	return nil, 0, nil
}

func (x *execution[S]) forward(ctx context.Context, step *Step[S]) (*Failure, error) {
	if failed := failedPrefix + step.Name; slices.Contains(x.had, failed) {
		result, err := x.recall(ctx, failed)
		if err != nil {
			return nil, err
		}
		return result.Failure, nil
	}
	if slices.Contains(x.had, step.Name) {
		result, err := x.recall(ctx, step.Name)
		if err == nil {
			x.state = result.State
		}
		return nil, err
	}
	failure, err := x.try(ctx, step, step.Name, step.Do)
	if failure == nil || err != nil {
		return nil, err
	}
	_, err = semel.Step(ctx, failedPrefix+step.Name, func(context.Context) (*saved, error) {
		return x.saved(nil, failure), nil
	})
	return failure, err
}

// backwards compensates the first steps, the last one first.
func (x *execution[S]) backwards(ctx context.Context, why *Failure, steps int) error {
	for i := steps - 1; i >= 0; i-- {
		step := &x.definition.steps[i]
		if step.Undo == nil {
			continue
		}
		name := undoPrefix + step.Name
		if slices.Contains(x.had, name) {
			result, err := x.recall(ctx, name)
			if err != nil {
				return err
			}
			x.state = result.State
			continue
		}
		failure, err := x.try(ctx, step, name, step.Undo)
		if err != nil {
			return err
		}
		if failure != nil {
			if failure.Final {
				semel.FromContext(ctx).Unknown()
			}
			return fmt.Errorf("compensate step %q: %s (compensated because step %q failed: %s)", step.Name, failure.Error, why.Step, why.Error)
		}
	}
	return nil
}

func (x *execution[S]) saved(state json.RawMessage, failure *Failure) *saved {
	return &saved{Version: x.definition.version, Outline: x.definition.outline(), State: state, Failure: failure}
}

// try calls Do or Undo of a step until it succeeds, refuses, or has failed often enough. An error ends the run.
func (x *execution[S]) try(ctx context.Context, step *Step[S], name string, call func(context.Context, *S) error) (*Failure, error) {
	for tries := 1; ; tries++ {
		if err := x.mayTry(ctx, name == step.Name); err != nil {
			if errors.Is(err, errCancelled) {
				// What was tried before may have taken effect.
				return &Failure{Step: step.Name, Error: err.Error(), Final: tries == 1, Cancelled: true}, nil
			}
			return nil, err
		}
		var failed error
		result, err := semel.Step(ctx, name, func(ctx context.Context) (*saved, error) {
			var state json.RawMessage
			if state, failed = x.call(ctx, step, call); failed != nil {
				return nil, failed
			}
			return x.saved(state, nil), nil
		})
		switch {
		case err == nil:
			x.state = result.State
			return nil, nil
		case failed == nil, ctx.Err() != nil:
			return nil, err // nothing was tried, or what it did could not be saved
		case semel.IsFinal(failed), step.Retry.Attempts > 0 && tries >= step.Retry.Attempts:
			return &Failure{Step: step.Name, Error: failed.Error(), Final: semel.IsFinal(failed) && tries == 1}, nil
		}
		select {
		case <-time.After(pause.Jitter(pause.Backoff(step.Retry.Backoff, step.Retry.MaxBackoff, tries))):
		case <-x.runner.stopping:
		case <-ctx.Done():
		}
	}
}

var errCancelled = errors.New("the saga was cancelled")

// mayTry says why the run has to stop before a call. Only a step that is still ahead can be cancelled.
func (x *execution[S]) mayTry(ctx context.Context, forward bool) error {
	select {
	case <-x.runner.stopping:
		return errStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	if !forward {
		return nil
	}
	mark, err := x.runner.marks.Look(ctx, x.cancelKey(x.id))
	switch {
	case err != nil:
		return fmt.Errorf("look whether it was cancelled: %w", err)
	case mark.Reading == driver.ReadsDone:
		return errCancelled
	}
	return nil
}

// call calls Do or Undo once, and returns the state after it, encoded.
func (x *execution[S]) call(ctx context.Context, step *Step[S], call func(context.Context, *S) error) (after []byte, err error) {
	defer thrown.Catch(&err)
	if step.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, step.Timeout)
		defer cancel()
	}
	var state S
	if err := json.Unmarshal(x.state, &state); err != nil {
		return nil, fmt.Errorf("decode the state before the step: %w", err)
	}
	if err := call(ctx, &state); err != nil {
		return nil, err
	}
	if after, err = json.Marshal(state); err != nil {
		return nil, fmt.Errorf("encode the state after the step: %w", err)
	}
	return after, nil
}

// phase says what the saved steps tell of a saga that has not ended.
func phase(steps []string) State {
	if slices.ContainsFunc(steps, func(name string) bool { return strings.HasPrefix(name, failedPrefix) }) {
		return Compensating
	}
	return Running
}
