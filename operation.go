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
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/refusal"
)

// An Operation tells a handler about its own run, and lets it say what its outcome is. Its methods are safe for
// concurrent use.
//
// A nil Operation is a run without an operation, such as that of a request without a key. Its Key and ID give random
// values, a new one at each call. Its other methods return zero values and do nothing. So a handler need not ask which
// it has.
type Operation struct {
	run      *engine.Run
	ask      *ask
	core     *core
	observed bool // the run is only observed: its transactions and steps belong to the handler alone
	verdict  atomic.Uint32
	refused  atomic.Pointer[refusal.Code]
	result   *result // result of the last DoTx; written in its transaction
}

// begin makes op the Operation of the request's run.
func (q *request) begin(op *Operation, face engine.Face) {
	op.run, op.ask, op.core = q.run, &q.ask, q.g.core
	q.run.Attach(op, face)
}

// FromContext returns the operation in which a guarded handler runs. It returns nil if ctx belongs to none, as for a
// request without a key, or for one that ran unprotected (Policy.FailOpen). A nil [Operation] can be used like any
// other.
func FromContext(ctx context.Context) *Operation {
	run := engine.FromContext(ctx)
	if run == nil {
		return nil
	}
	op, _ := run.Attached().(*Operation)
	return op
}

// outside returns ctx without its operation and without its request for a report.
func outside(ctx context.Context) context.Context {
	if reportTo(ctx) != nil {
		ctx = context.WithValue(ctx, reportKey{}, nil)
	}
	if FromContext(ctx) != nil {
		ctx = engine.WithRun(ctx, nil)
	}
	return ctx
}

// Attempt counts the operation's runs, from 1. It is 0 outside of an operation.
func (o *Operation) Attempt() int {
	if o == nil {
		return 0
	}
	return o.run.Attempt()
}

// LastError is the text of the error with which the last run ended that was released, or lost, and that the store was
// told of. A run that ended with its process tells nothing. It is "" if there was no such run.
func (o *Operation) LastError() string {
	if o == nil {
		return ""
	}
	return o.run.LastError()
}

// Fence orders the operation's runs: a later run has a larger fence. A downstream that remembers the largest fence that
// it has seen can refuse late calls of an earlier run. It is 0 outside of an operation.
func (o *Operation) Fence() uint64 {
	if o == nil {
		return 0
	}
	return o.run.Fence()
}

// ID returns the operation's public id, as [driver.ID.String] writes it. Outside of an operation it returns an id that
// no operation has.
func (o *Operation) ID() string {
	if o == nil {
		var id driver.ID
		rand.Read(id[:])
		return id.String()
	}
	return o.ask.ID.String()
}

// Correlation returns the correlation id of the request that started the run, "" outside of an operation.
func (o *Operation) Correlation() string {
	if o == nil {
		return ""
	}
	return o.ask.Correlation
}

// Key returns a key derived from the operation and a name, in the form of a UUIDv8 (RFC 9562). It is the same in every
// run of the operation, also after its record has expired. So it can be stored in a UNIQUE column or be the idempotency
// key of a downstream call. Another name gives another key. Outside of an operation each call returns another key: two
// calls are two effects.
func (o *Operation) Key(name string) string {
	if o == nil {
		var sum [sha256.Size]byte
		rand.Read(sum[:])
		return digest.UUIDv8(sum)
	}
	o.run.Touch()
	return o.core.derive.DerivedKey(string(o.ask.kind), o.ask.scope, o.ask.key, name)
}

// Keep asks that the answer be stored and replayed, whatever its status.
func (o *Operation) Keep() { o.ends(VerdictKeep) }

// Release asks that the answer be given but not stored, so that the same key may try again. It is a promise that
// nothing happened.
func (o *Operation) Release() { o.ends(VerdictRelease) }

// Unknown asks that the outcome be unknown: the operation is not run again before an operator or reconcile has decided.
// It is for a handler that can neither go on nor say that nothing happened.
func (o *Operation) Unknown() { o.ends(VerdictUnknown) }

func (o *Operation) ends(v Verdict) {
	if o != nil {
		o.verdict.Store(uint32(v))
	}
}

// asked is the verdict that the handler has asked for.
func (o *Operation) asked() Verdict { return Verdict(o.verdict.Load()) }

// Refuse is Release for a handler that has run nothing, for example because it could not reach the service that it
// needs. The request then counts as refused, with this code, not as executed. Codes are labels of metrics, so there
// should be few of them.
func (o *Operation) Refuse(c refusal.Code) {
	if o != nil {
		o.refused.Store(&c)
		o.ends(VerdictRelease)
	}
}

// counts returns the result and the code under which the request counts whose run has ended with an answer.
func (o *Operation) counts() (event.Result, refusal.Code) {
	if c := o.refused.Load(); c != nil && o.asked() == VerdictRelease {
		return event.Refused, *c
	}
	return event.Executed, ""
}

// Retain asks that the outcome, if it is kept, be kept for d from its completion. It is for handlers that know how long
// their answer is of use. Policy.MinRetention and Policy.MaxRetention bound it. 0 or less asks for nothing.
func (o *Operation) Retain(d time.Duration) {
	if o != nil && d > 0 {
		o.run.Retain(d)
	}
}

// Lost says that there is no answer although there may have been an effect, for example because the connection to an
// upstream broke. What the handler has written is thrown away; Policy.OnLost decides. The error is for operators.
func (o *Operation) Lost(err error) {
	if o != nil {
		o.run.Lose(err)
	}
}
