package semeltemporal

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/saga"
)

// A plan is what a workflow is started with. The workflow goes by it alone, and by nothing that a later program may have
// changed: so it is replayed as it went. It is also what one run of the workflow hands to the next.
type plan struct {
	Saga    string `json:"saga"`
	ID      string `json:"id"`
	Version string `json:"version"`
	Steps   []step `json:"steps"`

	Lease       time.Duration `json:"lease"`
	Backoff     time.Duration `json:"backoff"`
	MaxBackoff  time.Duration `json:"max_backoff"`
	MaxAttempts int           `json:"max_attempts"`

	State    json.RawMessage `json:"state"` // first the input, then that after the last step
	Progress progress        `json:"progress"`
}

type step struct {
	Name       string        `json:"name"`
	Undo       bool          `json:"undo"`
	Attempts   int           `json:"attempts"`
	Backoff    time.Duration `json:"backoff"`
	MaxBackoff time.Duration `json:"max_backoff"`
	Timeout    time.Duration `json:"timeout"`
}

// progress is how far a saga is. It answers the status query.
type progress struct {
	Done    int           `json:"done"` // steps that are done
	Failure *saga.Failure `json:"failure,omitempty"`
	Left    int           `json:"left"`            // with a failure: steps to be looked at, the last one first
	Saved   []string      `json:"saved,omitempty"` // steps and compensations that are done

	// Of the step or compensation that comes next.
	Called bool   `json:"called,omitempty"` // it may have been called
	Tries  int    `json:"tries,omitempty"`  // calls that have failed, in this round
	Rounds int    `json:"rounds,omitempty"` // rounds of a compensation that have failed
	Breaks int    `json:"breaks,omitempty"` // calls that did not count
	Error  string `json:"error,omitempty"`  // of the last call
	Stuck  bool   `json:"stuck,omitempty"`  // it waits for an operator
}

// An ending is the result of a workflow.
type ending struct {
	State   json.RawMessage `json:"state"`
	Failure *saga.Failure   `json:"failure,omitempty"`
	Saved   []string        `json:"saved,omitempty"`
}

const (
	statusQuery = "saga-status"
	retrySignal = "saga-retry"
)

// A retry is an operator's decision, as the workflow's history keeps it.
type retry struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
}

// workflow runs a saga to its end. A panic says that this worker can't go on with it: Temporal has it wait for one that
// can.
func (k *known[S]) workflow(ctx workflow.Context, p plan) (*ending, error) {
	if err := k.knows(&p); err != nil {
		panic(err)
	}
	err := workflow.SetQueryHandler(ctx, statusQuery, func() (progress, error) { return p.Progress, nil })
	if err != nil {
		return nil, err
	}
	return p.run(ctx)
}

// knows reports why a plan can't be gone by here.
func (k *known[S]) knows(p *plan) error {
	v, ok := k.versions[p.Version]
	if !ok {
		return fmt.Errorf("saga %q: %w: it began under version %q, which is not registered", p.Saga, saga.ErrDefinition, p.Version)
	}
	same := len(p.Steps) == len(v.steps)
	for i := range p.Steps {
		same = same && p.Steps[i].Name == v.steps[i].Name && p.Steps[i].Undo == (v.steps[i].Undo != nil)
	}
	if !same {
		return fmt.Errorf("saga %q: %w: the steps of version %q are others than those with which it began", p.Saga, saga.ErrDefinition, p.Version)
	}
	return nil
}

func (p *plan) run(ctx workflow.Context) (*ending, error) {
	// A call that is under way ends first, and compensations are not cancelled.
	calls, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	x := &p.Progress
	for x.Failure == nil && x.Done < len(p.Steps) {
		rest := p.forward(ctx, calls)
		if err := p.rest(ctx, rest); err != nil {
			return nil, err
		}
	}
	for x.Failure != nil && x.Left > 0 {
		rest := p.backward(calls)
		if err := p.rest(calls, rest); err != nil {
			return nil, err
		}
	}
	return &ending{p.State, x.Failure, x.Saved}, nil
}

// forward calls the next step once, and returns how long to rest.
func (p *plan) forward(ctx, calls workflow.Context) time.Duration {
	x, s := &p.Progress, &p.Steps[p.Progress.Done]
	if ctx.Err() != nil {
		p.fail(s, &failed{text: "the saga was cancelled", final: true}, true)
		return 0
	}
	f := p.call(calls, s, false)
	switch {
	case f == nil:
		x.Done++
		return 0
	case !f.counts:
		return p.broken(f)
	}
	x.Tries++
	if f.final || s.Attempts > 0 && x.Tries >= s.Attempts {
		p.fail(s, f, false)
		return 0
	}
	x.Called = true
	return p.jittered(pause.Backoff(s.Backoff, s.MaxBackoff, x.Tries))
}

