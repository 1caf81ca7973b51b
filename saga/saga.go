package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// A Saga starts and shows the sagas of one name. It is made by [Register].
type Saga[S any] struct {
	runner      *Runner
	definitions []*Definition[S] // the first is for new sagas
}

// State says how far a saga is.
type State string

// The states of a saga. Done and Compensated are ends: they stay.
const (
	Running      State = "running"      // or waiting to go on
	Compensating State = "compensating" // a step has failed
	Done         State = "done"
	Compensated  State = "compensated"
	Stuck        State = "stuck" // it waits for an operator
)

// Ended reports whether a saga in this state does not go on by itself.
func (s State) Ended() bool { return s == Done || s == Compensated || s == Stuck }

// Status is what is known of a saga.
type Status[S any] struct {
	ID          string // as it was started
	Operation   string // the public id of its operation, for operators' tools
	State       State
	Value       S        // the state after the last step; zero before the end, and if it was too large to be kept
	Failure     *Failure // why it was compensated; nil before the end, and if the state was too large
	Saved       []string // names of the steps that are saved, in alphabetical order; "undo " begins that of a compensation
	Error       string   // of the last run, if the saga goes on in another one or is stuck
	Attempts    int      // its runs, from 1
	Began       time.Time
	LastStarted time.Time // when its last run began
	EndedAt     time.Time // zero before the end
}

var (
	// ErrNotFound means that there is no saga of the id: none was started, or it is no longer remembered.
	ErrNotFound = errors.New("no such saga")
	// ErrOtherInput means that a saga of the id was started with another input.
	ErrOtherInput = errors.New("the saga was started with another input")
	// ErrEnded means that the saga has ended, so that it can't be cancelled.
	ErrEnded = errors.New("the saga has ended")
	// ErrNotStuck means that no operator has to decide about the saga.
	ErrNotStuck = errors.New("the saga is not stuck")
)

func (s *Saga[S]) name() string { return s.definitions[0].name }

func (s *Saga[S]) key(id string) semel.Key {
	return semel.Key{Kind: semel.KindSaga, Scope: s.name(), Operation: "saga " + s.name(), Value: id}
}

func (s *Saga[S]) cancelKey(id string) semel.Key {
	return semel.Key{Kind: semel.KindSaga, Scope: "cancel " + s.name(), Operation: "cancel saga " + s.name(), Value: id}
}

func (s *Saga[S]) failed(what, id string, err error) error {
	return fmt.Errorf("%s saga %s %q: %w", what, s.name(), id, err)
}

// Start starts a saga, and returns once it is certain to come to an end, whatever becomes of this process. The id is a
// key of semel: 1 to 255 visible ASCII characters other than quote, backslash, comma and semicolon. A repeated start
// with an equal input returns the same saga, whatever its state. With another input the error is [ErrOtherInput]. After
// any other error the saga may have been started all the same: start it again.
//
// ctx bounds the wait, not the saga. The steps get its values as long as this process runs the saga; another run has
// none of them, so that what a step needs belongs into the input or the state.
func (s *Saga[S]) Start(ctx context.Context, id string, input S) (*Status[S], error) {
	body, err := json.Marshal(input)
	if err != nil {
		return nil, s.failed("start", id, fmt.Errorf("encode its input: %w", err))
	}
	beginning, err := s.definitions[0].begin(body)
	if err != nil {
		return nil, s.failed("start", id, err)
	}
	begun, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		err := errors.New("a step has ended its goroutine")
		defer func() { ended <- err }()
		_, err = semel.Do(context.WithoutCancel(ctx), s.runner.guard, s.key(id), beginning, func(ctx context.Context) (ending, error) {
			begun <- semel.FromContext(ctx).ID()
			return s.run(ctx, id)
		})
	}()
	select {
	case operation := <-begun:
		return &Status[S]{ID: id, Operation: operation, State: Running, Attempts: 1}, nil
	case <-ctx.Done():
		return nil, s.failed("start", id, ctx.Err())
	case err = <-ended:
	}
	select {
	case <-begun:
		err = nil
	default:
	}
	switch {
	case errors.Is(err, refusal.KeyReused):
		return nil, s.failed("start", id, ErrOtherInput)
	case err == nil, errors.Is(err, refusal.InProgress), errors.Is(err, refusal.OutcomeUnknown), errors.Is(err, refusal.OutcomePending):
		return s.Status(ctx, id)
	}
	return nil, s.failed("start", id, err)
}

// Status tells how far a saga is. The error is [ErrNotFound] if there is none, or one of the store.
func (s *Saga[S]) Status(ctx context.Context, id string) (*Status[S], error) {
	call, err := s.runner.guard.Look(ctx, s.key(id))
	if err != nil {
		return nil, s.failed("look at", id, err)
	}
	status, err := s.status(call)
	if err != nil {
		return nil, s.failed("look at", id, err)
	}
	return status, nil
}

