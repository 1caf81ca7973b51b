package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/thrown"
)

// Step runs fn once for a name within the operation of ctx: it is a recovery point. When fn has returned without an
// error, its result is saved with the operation's record, if the run still owns it. A later run of the operation, in
// whatever process, gets that result instead of running fn. An error of fn is returned as it is, and nothing is saved.
//
// A process can die after fn's effect and before its result is saved. So the service that fn calls has to recognise a
// repetition. It does so by the key that [StepKey] finds in fn's context, which is the same in every run, and which
// package client sends by itself. fn should have one effect; two different calls need a step each. fn gets ctx's
// deadline and cancellation.
//
// A name stands for one step: 1 to 255 bytes of UTF-8 without NUL. Do not make it from anything that may differ in a
// later run. Steps may run at the same time. If the code of a step changes so that older results do not fit, change the
// name.
//
// With these errors fn has not run, and the value is zero:
//
//   - [ErrStepTaken] if the name was used before in this run;
//   - [ErrStepInTx] within a transaction: the step's effect is elsewhere, and the transaction could undo the step;
//   - [ErrSettled] once the operation has ended;
//   - the cause of the end ([ErrFenced], [ErrLeaseLost], [ErrMaxRun]), if ctx or the run's own context has ended before
//     fn began;
//   - one that wraps [errors.ErrUnsupported] if the store is no [driver.StepStore];
//   - one of the store, or of [Options].StepCodec, if a saved result can't be read.
//
// After other errors fn may have had its effect, and its value is returned with the error. [ErrFenced] means that the
// run lost the operation while fn ran: do not use the value then. There is also an error if the result can't be
// encoded, is above Options.MaxStepResult, or can't be saved. If this error is answered as a 5xx, or returned from the
// function of [Do], a later run under [driver.Rerun] comes to the step again.
//
// Without an operation, as for a request without a key, and in observe mode, fn just runs.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (value T, err error) {
	if err := checkName(name); err != nil {
		return value, fmt.Errorf("semel: step: %w", err)
	}
	op := FromContext(ctx)
	if op == nil || op.observed {
		return fn(ctx)
	}
	r, codec := op.run, &op.core.steps
	saved, found, err := r.TakeStep(ctx, name)
	if err != nil {
		return value, stepError(name, err)
	}
	kept := false
	defer func() {
		if !kept {
			r.GiveStepBack(name)
		}
	}()
	if found {
		value, err = decodeStep[T](codec, name, saved)
		kept = err == nil
		return value, err
	}
	r.Touch()
	if value, err = fn(context.WithValue(ctx, stepKey{}, &step{op: op, name: name})); err != nil {
		return value, err
	}
	result, err := codec.marshal(value)
	if err != nil {
		return value, stepError(name, fmt.Errorf("encode the result: %w", err))
	}
	if int64(len(result)) > codec.limit {
		return value, stepError(name, fmt.Errorf("save the result: it has %d bytes, Options.MaxStepResult allows %d", len(result), codec.limit))
	}
	if err := r.SaveStep(name, result); err != nil {
		return value, stepError(name, err)
	}
	saved, doubted, err := r.SavedFirst(name)
	if err != nil {
		return value, stepError(name, err)
	}
	if doubted {
		value, err = decodeStep[T](codec, name, saved)
	}
	kept = err == nil
	return value, err
}

func decodeStep[T any](codec *stepOptions, name string, saved []byte) (T, error) {
	var value, zero T
	if err := codec.unmarshal(saved, &value); err != nil {
		return zero, stepError(name, fmt.Errorf("decode the saved result: %w", err))
	}
	return value, nil
}

// KeepsSteps reports whether the guard's store is a [driver.StepStore], without which [Step] fails.
func (g *Guard) KeepsSteps() bool {
	_, ok := g.engine.Store().(driver.StepStore)
	return ok
}

// SavedSteps returns the names of the steps that earlier runs of ctx's operation have saved, in order. A later run can
// tell from them how far the operation has come, for example which version of the code has begun it. It returns none
// without an operation.
func SavedSteps(ctx context.Context) ([]string, error) {
	op := FromContext(ctx)
	if op == nil || op.observed {
		return nil, nil
	}
	names, err := op.run.SavedSteps(ctx)
	if err != nil {
		return nil, fmt.Errorf("semel: saved steps: %w", err)
	}
	return names, nil
}

// StepKey returns the key that is derived for the step whose function got ctx: [Operation.Key] of the step's name, or
// the key of [WithStepKey]. ok is false outside of steps.
func StepKey(ctx context.Context) (key string, ok bool) {
	s, _ := ctx.Value(stepKey{}).(*step)
	switch {
	case s == nil || FromContext(ctx) != s.op:
		return "", false
	case s.given != "":
		return s.given, true
	}
	return s.op.Key(s.name), true
}

// WithStepKey returns a context in which [StepKey] returns the given key, up to the next operation or step within. It is
// for engines that run steps which are none of [Step], such as a workflow's, under keys of their own. An empty key is
// none.
func WithStepKey(ctx context.Context, key string) context.Context {
	if key == "" {
		return context.WithValue(ctx, stepKey{}, (*step)(nil))
	}
	return context.WithValue(ctx, stepKey{}, &step{op: FromContext(ctx), given: key})
}

type stepKey struct{}

// A step is one call of Step whose function runs, or a key that was given instead.
type step struct {
	op    *Operation
	name  string
	given string
}

func stepError(name string, err error) error { return fmt.Errorf("semel: step %q: %w", name, err) }

// checkName reports why a text can't be the name of a step, or of an operation of Do.
func checkName(name string) error {
	const longest = 255
	switch {
	case name == "":
		return errors.New("its name is empty")
	case len(name) > longest:
		return fmt.Errorf("its name has %d bytes, want at most %d", len(name), longest)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("its name %q is not UTF-8 without NUL", name)
	}
	return nil
}

// A StepCodec encodes and decodes the results of steps. It is called concurrently. As long as operations last, a later
// version of a program must be able to decode what an earlier version encoded. Unmarshal must not change data, and must
// copy the parts of data that it keeps: a store may share data.
type StepCodec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// stepOptions are what all steps of a guard share.
type stepOptions struct {
	codec StepCodec
	limit int64
}

func (s *stepOptions) marshal(value any) (result []byte, err error) {
	defer thrown.Catch(&err)
	return s.codec.Marshal(value)
}

func (s *stepOptions) unmarshal(saved []byte, value any) (err error) {
	defer thrown.Catch(&err)
	return s.codec.Unmarshal(saved, value)
}
