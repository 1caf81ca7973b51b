package semeltemporal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/semelhq/semel/saga"
)

// Options are the settings of the sagas that a [Saga] starts. A saga keeps those with which it began. The zero value of
// each field means the documented default.
type Options struct {
	// Lease is how long a worker that calls a step may be silent: so long after its death another one makes the call
	// again. Defaults to 30 s.
	Lease time.Duration
	// Timeout bounds one call of a step that has no Timeout of its own. Defaults to 15 min.
	Timeout time.Duration
	// Backoff is how long a saga rests after a compensation has failed as often as its step's Retry says; it doubles each
	// time, up to MaxBackoff. Defaults to 1 s and 5 min.
	Backoff, MaxBackoff time.Duration
	// MaxAttempts is how often that happens before the saga counts as stuck. Negative means no limit. Defaults to 30.
	MaxAttempts int
}

// A Saga starts and shows the sagas of one definition. It is made by [New].
type Saga[S any] struct {
	client     client.Client
	taskQueue  string
	definition *saga.Definition[S]
	o          Options
}

// New returns what starts sagas of a definition. The task queue is that of the workers with which it is registered.
func New[S any](c client.Client, taskQueue string, definition *saga.Definition[S], o Options) (*Saga[S], error) {
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Minute)
	o.Backoff = cmp.Or(o.Backoff, time.Second)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, max(5*time.Minute, o.Backoff))
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 30)
	switch {
	case c == nil:
		return nil, errors.New("new saga: the client is nil")
	case definition == nil:
		return nil, fmt.Errorf("new saga: %w: it is nil", saga.ErrDefinition)
	case taskQueue == "":
		return nil, fmt.Errorf("new saga %q: the task queue has no name", definition.Name())
	case o.Lease < 0 || o.Timeout < 0 || o.Backoff < 0 || o.MaxBackoff < o.Backoff:
		return nil, fmt.Errorf("new saga %q: the options have a negative time, or rest from %v to %v", definition.Name(), o.Backoff, o.MaxBackoff)
	}
	return &Saga[S]{c, taskQueue, definition, o}, nil
}

func (s *Saga[S]) workflowID(id string) string { return workflowName(s.definition.Name()) + "/" + id }

func (s *Saga[S]) failed(what, id string, err error) error {
	return fmt.Errorf("%s saga %s %q: %w", what, s.definition.Name(), id, err)
}

// inputMemo is the name of the memo that tells inputs apart.
const inputMemo = "saga-input"

// plan returns what a workflow is started with.
func (s *Saga[S]) plan(id string, input []byte) plan {
	p := plan{
		Saga: s.definition.Name(), ID: id, Version: s.definition.Version(), State: input,
		Lease: s.o.Lease, Backoff: s.o.Backoff, MaxBackoff: s.o.MaxBackoff, MaxAttempts: s.o.MaxAttempts,
	}
	for _, x := range s.definition.Steps() {
		p.Steps = append(p.Steps, step{x.Name, x.Undo != nil, x.Retry.Attempts, x.Retry.Backoff, x.Retry.MaxBackoff, cmp.Or(x.Timeout, s.o.Timeout)})
	}
	return p
}

// Start starts a saga, and returns once Temporal has it. The id is as in package saga: 1 to 255 visible ASCII characters
// other than quote, backslash, comma and semicolon. The input, and each state, has up to 1 MiB as JSON. A repeated start
// with an equal input returns the same saga, whatever its state, for as long as the namespace's retention lasts after its
// end. With another input the error is
// [saga.ErrOtherInput]. After any other error the saga may have been started all the same: start it again.
func (s *Saga[S]) Start(ctx context.Context, id string, input S) (*saga.Status[S], error) {
	if err := checkID(id); err != nil {
		return nil, s.failed("start", id, err)
	}
	body, err := json.Marshal(input)
	if err != nil {
		return nil, s.failed("start", id, fmt.Errorf("encode its input: %w", err))
	}
	if len(body) > maxState {
		return nil, s.failed("start", id, fmt.Errorf("encode its input: it has %d bytes, want at most %d", len(body), maxState))
	}
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:])
	_, err = s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: s.workflowID(id), TaskQueue: s.taskQueue, Memo: map[string]any{inputMemo: digest},
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, workflowName(s.definition.Name()), s.plan(id, body))
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case err == nil:
		return &saga.Status[S]{ID: id, Operation: s.workflowID(id), State: saga.Running, Attempts: 1}, nil
	case !errors.As(err, &started):
		return nil, s.failed("start", id, err)
	}
	seen, err := s.describe(ctx, id)
	if err != nil {
		return nil, s.failed("start", id, err)
	}
	var had string
	if err := seen.GetMemoValue(inputMemo, &had); err != nil {
		return nil, s.failed("start", id, fmt.Errorf("read the memo of its input: %w", err))
	}
	if had != digest {
		return nil, s.failed("start", id, saga.ErrOtherInput)
	}
	return s.Status(ctx, id)
}

