package semeltemporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/thrown"
	"github.com/semelhq/semel/saga"
)

// A call is what an activity is started with: one call of Do or Undo.
type call struct {
	ID      string          `json:"id"` // of the saga
	Version string          `json:"version"`
	State   json.RawMessage `json:"state"` // before the call
	Timeout time.Duration   `json:"timeout"`
	Lease   time.Duration   `json:"lease"`
}

// A result is what an activity returns.
type result struct {
	State json.RawMessage `json:"state"` // after the call
}

// Types of the errors of activities.
const (
	failedCall  = "semel failed"
	refusedCall = "semel refused" // finally
	brokenCall  = "semel broken"  // the worker has stopped; the call may have had its effect
	unknownCall = "semel unknown" // the worker does not have the definition; nothing was called
	unknownStep = "ActivityNotRegisteredError"
)

// call calls Do or Undo once. The retries are the workflow's: it knows which errors count.
func (k *known[S]) call(ctx context.Context, name string, undo bool, c *call) (*result, error) {
	step, key, err := k.step(c, name, undo)
	if err != nil {
		return nil, temporal.NewNonRetryableApplicationError(err.Error(), unknownCall, nil)
	}
	ended := make(chan struct{})
	defer close(ended)
	go heartbeat(ctx, c.Lease, ended)
	after, err := k.timed(semel.WithStepKey(ctx, key), step, undo, c)
	switch {
	case err == nil:
		return &result{after}, nil
	case errors.Is(context.Cause(ctx), worker.ErrWorkerShutdown):
		return nil, temporal.NewNonRetryableApplicationError(text(err), brokenCall, nil)
	case semel.IsFinal(err):
		return nil, temporal.NewNonRetryableApplicationError(text(err), refusedCall, nil)
	}
	return nil, temporal.NewNonRetryableApplicationError(text(err), failedCall, nil)
}

func (k *known[S]) step(c *call, name string, undo bool) (*saga.Step[S], string, error) {
	v, ok := k.versions[c.Version]
	if !ok {
		return nil, "", fmt.Errorf("%w: version %q is not registered here", saga.ErrDefinition, c.Version)
	}
	for i := range v.steps {
		if step := &v.steps[i]; step.Name == name && (!undo || step.Undo != nil) {
			return step, v.definition.StepKey(k.secret, c.ID, name, undo), nil
		}
	}
	return nil, "", fmt.Errorf("%w: version %q has no %q here", saga.ErrDefinition, c.Version, savedName(name, undo))
}

func (k *known[S]) timed(ctx context.Context, step *saga.Step[S], undo bool, c *call) (after []byte, err error) {
	defer thrown.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var state S
	if err := json.Unmarshal(c.State, &state); err != nil {
		return nil, fmt.Errorf("decode the state before the step: %w", err)
	}
	do := step.Do
	if undo {
		do = step.Undo
	}
	if err := do(ctx, &state); err != nil {
		return nil, err
	}
	if after, err = json.Marshal(state); err != nil {
		return nil, fmt.Errorf("encode the state after the step: %w", err)
	}
	if len(after) > maxState {
		return nil, fmt.Errorf("encode the state after the step: it has %d bytes, want at most %d", len(after), maxState)
	}
	return after, nil
}

// maxState bounds inputs and states. Temporal would end a workflow that starts an activity with more than 2 MiB.
const maxState = 1 << 20

// heartbeat shows that the worker lives, so that the call of a dead one is made again after a lease.
func heartbeat(ctx context.Context, lease time.Duration, ended <-chan struct{}) {
	t := time.NewTicker(max(lease/3, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			activity.RecordHeartbeat(ctx)
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// text returns what is kept of an error: services may answer with whole pages.
func text(err error) string {
	const longest = 4 << 10
	s := err.Error()
	if len(s) > longest {
		s = s[:longest]
	}
	return s
}
