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

// A saved is what is stored of a step: the state after it, or why it failed.
type saved struct {
	State   json.RawMessage `json:"state,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
}

// A Failure says why a saga is compensated.
type Failure struct {
	Step  string `json:"step"`  // the one that failed, or before which the saga was cancelled
	Error string `json:"error"` // of its last try, up to 4 KiB
	// Final says that nothing of the step has to be taken back: it refused the first time it was called, or was not called.
	Final     bool `json:"final,omitempty"`
	Cancelled bool `json:"cancelled,omitempty"`
}

// An ending is the stored result of a saga.
type ending struct {
	State   json.RawMessage `json:"state"`
	Failure *Failure        `json:"failure,omitempty"`
}

// A beginning is what is stored of a saga when it begins: its input, and the definition under which it runs to its end.
type beginning struct {
	Version string          `json:"version"`
	Outline string          `json:"outline"`
	Input   json.RawMessage `json:"input"`

	stored []byte // its own encoding
}

func (d *Definition[S]) begin(input []byte) (*beginning, error) {
	b := &beginning{Version: d.version, Outline: d.outline, Input: input}
	var err error
	if b.stored, err = json.Marshal(b); err != nil {
		return nil, fmt.Errorf("encode its input: %w", err)
	}
	return b, nil
}

func decodeBeginning(stored []byte) (*beginning, error) {
	b := &beginning{stored: stored}
	if err := json.Unmarshal(stored, b); err != nil {
		return nil, fmt.Errorf("decode its beginning: %w", err)
	}
	return b, nil
}

// FingerprintBytes returns the input: a saga that is started again under a later definition is the same saga.
func (b *beginning) FingerprintBytes() ([]byte, error) { return b.Input, nil }

// StoredRequest returns what a later run goes by.
func (b *beginning) StoredRequest() []byte { return b.stored }

// definition returns the definition under which a saga began.
func (s *Saga[S]) definition(b *beginning) (*Definition[S], error) {
	for _, d := range s.definitions {
		switch {
		case d.version != b.Version:
		case d.outline != b.Outline:
			return nil, fmt.Errorf("%w: the steps of version %q are others than those with which it began", ErrDefinition, d.version)
		default:
			return d, nil
		}
	}
	return nil, fmt.Errorf("%w: it began under version %q, which is not registered here", ErrDefinition, b.Version)
}

// An execution is one run of a saga.
type execution[S any] struct {
	*Saga[S]
	id         string
	definition *Definition[S]
	had        []string // names that earlier runs have saved
	state      []byte   // after the last step, encoded
	// first says that no earlier run has called the step that comes next, or its compensation.
	first bool
}

// run runs a saga to its end. An error says that it has not ended: a later run goes on. It is never final, because a
// final error of Do is an end.
func (s *Saga[S]) run(ctx context.Context, id string) (ending, error) {
	x, err := s.execution(ctx, id)
	if err != nil {
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

func (s *Saga[S]) execution(ctx context.Context, id string) (*execution[S], error) {
	// The record's beginning counts, not that of this call: another process may have begun the saga, under another version.
	stored, err := semel.StoredRequest(ctx)
	if err != nil {
		return nil, err
	}
	began, err := decodeBeginning(stored)
	if err != nil {
		return nil, err
	}
	x := &execution[S]{Saga: s, id: id, state: began.Input, first: semel.FromContext(ctx).Attempt() == 1}
	if x.definition, err = s.definition(began); err != nil {
		return nil, err
	}
	if x.had, err = semel.SavedSteps(ctx); err != nil {
		return nil, err
	}
	return x, nil
}

// recall returns a result that an earlier run has saved.
func (x *execution[S]) recall(ctx context.Context, name string) (*saved, error) {
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
	failure, _, err := x.try(ctx, step, step.Name, step.Do)
	if failure == nil || err != nil {
		return nil, err
	}
	_, err = semel.Step(ctx, failedPrefix+step.Name, func(context.Context) (*saved, error) {
		return &saved{Failure: failure}, nil
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
		failure, refused, err := x.try(ctx, step, name, step.Undo)
		if err != nil {
			return err
		}
		if failure != nil {
			if refused {
				semel.FromContext(ctx).Unknown()
			}
			return fmt.Errorf("compensate step %q: %s (compensated because step %q failed: %s)", step.Name, failure.Error, why.Step, why.Error)
		}
	}
	return nil
}

// try calls Do or Undo of a step until it succeeds, refuses, or has failed often enough. An error ends the run.
func (x *execution[S]) try(ctx context.Context, step *Step[S], name string, call func(context.Context, *S) error) (failure *Failure, refused bool, err error) {
	for tries := 1; ; tries++ {
		if err := x.mayTry(ctx, name == step.Name); err != nil {
			if errors.Is(err, errCancelled) {
				return &Failure{Step: step.Name, Error: err.Error(), Final: x.first, Cancelled: true}, false, nil
			}
			return nil, false, err
		}
		var failed *failedCall
		result, err := semel.Step(ctx, name, func(ctx context.Context) (*saved, error) {
			var after []byte
			if after, failed = x.call(ctx, step, call); failed != nil {
				return nil, failed
			}
			return &saved{State: after}, nil
		})
		switch {
		case err == nil:
			x.state, x.first = result.State, true
			return nil, false, nil
		case failed == nil, ctx.Err() != nil:
			return nil, false, err // nothing was tried, or what it did could not be saved
		case failed.final, step.Retry.Attempts > 0 && tries >= step.Retry.Attempts:
			return &Failure{Step: step.Name, Error: failed.text, Final: failed.final && x.first}, failed.final, nil
		}
		x.first = false
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

// A failedCall says that a call of Do or Undo has failed. It wraps nothing: a final error of a step is no final error of
// the saga.
type failedCall struct {
	text  string
	final bool
}

func (f *failedCall) Error() string { return f.text }

// longestError bounds the text of an error, so that it can be saved whatever a service answers.
const longestError = 4 << 10

func callFailed(err error) *failedCall {
	text := err.Error()
	if len(text) > longestError {
		text = text[:longestError] + " …"
	}
	return &failedCall{strings.ToValidUTF8(text, "\uFFFD"), semel.IsFinal(err)}
}

// call calls Do or Undo once, and returns the state after it, encoded.
func (x *execution[S]) call(ctx context.Context, step *Step[S], call func(context.Context, *S) error) (after []byte, failed *failedCall) {
	defer func() {
		if value := recover(); value != nil {
			after, failed = nil, callFailed(thrown.Error(value))
		}
	}()
	if step.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, step.Timeout)
		defer cancel()
	}
	var state S
	if err := json.Unmarshal(x.state, &state); err != nil {
		return nil, callFailed(fmt.Errorf("decode the state before the step: %w", err))
	}
	if err := call(ctx, &state); err != nil {
		return nil, callFailed(err)
	}
	after, err := json.Marshal(state)
	if err != nil {
		return nil, callFailed(fmt.Errorf("encode the state after the step: %w", err))
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