// checkID reports why an id is none of package saga.
func checkID(id string) error {
	const longest = 255
	if id == "" || len(id) > longest || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"\,;`, r) }) {
		return fmt.Errorf("its id is not 1 to %d visible ASCII characters other than quote, backslash, comma and semicolon", longest)
	}
	return nil
}

func (s *Saga[S]) describe(ctx context.Context, id string) (*client.WorkflowExecutionDescription, error) {
	seen, err := s.client.DescribeWorkflow(ctx, s.workflowID(id), "")
	var absent *serviceerror.NotFound
	if errors.As(err, &absent) {
		return nil, saga.ErrNotFound
	}
	return seen, err
}

// Status tells how far a saga is. The error is [saga.ErrNotFound] if there is none. While the saga runs, a worker is
// asked, and has to be there. A saga that the workers can't go on with, because its version is not registered, counts as
// running, and Error says so. One whose workflow was ended from outside, for example terminated, is stuck. Operation is
// the id of the workflow.
func (s *Saga[S]) Status(ctx context.Context, id string) (*saga.Status[S], error) {
	status, err := s.status(ctx, id)
	if err != nil {
		return nil, s.failed("look at", id, err)
	}
	return status, nil
}

func (s *Saga[S]) status(ctx context.Context, id string) (*saga.Status[S], error) {
	seen, err := s.describe(ctx, id)
	if err != nil {
		return nil, err
	}
	status := &saga.Status[S]{ID: id, Operation: s.workflowID(id), State: saga.Running, Attempts: 1, Began: seen.WorkflowStartTime, LastStarted: seen.WorkflowStartTime}
	if seen.WorkflowCloseTime != nil {
		status.EndedAt = *seen.WorkflowCloseTime
	}
	switch seen.Status {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return status, s.progress(ctx, seen, status)
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return status, s.ended(ctx, seen, status)
	}
	status.State = saga.Stuck
	status.Error = "its workflow has ended as " + strings.ToLower(seen.Status.String())
	return status, nil
}

func (s *Saga[S]) ended(ctx context.Context, seen *client.WorkflowExecutionDescription, status *saga.Status[S]) error {
	var end ending
	if err := s.client.GetWorkflow(ctx, seen.WorkflowExecution.ID, seen.WorkflowExecution.RunID).Get(ctx, &end); err != nil {
		return fmt.Errorf("read its result: %w", err)
	}
	if err := json.Unmarshal(end.State, &status.Value); err != nil {
		return fmt.Errorf("decode its state: %w", err)
	}
	status.State, status.Failure, status.Saved = saga.Done, end.Failure, slices.Sorted(slices.Values(end.Saved))
	if end.Failure != nil {
		status.State = saga.Compensated
	}
	return nil
}

func (s *Saga[S]) progress(ctx context.Context, seen *client.WorkflowExecutionDescription, status *saga.Status[S]) error {
	p, err := s.ask(ctx, seen)
	if err != nil {
		why, unread := s.refused(ctx, seen)
		if unread != nil || why == "" {
			return errors.Join(err, unread)
		}
		status.Error = why
		return nil
	}
	status.Saved, status.Error, status.Attempts = slices.Sorted(slices.Values(p.Saved)), p.Error, 1+p.Rounds
	switch {
	case p.Stuck:
		status.State = saga.Stuck
	case p.Failure != nil:
		status.State = saga.Compensating
	}
	return nil
}

