package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/lazyctx"
)

// A Run is one execution of an operation, from its claim to its settle.
type Run struct {
	*Route
	ask     *Ask // not changed once there is a run
	owner   driver.Owner
	attempt int
	last    string    // why an earlier run ended without an answer
	began   time.Time // when the last copy of its claim was sent

	base context.Context // the values of the caller's context, without its cancellation
	ctx  lazyctx.Context // base with the run, and with MaxRun as its deadline

	settling lazyctx.Context // of the first request that settles the run

	face     Face
	holder   any
	joint    joint
	lease    lease
	steps    steps
	stepped  bool        // earlier runs have saved steps
	sealed   []byte      // its request, if it is stored
	resent   bool        // the claim was sent more than once: a copy may still arrive
	promised atomic.Bool // its client was told that it will be finished

	retain  atomic.Int64               // the retention asked for; 0 for the policy's
	lost    atomic.Pointer[lostReason] // the handler says that there is no answer, but perhaps an effect
	touched atomic.Bool                // there may be an effect elsewhere

	before, after *Run // neighbours in the list of runs under way
}

type lostReason struct{ err error }

// A Face is what a run needs of its caller. Mark, Rewind and Freeze are called to settle while the handler still runs.
// They are called on the goroutine of the transaction; there is one transaction at a time.
type Face interface {
	// Mark sets the state of the answer to which Rewind returns.
	Mark() error
	// Rewind drops the answer written since Mark. If all is false, an error that was answered stays.
	Rewind(all bool)
	// Freeze ends the answer. It returns the outcome with which the run would be settled if the handler returned now.
	// keep is false if that outcome is possible only without the effects.
	Freeze(err error) (o driver.Outcome, keep bool, failed error)
	// Ended is called once the outcome is durable or was given up.
	Ended()
}

// newRun makes the run of a claim that has won, and starts its lease. base has the values of the caller's context, and
// is never cancelled. The claim was sent at the given time. The run must be settled.
func (r *Route) newRun(base context.Context, a *Ask, rec *driver.Record, token driver.Token, sent time.Time) *Run {
	run := a.Room
	if run == nil {
		run = &Run{}
	}
	run.Route, run.ask, run.began, run.attempt, run.last = r, a, sent, int(rec.Attempt), rec.Error
	run.owner, run.base = driver.Owner{Fence: rec.Fence, Token: token}, base
	run.stepped, run.steps.some, run.sealed = rec.Steps, rec.Steps, rec.Sealed
	run.ctx.Parent, run.ctx.At, run.ctx.Cause = run.base, sent.Add(r.Policy.MaxRun), ErrMaxRun
	run.ctx.Key, run.ctx.Held = runKey{}, run
	if r.Policy.OneCommit {
		run.lease.none(run)
	} else {
		run.lease.start(run, sent)
	}
	r.work.begin(run)
	if rec.Maybe {
		run.Tell(event.Takeover, nil)
	}
	return run
}

type runKey struct{}

// FromContext returns the run to which ctx belongs, or nil.
func FromContext(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// WithRun returns ctx within a run. With nil, the result belongs to no run.
func WithRun(ctx context.Context, r *Run) context.Context { return context.WithValue(ctx, runKey{}, r) }

// Attach gives the run its user's own value, and its face; nil for none.
func (r *Run) Attach(holder any, face Face) { r.holder, r.face = holder, face }

// Attached returns the value that Attach was given.
func (r *Run) Attached() any { return r.holder }

// Context returns the handler's context. It ends after MaxRun, and when somebody else owns the operation.
func (r *Run) Context() context.Context { return &r.ctx }

// Attempt counts the operation's runs, from 1.
func (r *Run) Attempt() int { return r.attempt }

// LastError is why an earlier run ended without an answer; "" if none did, or if it did not tell.
func (r *Run) LastError() string { return r.last }

// Fence orders the operation's runs.
func (r *Run) Fence() uint64 { return r.owner.Fence }

// ID returns the operation's ID.
func (r *Run) ID() driver.ID { return r.ask.ID }

// Sealed returns the operation's stored request, encrypted as it was when the operation began; nil if none is stored.
func (r *Run) Sealed() []byte { return r.sealed }

// Promise notes that the operation has to be finished, whoever leaves.
func (r *Run) Promise() { r.promised.Store(true) }

// Retain asks that the outcome, if it is kept, be kept for d. The policy bounds d.
func (r *Run) Retain(d time.Duration) { r.retain.Store(int64(d)) }

// Lose says that there is no answer although there may have been an effect.
func (r *Run) Lose(err error) { r.lost.Store(&lostReason{err}) }

// IsLost reports whether Lose was called.
func (r *Run) IsLost() bool { return r.lost.Load() != nil }

// Touch notes that there may be an effect elsewhere, which no rollback undoes.
func (r *Run) Touch() { r.touched.Store(true) }

// Close ends the part of a run in which transactions and steps are allowed. It waits for a transaction that the handler
// has left behind.
func (r *Run) Close() { r.joint.close() }

// HandlerEnded begins the part of a run in which its outcome is settled: it is closed, and MaxRun no longer counts.
// Call it after the code that decides about the outcome, because that code can hang like the handler.
func (r *Run) HandlerEnded() {
	r.Close()
	r.lease.handlerEnded()
}

// Unstarted gives up the claim of a run whose handler was not started, so that it does not count as a run.
func (r *Run) Unstarted() {
	copies := 1
	if r.resent {
		copies++
	}
	r.resent = false // giveBack releases all copies
	defer r.ended(driver.Record{}, true)
	r.releases.giveBack(r.base, r.ask.ID, r.owner.Token, copies, r.began)
}

// retention returns how long a kept outcome is kept; 0 for the time that the claim said.
func (r *Run) retention() time.Duration {
	d := time.Duration(r.retain.Load())
	if d == 0 {
		return 0
	}
	return min(max(d, r.Policy.MinRetention), r.Policy.MaxRetention)
}
