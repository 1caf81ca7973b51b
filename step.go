package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/driver"
)

// Step runs fn once for a name within the operation of ctx: a recovery point. When fn has returned without an
// error its result is saved with the operation's record, as of the run that owns it, and a later run of the operation,
// whichever process has it, gets that result instead of running fn. An error of fn is returned as it is, and nothing is
// saved.
//
// A process can die after fn's effect and before its result is saved. So what fn calls has to recognise a repetition:
// by the key that [StepKey] finds in fn's context, which is the same in every run, and which package client sends by
// itself. fn should have one effect; two calls that are not the same need a step each. It gets ctx's deadline and
// cancellation.
//
// A name stands for one step: 1 to 255 bytes of UTF-8 without NUL, not made from what may differ in a later run. Steps
// may run at the same time. To tell what a change of the code has to go with, change the name.
//
// Errors besides fn's: [ErrStepTaken] if the name was used before in this run; [ErrStepInTx] within a transaction, in
// which a step could be undone that has had its effect elsewhere; [ErrSettled] once the operation has ended; the cause
// of its end, if ctx or the run's own context has ended before fn began ([ErrFenced], [ErrLeaseLost], [ErrMaxRun]); one
// that wraps [errors.ErrUnsupported] if the store is no [driver.StepStore]; one of the store, or of
// [Options].StepCodec, if what is saved can't be read. In all these cases fn has not run, and the value is zero.
// [ErrFenced] also comes if the run lost the operation while fn ran; and there is an error if the result can't be
// encoded, is above Options.MaxStepResult, or can't be saved. Then fn may have had its effect, and its value is
// returned along with the error: with that answered as a 5xx, or returned from the function of [Do], a later run under
// [driver.Rerun] will come to the step again. If the run was fenced the value counts for nothing.
//
// Without an operation, as for a request without a key, and in observe mode, fn just runs.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error)) (value T, err error) {
	if err := checkName(name); err != nil {
		return value, fmt.Errorf("semel: step: %w", err)
	}
	op := FromContext(ctx)
	if op == nil || op.run.joint.apart {
		return fn(ctx)
	}
	r := op.run
	saved, found, err := r.takeStep(ctx, name)
	if err != nil {
		return value, stepError(name, err)
	}
	kept := false
	defer func() {
		if !kept {
			r.steps.giveBack(name)
		}
	}()
	if found {
		value, err = decodeStep[T](r, name, saved)
		kept = err == nil
		return value, err
	}
	op.derived.Store(true)
	if value, err = fn(context.WithValue(ctx, stepKey{}, &step{op, name})); err != nil {
		return value, err
	}
	result, err := r.core.steps.marshal(value)
	if err != nil {
		return value, stepError(name, fmt.Errorf("encode the result: %w", err))
	}
	if err := r.saveStep(name, result); err != nil {
		return value, stepError(name, err)
	}
	saved, doubted, err := r.savedFirst(name)
	if err != nil {
		return value, stepError(name, err)
	}
	if doubted {
		value, err = decodeStep[T](r, name, saved)
	}
	kept = err == nil
	return value, err
}

func decodeStep[T any](r *run, name string, saved []byte) (T, error) {
	var value, zero T
	if err := r.core.steps.unmarshal(saved, &value); err != nil {
		return zero, stepError(name, fmt.Errorf("decode the saved result: %w", err))
	}
	return value, nil
}

// StepKey returns the key that is derived for the step in whose function ctx is given: [Operation.Key] of its name. ok
// is false outside of steps.
func StepKey(ctx context.Context) (key string, ok bool) {
	s, _ := ctx.Value(stepKey{}).(*step)
	if s == nil || FromContext(ctx) != s.op {
		return "", false
	}
	return s.op.Key(s.name), true
}

type stepKey struct{}

// A step is one whose function runs.
type step struct {
	op   *Operation
	name string
}

func stepError(name string, err error) error { return fmt.Errorf("semel: step %q: %w", name, err) }

// checkName reports why a text can't be the name of a step, or of what a call of Do asks for.
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

// A StepCodec encodes and decodes the results of steps. It is called concurrently. A later version of a program must be
// able to decode what an earlier one encoded, as long as operations last. Unmarshal must not change data, and must copy
// what it keeps of it: a store may share it.
type StepCodec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// stepOptions are what all steps of a guard share.
type stepOptions struct {
	store driver.StepStore // nil if the store keeps none
	codec StepCodec
	limit int64
}

func (s *stepOptions) marshal(value any) (result []byte, err error) {
	defer noReply(&err)
	return s.codec.Marshal(value)
}

func (s *stepOptions) unmarshal(saved []byte, value any) (err error) {
	defer noReply(&err)
	return s.codec.Unmarshal(saved, value)
}

func newStepOptions(store driver.Store, o *Options) stepOptions {
	s := stepOptions{codec: o.StepCodec, limit: o.MaxStepResult}
	if _, ok := store.(driver.StepStore); ok {
		s.store = verbs{store}
	}
	if s.codec == nil {
		s.codec = jsonCodec{}
	}
	if s.limit == 0 {
		s.limit = defaultMaxStepResult
	}
	return s
}