func (s *Saga[S]) status(call *semel.CallStatus) (*Status[S], error) {
	status := &Status[S]{
		ID: call.Key.Value, Operation: call.ID, State: phase(call.Steps), Saved: call.Steps, Error: call.Error,
		Attempts: call.Attempts, Began: call.Created, LastStarted: call.Started,
	}
	switch call.Reading {
	case driver.ReadsAbsent, driver.ReadsExpired:
		return nil, ErrNotFound
	case driver.ReadsUnknown:
		status.State = Stuck
	case driver.ReadsDone:
		status.EndedAt = call.Ended
		if status.State = Done; phase(call.Steps) == Compensating {
			status.State = Compensated
		}
		var end ending
		switch err := call.Result(&end); {
		case errors.Is(err, semel.ErrNoResult):
			return status, nil // it was too large to be kept
		case err != nil:
			return nil, err
		}
		if err := json.Unmarshal(end.State, &status.Value); err != nil {
			return nil, fmt.Errorf("decode its state: %w", err)
		}
		status.Failure = end.Failure
	}
	return status, nil
}

// Wait waits until the saga has ended or is stuck, or ctx ends.
func (s *Saga[S]) Wait(ctx context.Context, id string) (*Status[S], error) {
	const first, last = 5 * time.Millisecond, 500 * time.Millisecond
	for rest := first; ; rest = min(2*rest, last) {
		status, err := s.Status(ctx, id)
		if err != nil || status.State.Ended() {
			return status, err
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return status, s.failed("wait for", id, ctx.Err())
		}
	}
}

// Cancel has a saga compensate what it has done, instead of doing the next step. A step that is under way ends first.
// A saga that is compensated already goes on with that. A cancelled saga that is started only later does no step. The
// error is [ErrEnded] if it has ended. A nil error does not say that the saga will be compensated: it may have done its
// last step meanwhile; [Saga.Wait] tells.
func (s *Saga[S]) Cancel(ctx context.Context, id string) error {
	status, err := s.Status(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case status.State == Done || status.State == Compensated:
		return s.failed("cancel", id, ErrEnded)
	}
	_, err = semel.Do(ctx, s.runner.marks, s.cancelKey(id), semel.Bytes("cancel"), func(context.Context) (bool, error) { return true, nil })
	if err != nil {
		return s.failed("cancel", id, err)
	}
	return nil
}

// List calls yield for the sagas that are remembered, in no particular order, until yield returns false. With states
// it gives only those in one of them. An error names each saga that could not be read; yield got all others.
func (s *Saga[S]) List(ctx context.Context, yield func(*Status[S]) bool, states ...State) error {
	wanted := func(any ...State) bool {
		return len(states) == 0 || slices.ContainsFunc(any, func(s State) bool { return slices.Contains(states, s) })
	}
	var found []semel.Key
	var unreadable []error
	err := s.runner.guard.LookAll(ctx, semel.KindSaga, s.name(), func(call *semel.CallStatus) bool {
		perhaps := []State{Running, Compensating}
		switch call.Reading {
		case driver.ReadsDone:
			perhaps = []State{Done, Compensated}
		case driver.ReadsUnknown:
			perhaps = []State{Stuck}
		}
		switch {
		case !wanted(perhaps...):
		case call.Key.Value == "":
			unreadable = append(unreadable, fmt.Errorf("operation %s: its id can't be read", call.ID))
		default:
			found = append(found, call.Key)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("list sagas %s: %w", s.name(), err)
	}
	for _, key := range found {
		status, err := s.Status(ctx, key.Value)
		switch {
		case errors.Is(err, ErrNotFound): // it has gone meanwhile
		case ctx.Err() != nil:
			return err
		case err != nil:
			unreadable = append(unreadable, err)
		case wanted(status.State) && !yield(status):
			return nil
		}
	}
	return errors.Join(unreadable...)
}

// Retry has a stuck saga go on: what failed is tried again. An operator decides this, who is written down with a reason
// (Options.Desk). The error is [ErrNotStuck] if the saga is not stuck.
func (s *Saga[S]) Retry(ctx context.Context, id string, by admin.Decision) error {
	if s.runner.o.Desk == nil {
		return s.failed("retry", id, errors.New("the runner has no Options.Desk"))
	}
	status, err := s.Status(ctx, id)
	if err != nil {
		return err
	}
	if status.State != Stuck {
		return s.failed("retry", id, ErrNotStuck)
	}
	operation, err := driver.ParseID(status.Operation)
	if err != nil {
		return s.failed("retry", id, err)
	}
	if _, err := s.runner.o.Desk.Release(ctx, operation, by); err != nil {
		return s.failed("retry", id, err)
	}
	return nil
}
