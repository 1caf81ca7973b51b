package semel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/refusal"
)

// A run is one execution of an operation, from its claim to its settle.
type run struct {
	core    *core
	policy  *policy
	ask     *ask // not changed once there is a run
	owner   driver.Owner
	op      Operation
	attempt int
	began   time.Time // when the last copy of its claim was sent

	base context.Context // the request's values, without its cancellation
	ctx  deadline        // base with the operation, and with MaxRun as its deadline: the handler's

	face     face
	joint    joint
	lease    lease
	steps    steps
	stepped  bool        // earlier runs have saved steps
	sealed   bool        // its request is stored
	resent   bool        // the claim was sent more than once: a copy may still arrive
	promised atomic.Bool // its client was told that it will be finished

	answer struct { // what its answer has taken of the memory for bodies
		taken   int
		holders atomic.Int32 // who need it: the settle, and whoever answers the client
	}

	before, after *run // in the list of runs under way
}

// newRun makes the run that a claim, sent at the given time, has won, and starts its lease. It must be settled.
func (g *Guard) newRun(ctx context.Context, a *ask, rec *driver.Record, token driver.Token, sent time.Time) *run {
	r := &run{
		core: g.core, policy: g.policy, ask: a, began: sent,
		owner: driver.Owner{Fence: rec.Fence, Token: token},
		base:  context.WithoutCancel(ctx),
	}
	r.op.run, r.attempt = r, int(rec.Attempt)
	r.stepped, r.steps.some, r.sealed = rec.Steps, rec.Steps, len(rec.Sealed) > 0
	r.ctx.parent, r.ctx.at, r.ctx.cause, r.ctx.op = r.base, sent.Add(g.policy.MaxRun), ErrMaxRun, &r.op
	g.work.begin(r)
	if g.policy.OneCommit {
		r.lease.none(r)
	} else {
		r.lease.start(r, sent)
	}
	if rec.Maybe {
		r.event(event.Takeover, nil)
	}
	return r
}

func (r *run) event(kind event.Kind, err error) {
	r.core.observer.Observe(r.base, event.Event{
		Kind: kind, ID: r.ask.id, Operation: r.ask.operation, Correlation: r.ask.correlation,
		Attempt: uint32(r.attempt), Fence: r.owner.Fence, Err: err,
	})
}

type operationKey struct{}

// An Operation is what a handler can know of its own run, and say about its outcome. Its methods are safe for
// concurrent use.
//
// A nil Operation is a run outside of any, as that of a request without a key: Key and ID give random values, each time
// another, and the rest says nothing and does nothing. So a handler need not ask which it is.
type Operation struct {
	run     *run
	verdict atomic.Uint32
	retain  atomic.Int64 // 0 for Policy.Retention
	lost    atomic.Pointer[lostReason]
	refused atomic.Pointer[refusal.Code]
	derived atomic.Bool // a derived key was taken: there may be an effect elsewhere
}

type lostReason struct{ err error }

// FromContext returns the operation that a guarded handler runs in, or nil if ctx belongs to none, as for a request
// without a key, or one that was run unprotected (Policy.FailOpen). A nil [Operation] can be used as any other.
func FromContext(ctx context.Context) *Operation {
	op, _ := ctx.Value(operationKey{}).(*Operation)
	return op
}

// outside returns ctx without the operation that it may belong to, and without the report that it may ask for.
func outside(ctx context.Context) context.Context {
	if reportTo(ctx) != nil {
		ctx = context.WithValue(ctx, reportKey{}, nil)
	}
	if FromContext(ctx) != nil {
		ctx = context.WithValue(ctx, operationKey{}, (*Operation)(nil))
	}
	return ctx
}

// Attempt counts the operation's runs, from 1. It is 0 outside of an operation.
func (o *Operation) Attempt() int {
	if o == nil {
		return 0
	}
	return o.run.attempt
}

// Fence orders the operation's runs: a later run has a larger one. A downstream that remembers the largest it has seen
// can refuse what comes late from an earlier run. It is 0 outside of an operation.
func (o *Operation) Fence() uint64 {
	if o == nil {
		return 0
	}
	return o.run.owner.Fence
}

// ID returns the operation's public id, as [driver.ID.String] writes it; outside of an operation one that no operation
// has.
func (o *Operation) ID() string {
	if o == nil {
		var id driver.ID
		rand.Read(id[:])
		return id.String()
	}
	return o.run.ask.id.String()
}

// Correlation returns the correlation id of the request that started the run, "" outside of an operation.
func (o *Operation) Correlation() string {
	if o == nil {
		return ""
	}
	return o.run.ask.correlation
}

// Key returns a key derived from the operation and a name, in the form of a UUIDv8 (RFC 9562). It is the same for every
// run of the operation, also after its record has expired, so it can stand in a UNIQUE column or be the idempotency key
// of a downstream call; another name gives another key. Outside of an operation it is another one at each call: two
// calls are two effects.
func (o *Operation) Key(name string) string {
	if o == nil {
		var sum [sha256.Size]byte
		rand.Read(sum[:])
		return digest.UUIDv8(sum)
	}
	o.derived.Store(true)
	a := o.run.ask
	return o.run.core.derive.DerivedKey(string(a.kind), a.scope, a.key, name)
}

// Keep asks that the answer be stored and replayed, whatever its status.
func (o *Operation) Keep() { o.ask(VerdictKeep) }

// Release asks that the answer be given but not stored, so that the same key may try again. It is a promise that
// nothing happened.
func (o *Operation) Release() { o.ask(VerdictRelease) }

// Refuse is Release for a handler that has run nothing, as when the service that it would have asked can't be reached.
// The request then counts as refused, with this code, not as executed. Codes are labels of metrics, so there should be
// few.
func (o *Operation) Refuse(c refusal.Code) {
	if o != nil {
		o.refused.Store(&c)
		o.ask(VerdictRelease)
	}
}

// result is what became of the request of a run that has ended with an answer.
func (o *Operation) result() (event.Result, refusal.Code) {
	if c := o.refused.Load(); c != nil && Verdict(o.verdict.Load()) == VerdictRelease {
		return event.Refused, *c
	}
	return event.Executed, ""
}

// Retain asks that the outcome be kept for that long from its completion, if it is kept: an answer knows best how long
// it is worth something. Policy.MinRetention and Policy.MaxRetention bound it. 0 or less asks for nothing.
func (o *Operation) Retain(d time.Duration) {
	if o != nil && d > 0 {
		o.retain.Store(int64(d))
	}
}

// retention returns how long a kept outcome is kept; 0 for as long as the claim said.
func (r *run) retention() time.Duration {
	d := time.Duration(r.op.retain.Load())
	if d == 0 {
		return 0
	}
	return min(max(d, r.policy.MinRetention), r.policy.MaxRetention)
}

func (o *Operation) ask(v Verdict) {
	if o != nil {
		o.verdict.Store(uint32(v))
	}
}

// Lost says that there is no answer although there may have been an effect, as when a connection to an upstream broke.
// What the handler has written is thrown away; Policy.OnLost decides. The error is for operators.
func (o *Operation) Lost(err error) {
	if o != nil {
		o.lost.Store(&lostReason{err})
	}
}