// fail begins the compensation. A step that may have been called is compensated too, whatever it has said at last.
func (p *plan) fail(s *step, f *failed, cancelled bool) {
	x := &p.Progress
	failure := &saga.Failure{Step: s.Name, Error: f.text, Final: f.final && !x.Called, Cancelled: cancelled}
	left := x.Done + 1
	if failure.Final {
		left = x.Done
	}
	*x = progress{Done: x.Done, Saved: x.Saved, Failure: failure, Left: left}
}

// backward compensates the last step that is left, if that succeeds at once, and returns how long to rest. If it is
// stuck, it waits for an operator.
func (p *plan) backward(ctx workflow.Context) time.Duration {
	x, s := &p.Progress, &p.Steps[p.Progress.Left-1]
	if !s.Undo {
		x.Left--
		return 0
	}
	f := p.call(ctx, s, true)
	switch {
	case f == nil:
		x.Left--
		return 0
	case !f.counts:
		return p.broken(f)
	}
	x.Error = fmt.Sprintf("compensate step %q: %s (compensated because step %q failed: %s)", s.Name, f.text, x.Failure.Step, x.Failure.Error)
	x.Tries++
	again := !f.final
	if again && s.Attempts > 0 && x.Tries >= s.Attempts {
		x.Tries = 0
		x.Rounds++
		again = p.MaxAttempts < 0 || x.Rounds < p.MaxAttempts
	}
	switch {
	case again && x.Tries > 0:
		return p.jittered(pause.Backoff(s.Backoff, s.MaxBackoff, x.Tries))
	case again:
		return p.jittered(pause.Backoff(p.Backoff, p.MaxBackoff, x.Rounds))
	}
	signals := workflow.GetSignalChannel(ctx, retrySignal)
	for signals.ReceiveAsync(nil) { // what was decided before it was stuck does not count
	}
	x.Stuck = true
	signals.Receive(ctx, nil)
	x.Stuck, x.Tries, x.Rounds = false, 0, 0
	return 0
}

// broken returns how long to rest after a call that does not count.
func (p *plan) broken(f *failed) time.Duration {
	x := &p.Progress
	x.Called = x.Called || f.called
	x.Error = f.text
	x.Breaks++
	return p.jittered(pause.Backoff(p.Backoff, p.MaxBackoff, x.Breaks))
}

// rest waits. If the workflow's history has become long, the error has another run go on.
func (p *plan) rest(ctx workflow.Context, d time.Duration) error {
	if d > 0 {
		_ = workflow.Sleep(ctx, d) // cut short by a cancellation, which the next step finds
	}
	if ctx.Err() == nil && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return workflow.NewContinueAsNewError(ctx, workflowName(p.Saga), *p)
	}
	return nil
}

// jittered shortens a rest by up to a half, as random as the id, and the same in a replay.
func (p *plan) jittered(d time.Duration) time.Duration {
	h := fnv.New64a()
	fmt.Fprintln(h, p.ID, p.Progress.Left, p.Progress.Done, p.Progress.Tries, p.Progress.Rounds, p.Progress.Breaks)
	if half := uint64(d / 2); half > 0 {
		d -= time.Duration(h.Sum64() % half)
	}
	return max(d, 1)
}

// failed says how a call of a step has failed.
type failed struct {
	text   string
	final  bool // nothing happened, and nothing will
	counts bool // as a try
	called bool // for one that does not count: Do or Undo may have been called
}

// call calls a step, or its compensation, once. If it succeeds, the saga is as far.
func (p *plan) call(ctx workflow.Context, s *step, undo bool) *failed {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: s.Timeout + p.Lease, // by when a call that heeds its own timeout has ended
		HeartbeatTimeout:    p.Lease,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	var after result
	err := workflow.ExecuteActivity(ctx, activityName(p.Saga, s.Name, undo), call{p.ID, p.Version, p.State, s.Timeout, p.Lease}).Get(ctx, &after)
	if err != nil {
		return failedBy(err)
	}
	x := &p.Progress
	p.State = after.State
	*x = progress{Done: x.Done, Failure: x.Failure, Left: x.Left, Saved: append(x.Saved, savedName(s.Name, undo))}
	return nil
}

func failedBy(err error) *failed {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(err, &app):
		f := &failed{text: app.Message(), counts: true}
		switch app.Type() {
		case refusedCall:
			f.final = true
		case brokenCall:
			f.counts, f.called = false, true
		case unknownCall, unknownStep:
			f.counts = false
		}
		return f
	case errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT:
		return &failed{text: "the worker that had called it is gone", called: true}
	}
	return &failed{text: text(err), counts: true}
}