// ask asks a worker how far a saga is.
func (s *Saga[S]) ask(ctx context.Context, seen *client.WorkflowExecutionDescription) (*progress, error) {
	answer, err := s.client.QueryWorkflow(ctx, seen.WorkflowExecution.ID, seen.WorkflowExecution.RunID, statusQuery)
	if err != nil {
		return nil, fmt.Errorf("ask a worker: %w", err)
	}
	p := &progress{}
	if err := answer.Get(p); err != nil {
		return nil, fmt.Errorf("read the worker's answer: %w", err)
	}
	return p, nil
}

// refused returns why workers can't go on with a saga, "" if that is not known.
func (s *Saga[S]) refused(ctx context.Context, seen *client.WorkflowExecutionDescription) (why string, err error) {
	events := s.client.GetWorkflowHistory(ctx, seen.WorkflowExecution.ID, seen.WorkflowExecution.RunID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return "", fmt.Errorf("read its history: %w", err)
		}
		switch event.GetEventType() {
		case enums.EVENT_TYPE_WORKFLOW_TASK_FAILED:
			why = event.GetWorkflowTaskFailedEventAttributes().GetFailure().GetMessage()
		case enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, enums.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			why = ""
		}
	}
	return why, nil
}

// Wait waits until the saga has ended or is stuck, or ctx ends.
func (s *Saga[S]) Wait(ctx context.Context, id string) (*saga.Status[S], error) {
	const first, last = 100 * time.Millisecond, 5 * time.Second
	for rest := first; ; rest = min(2*rest, last) {
		status, err := s.status(ctx, id)
		if err != nil {
			return nil, s.failed("wait for", id, err)
		}
		if status.State.Ended() {
			return status, nil
		}
		// Its end is told at once, that it is stuck is not.
		end, cancel := context.WithTimeout(ctx, rest)
		if s.client.GetWorkflow(end, s.workflowID(id), "").Get(end, nil) != nil {
			<-end.Done()
		}
		cancel()
		if ctx.Err() != nil {
			return status, s.failed("wait for", id, ctx.Err())
		}
	}
}

// Cancel has a saga compensate what it has done, instead of doing the next step. A call that is under way ends first. A
// saga that is compensated already goes on with that. The error is [saga.ErrEnded] if it has ended, and
// [saga.ErrNotFound] if it was not started. A nil error does not say that the saga will be compensated: it may have done
// its last step meanwhile; [Saga.Wait] tells. It is the same as cancelling the workflow with Temporal's own tools.
func (s *Saga[S]) Cancel(ctx context.Context, id string) error {
	seen, err := s.describe(ctx, id)
	if err != nil {
		return s.failed("cancel", id, err)
	}
	if seen.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return s.failed("cancel", id, saga.ErrEnded)
	}
	var ended *serviceerror.NotFound
	if err = s.client.CancelWorkflow(ctx, s.workflowID(id), ""); errors.As(err, &ended) {
		err = saga.ErrEnded
	}
	if err != nil {
		return s.failed("cancel", id, err)
	}
	return nil
}

// Retry has a stuck compensation tried again. The workflow's history keeps who has decided, and why; neither may be
// empty. The error is [saga.ErrNotStuck] if no compensation is stuck.
func (s *Saga[S]) Retry(ctx context.Context, id, actor, reason string) error {
	if actor == "" || reason == "" {
		return s.failed("retry", id, errors.New("who decides, and why, is empty"))
	}
	seen, err := s.describe(ctx, id)
	if err != nil {
		return s.failed("retry", id, err)
	}
	if seen.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return s.failed("retry", id, saga.ErrNotStuck)
	}
	p, err := s.ask(ctx, seen)
	if err != nil {
		return s.failed("retry", id, err)
	}
	if !p.Stuck {
		return s.failed("retry", id, saga.ErrNotStuck)
	}
	if err := s.client.SignalWorkflow(ctx, s.workflowID(id), "", retrySignal, retry{actor, reason}); err != nil {
		return s.failed("retry", id, err)
	}
	return nil
}
