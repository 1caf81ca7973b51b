package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/semelhq/semel/driver"
)

// steps are what a run knows about its operation's steps.
type steps struct {
	mu    sync.Mutex
	saved map[string][]byte // by earlier runs; nil until they are read
	some  bool              // there are saved steps
	taken map[string]bool   // names used by this run
	late  map[string]bool   // steps that this run saved without a reply: the save may still be executed
}

// TakeStep reserves a name for this run. It returns the result that an earlier run has saved, if there is one.
func (r *Run) TakeStep(ctx context.Context, name string) (result []byte, found bool, err error) {
	switch _, keeps := r.store.(driver.StepStore); {
	case !keeps:
		return nil, false, fmt.Errorf("the store, a %T, keeps no steps: %w", r.store, errors.ErrUnsupported)
	case r.inTx():
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
		if result, err = r.openStep(r.base, name, r.ask.ID, envelope); err != nil {
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

// SavedSteps returns the names of the steps that earlier runs have saved, in order.
func (r *Run) SavedSteps(ctx context.Context) ([]string, error) {
	s := &r.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.stepped && s.saved == nil {
		if err := r.loadSteps(ctx); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(s.saved)), nil
}

// mayStart says why no step may be begun any more, and no result be taken: the run, or the caller, has been told to
// stop.
func (r *Run) mayStart(ctx context.Context) error {
	for _, c := range []context.Context{&r.ctx, ctx} {
		if c.Err() != nil {
			return context.Cause(c)
		}
	}
	return nil
}

// GiveStepBack lets a name be used again, because its step has not been saved.
func (r *Run) GiveStepBack(name string) {
	s := &r.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, name)
}

// doubt makes the next step read the steps again: a save that got no reply may have been executed.
func (s *steps) doubt(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.some = nil, true
	if s.late == nil {
		s.late = map[string]bool{}
	}
	s.late[name] = true
}

// SavedFirst returns the result that counts for a step whose save was just acknowledged. It may be the result of
// another save: one of this run that got no reply, and was executed after the steps had been read again.
func (r *Run) SavedFirst(name string) (result []byte, doubted bool, err error) {
	s := &r.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.late[name] {
		return nil, false, nil
	}
	if err := r.loadSteps(r.base); err != nil {
		return nil, true, err
	}
	result, err = r.openStep(r.base, name, r.ask.ID, s.saved[name])
	return result, true, err
}

func stepField(name string) string { return "step " + name }

// loadSteps reads the results that earlier runs have saved. The caller holds the lock.
func (r *Run) loadSteps(ctx context.Context) error {
	var saved map[string][]byte
	err := r.repeat(ctx, r.few(), request{verb: "steps", id: r.ask.ID}, func(ctx context.Context) (err error) {
		saved, err = r.store.(driver.StepStore).Steps(ctx, r.ask.ID)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the saved steps: %w", err)
	}
	if r.steps.saved = saved; saved == nil {
		r.steps.saved = map[string][]byte{}
	}
	return nil
}

// SaveStep makes the result of a step durable. It tries for SettleWait, even if the handler's context ends: the step
// has had its effect.
func (r *Run) SaveStep(name string, result []byte) error {
	envelope := r.keyring.SealField(stepField(name), r.ask.ID, r.owner.Token, result)
	owned, err := false, errEnded
	defer func() {
		if err != nil {
			r.steps.doubt(name)
		}
	}()
	err = r.repeat(r.base, r.within(r.Policy.SettleWait), request{verb: "savestep", id: r.ask.ID}, func(ctx context.Context) (err error) {
		owned, err = r.store.(driver.StepStore).SaveStep(ctx, r.ask.ID, r.owner, name, envelope)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("save the result: %w", err)
	case owned:
		return nil
	case r.joint.closed.Load():
		return ErrSettled
	}
	r.lease.fenced()
	return ErrFenced
}
