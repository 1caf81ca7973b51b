package semel

import (
	"context"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/credentials"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/refusal"
)

// A request asks for an operation, over HTTP or by [Do].
type request struct {
	g       *Guard
	started time.Time
	ask     ask
	run     *engine.Run // nil until there is one
}

// An ask is what a request asks for, and the parts from which it was made.
type ask struct {
	engine.Ask
	kind        Kind
	scope, key  string
	minted      bool                    // the key was made from the request, not sent
	credentials credentials.Credentials // stored with the answer
}

// enter asks for the operation. If there is neither a run nor a problem, rec holds the answer.
func (q *request) enter(ctx context.Context, rec *driver.Record) *Problem {
	q.ask.Credentials = q.ask.credentials.Digest
	run, refused := q.g.route.Enter(ctx, &q.ask.Ask, rec)
	q.run = run
	if refused == nil {
		return nil
	}
	if q.ask.minted && refused.Code == refusal.KeyReused {
		refused.Detail = "no key was sent, and the one made of the request stands for another: send that one again, or, for a new operation, a key of your own"
	}
	return q.g.refusedBy(refused)
}

// told says what the client of a run that has ended gets instead of its answer: a problem, or, if stored is true, what
// the record says. If there is neither, it gets its answer.
func (q *request) told(d engine.Decision, how engine.Settlement) (p *Problem, stored bool) {
	switch {
	case how == engine.SettlePending:
		return q.g.problem(refusal.OutcomePending, ""), false
	case how == engine.SettleRolledBack, d.Nothing && how == engine.SettleAcknowledged:
		p := q.g.problem(refusal.StoreUnavailable, "its transaction was rolled back; the same key may try again")
		p.Title = "the request has had no effect"
		return p, false
	case how == engine.SettleFenced:
		return nil, true
	case !d.Lost && how != engine.SettleLost:
		return nil, false
	case q.g.policy.OnLost == Rerun:
		return q.g.problem(refusal.OutcomePending, "the run was lost; the same key will run it again"), false
	}
	return q.g.problem(refusal.OutcomeUnknown, "the run was lost; ask for the operation's status, or for its operator's decision"), false
}

// overtaken says why the client of a run does not get what the record says; nil if it does get it.
func (q *request) overtaken(rec *driver.Record) *Problem {
	if refused := q.g.route.Overtaken(&q.ask.Ask, rec); refused != nil {
		return q.g.refusedBy(refused)
	}
	return nil
}

// A decision is what became of a request.
type decision struct {
	result   event.Result
	code     refusal.Code
	status   int
	observed bool
	err      error
}

// refusing is the decision to answer with a problem.
func (q *request) refusing(p *Problem) decision {
	return decision{result: resultOf(p.Code, q.run), code: p.Code, err: p.cause}
}

// decided reports the decision about the request.
func (q *request) decided(ctx context.Context, d decision) {
	if q.g.quiet {
		return
	}
	e := q.ask.About(event.Decision, d.err)
	if q.run != nil {
		e = q.run.About(event.Decision, d.err)
	}
	e.Result, e.Code, e.Status, e.Observed, e.Duration = d.result, d.code, d.status, d.observed, time.Since(q.started)
	q.g.observer.Observe(context.WithoutCancel(ctx), e)
}

// resultOf is the result of a request that was answered with a problem; r is its run, nil if there was none.
func resultOf(c refusal.Code, r *engine.Run) event.Result {
	switch c {
	case refusal.InProgress:
		return event.InProgress
	case refusal.KeyReused:
		return event.Mismatch
	case refusal.OutcomeUnknown:
		return event.Unknown
	case refusal.OutcomePending:
		return event.Failed
	}
	if r != nil {
		return event.Failed
	}
	return event.Refused
}