// steps are what a run knows of its operation's.
type steps struct {
	mu    sync.Mutex
	saved map[string][]byte // by earlier runs; nil as long as they are not read
	some  bool              // there are some
	taken map[string]bool   // by this run
	late  map[string]bool   // a save of this run got no reply: it may still be executed
}

// takeStep reserves a name for this run, and returns the result that an earlier run has saved, if one has.
func (r *run) takeStep(ctx context.Context, name string) (result []byte, found bool, err error) {
	switch store := r.core.steps.store; {
	case store == nil:
		return nil, false, fmt.Errorf("the store, a %T, keeps no steps: %w", r.core.store.own, errors.ErrUnsupported)
	case r.policy.OneCommit, r.joint.working.Load():
		return nil, false, ErrStepInTx
	case r.joint.closed.Load():
		return nil, false, ErrSettled
	}
	s := &r.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[name] {
		return nil, false, ErrStepTaken
	}
	if s.some && s.saved == nil {
		if err := r.loadSteps(ctx); err != nil {
			if stop := r.mayStart(ctx); stop != nil {
				err = stop
			}
			return nil, false, err
		}
	}
	if err := r.mayStart(ctx); err != nil {
		return nil, false, err
	}
	if envelope, ok := s.saved[name]; ok {
		if result, err = r.core.openStep(r.base, name, r.ask.id, envelope); err != nil {
			r.core.storeFailed(r.base, "steps", r.ask.id, err)
			return nil, false, err
		}
		found = true
	}
	if s.taken == nil {
		s.taken = map[string]bool{}
	}
	s.taken[name] = true
	return result, found, nil
}

// mayStart says why no step should be begun any more, nor its result be taken: the run, or the caller, has been told to
// stop.
func (r *run) mayStart(ctx context.Context) error {
	for _, c := range []context.Context{&r.ctx, ctx} {
		if c.Err() != nil {
			return context.Cause(c)
		}
	}
	return nil
}

// giveBack lets a name be used again: its step has not been saved.
func (s *steps) giveBack(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, name)
}

// doubt has the steps read again before the next one: one may have been saved whose save got no reply.
func (s *steps) doubt(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.some = nil, true
	if s.late == nil {
		s.late = map[string]bool{}
	}
	s.late[name] = true
}

// savedFirst returns the result that stays of a step whose save was just acknowledged, if that may be another one: of a
// save in this run that got no reply, and was executed after the step had been read again.
func (r *run) savedFirst(name string) (result []byte, doubted bool, err error) {
	s := &r.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.late[name] {
		return nil, false, nil
	}
	if err := r.loadSteps(r.base); err != nil {
		return nil, true, err
	}
	if result, err = r.core.openStep(r.base, name, r.ask.id, s.saved[name]); err != nil {
		r.core.storeFailed(r.base, "steps", r.ask.id, err)
	}
	return result, true, err
}

func stepField(name string) string { return "step " + name }

// loadSteps reads what earlier runs have saved. Its caller holds the lock.
func (r *run) loadSteps(ctx context.Context) error {
	window := newDeadline(ctx, min(claimWindow, r.core.life))
	defer window.end(nil)
	for try := 1; ; try++ {
		saved, err := r.core.steps.store.Steps(window, r.ask.id)
		if err == nil {
			if r.steps.saved = saved; saved == nil {
				r.steps.saved = map[string][]byte{}
			}
			return nil
		}
		if ctx.Err() == nil {
			r.core.storeFailed(r.base, "steps", r.ask.id, err)
		}
		if errors.Is(err, driver.ErrUnreadable) || try == claimTries || !pause(window, jitter(10*time.Millisecond<<try)) {
			return fmt.Errorf("read the saved steps: %w", err)
		}
	}
}

// saveStep makes the result of a step durable. It tries for SettleWait, whatever becomes of the handler's context: the
// effect is there.
func (r *run) saveStep(name string, result []byte) error {
	if limit := r.core.steps.limit; int64(len(result)) > limit {
		return fmt.Errorf("save the result: it has %d bytes, Options.MaxStepResult allows %d", len(result), limit)
	}
	envelope := r.core.keyring.SealField(stepField(name), r.ask.id, r.owner.Token, result)
	window := newDeadline(r.base, min(r.policy.SettleWait, r.core.life))
	defer window.end(nil)
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		owned, err := r.core.steps.store.SaveStep(window, r.ask.id, r.owner, name, envelope)
		switch {
		case err == nil && owned:
			return nil
		case err == nil && r.joint.closed.Load():
			return ErrSettled
		case err == nil:
			r.lease.fenced()
			return ErrFenced
		}
		r.core.storeFailed(r.base, "savestep", r.ask.id, err)
		if errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnreadable) || !pause(window, jitter(wait)) {
			r.steps.doubt(name)
			return fmt.Errorf("save the result: %w", err)
		}
	}
}
