package semel

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/problemkind"
	"github.com/semelhq/semel/internal/thrown"
	"github.com/semelhq/semel/refusal"
)

// An execution is the run of an exchange. While the handler runs, only its goroutine writes the fields.
type execution struct {
	exchange
	room     engine.Run // memory of the exchange's run
	op       Operation
	req      *http.Request // the handler's
	capture  capture
	thrown   any // what the handler panicked with, if it ran on a goroutine of its own
	decision engine.Decision
	returned bool  // the handler returned: no panic, no Goexit
	settled  bool  // the settle of the run returned too: how says with what result
	silent   error // why the handler returned without an answer; nil if it gave one
	how      engine.Settlement

	settling  bool // the client can't be told 202 any more
	promising sync.Mutex

	taken   int          // memory for bodies that the answer has taken, once the run has it
	holders atomic.Int32 // those who need this memory: the settle, and whoever answers the client
}

// execute runs next and answers with its outcome. It runs on the request's own goroutine, unless the client may be
// answered before the run has ended. Then the handler gets its own goroutine, and if it panics there, execute panics
// with the same value.
func (x *execution) execute(next http.Handler) {
	parting := x.parting()
	x.prepareRun(parting.depart != nil)
	if parting.depart == nil {
		defer x.failed()
		x.handle(next)
		x.answer()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if x.thrown = recover(); !x.settled {
				x.run.Tell(event.Panic, panicError(x.thrown))
			}
		}()
		x.handle(next)
	}()
	timer := time.NewTimer(parting.after - time.Since(x.started))
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		if parting.depart() {
			return
		}
		<-ended
	}
	if !x.settled {
		x.decided(x.r.Context(), decision{result: event.Failed})
		if x.thrown == nil {
			runtime.Goexit()
		}
		panic(x.thrown)
	}
	x.answer()
}

// failed reports a run whose handler, or whose settle, did not return. Its panic or Goexit continues.
func (x *execution) failed() {
	if !x.settled {
		x.run.Tell(event.Panic, nil)
		x.decided(x.r.Context(), decision{result: event.Failed})
	}
}

// panicError describes the value with which a handler panicked on its own goroutine. If its client has been answered,
// nobody else will see the panic.
func panicError(value any) error {
	if value == nil || value == http.ErrAbortHandler { //nolint:errorlint // net/http compares the value in this way
		return nil
	}
	return thrown.Error(value)
}

func (g *Guard) impatient() *Problem {
	p := g.problem(refusal.OutcomePending, "the operation goes on")
	if _, configured := g.policy.problems.Status[refusal.OutcomePending]; !configured {
		p.Status = http.StatusGatewayTimeout
	}
	return p
}

// prepareRun makes the request and the writer that the handler gets. The operation was identified before, so the
// handler may change the request as it likes. If the client can leave before the end, the handler gets a clone: it may
// change its own request while the layers above, which have been answered, still read theirs.
func (x *execution) prepareRun(departs bool) {
	x.begin(&x.op, x)
	if departs {
		x.req = x.r.Clone(x.run.Context())
	} else {
		x.req = &x.received.request
		*x.req = *x.r.WithContext(x.run.Context()) // one allocation less than to keep what WithContext returns
	}
	x.completed(x.req)
	x.req.Body = x.body.Open()
	if len(x.r.Trailer) == 0 {
		x.req.ContentLength, x.req.TransferEncoding = x.body.Size(), nil
	}
	x.capture.init(x, x.w)
	x.capture.holds = x.g.policy.OneCommit || x.alone // an answer that nobody receives has not begun
}

// handle runs next and settles its outcome, whether next returns, panics or calls Goexit, and also if Policy.Decide
// does so. It recovers nothing: the panic continues once the outcome is settled.
func (x *execution) handle(next http.Handler) {
	defer x.finish()
	next.ServeHTTP(&x.capture, x.req)
	x.decision = x.decide()
	x.returned = true
}

func (x *execution) finish() {
	defer func() {
		if !x.settled {
			x.capture.discard() // there is no answer; the store may have ended the goroutine
		}
	}()
	defer x.closeBody()
	defer x.removeForm()
	x.run.HandlerEnded()
	x.capture.close()
	if !x.returned {
		x.decision = x.run.Decide(engine.Ending{})
	}
	if x.async {
		x.stay()
	}
	if x.r.Context().Err() != nil {
		x.run.Promise() // its client has gone: nobody gets the answer
	}
	x.capture.lend()
	x.rec, x.how = x.run.Settle(x.decision.Outcome)
	if !x.returned {
		x.capture.abort()
	}
	x.capture.conclude()
	x.settled = x.returned
}

// removeForm removes the temporary files of a multipart form that the handler has parsed. net/http removes only the
// files of its own request.
func (x *execution) removeForm() {
	if f := x.req.MultipartForm; f != nil {
		f.RemoveAll() //nolint:errcheck // temporary files; nobody can correct that here
	}
}

// decide returns the decision with which the run of a handler that returned is settled.
func (x *execution) decide() engine.Decision {
	x.run.Close()
	x.capture.close()
	d := x.run.Decide(engine.Ending{Returned: true, Success: x.capture.status < 400, Decide: x.decideAnswer})
	if x.g.policy.OneCommit && d.Outcome.State != driver.Done && x.capture.unkept != nil {
		d.Nothing = true // nothing of this run will be recorded
	}
	return d
}

// decideAnswer decides by the answer. nothing means that an error says that nothing has happened.
func (x *execution) decideAnswer(nothing bool) engine.Decision {
	c, p := &x.capture, x.g.policy
	if nothing {
		released := *p
		released.OnError = ReleaseErrors
		p = &released
	}
	switch {
	case c.unbegun != nil: // the handler could not give its answer, and may have stopped half-way
		return x.run.DecideLost(c.unbegun.Error())
	case c.status == 0:
		return x.decideSilent()
	case c.body.Size() > 0:
		c.fixType(c.body.Begin())
	}
	v := x.op.asked()
	if v == VerdictDefault && c.begun && !c.hijacked {
		v = VerdictKeep // the route decided before the first byte left
	}
	v = p.verdict(v, c.status, c.sent, c.body.Bytes())
	if code := foreignRefusal(c.sent); v == VerdictRelease && problemkind.Of[code].Status > 0 {
		x.op.Refuse(code)
	}
	o := driver.Outcome{State: p.stateFor(v), Owed: v == VerdictLost}
	switch {
	case o.State != driver.Done:
		o.Error = "answered " + strconv.Itoa(c.status)
	case p.NoStore:
	default:
		if o.Response = c.response(); o.Response == nil {
			x.run.Tell(event.NotReplayable, c.whyNotStored())
		}
	}
	return engine.Decision{Outcome: o}
}

// decideSilent decides about a handler that has returned without an answer (R-32a). Its effect is not known, unless it
// has promised that nothing happened.
func (x *execution) decideSilent() engine.Decision {
	err := error(refusal.NoAnswer)
	if cause := context.Cause(x.run.Context()); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	x.silent = err
	x.run.Tell(event.NoAnswer, err)
	if x.op.asked() == VerdictRelease {
		return engine.Decision{Outcome: driver.Outcome{State: driver.Free, Error: err.Error()}}
	}
	return x.run.DecideLost(err.Error())
}

// answer gives the client the outcome of its run, now that the outcome is durable, or is known not to be.
func (x *execution) answer() {
	c := &x.capture
	defer c.discard()
	p, stored := x.told(x.decision, x.how)
	switch {
	case c.begun && (x.how != engine.SettleAcknowledged || x.decision.Lost || c.torn):
		x.breakOff() // a stream ends cleanly only after its settle is acknowledged
	case c.begun:
		c.endLive()
		x.ran(c.status)
	case x.silent != nil && x.how == engine.SettleAcknowledged:
		x.refuse(x.silentProblem())
	case stored, c.unkept != nil && (p == nil || p.Code != refusal.OutcomePending && p.Code != refusal.StoreUnavailable):
		x.answerRecorded()
	case p != nil:
		x.refuse(p)
	default:
		// While a slow client reads, hold only what is sent to it.
		x.body, x.received, x.req, x.decision.Outcome.Response, x.rec.Response = nil, nil, nil, nil, nil
		if err := c.writeLive(); err != nil {
			x.breakOff() // the temporary file can't be read
		}
		x.ran(c.status)
	}
}

// ran reports that the client has got the answer of its run.
func (x *execution) ran(status int) {
	result, code := x.op.counts()
	x.decided(x.r.Context(), decision{result: result, code: code, status: status})
}

// breakOff ends the exchange without ending the answer.
func (x *execution) breakOff() {
	x.decided(x.r.Context(), decision{result: event.Failed, status: x.capture.status})
	x.capture.abort()
	panic(http.ErrAbortHandler)
}

// silentProblem tells a client that the handler gave no answer, and whether the client may try again with the same key.
func (x *execution) silentProblem() *Problem {
	p := x.g.problem(refusal.NoAnswer, "").because(x.silent)
	switch {
	case x.decision.Nothing:
		p.Retryable, p.Detail = true, "its transaction was rolled back; the same key may try again"
	case x.decision.Outcome.State == driver.Free:
		p.Retryable, p.Detail = true, "the same key will run it again"
	}
	return p
}

// answerRecorded answers with what the record says. It is for the client of a late owner, which never gets the late
// owner's own result, and for a client whose answer could not be kept.
func (x *execution) answerRecorded() {
	if p := x.overtaken(&x.rec); p != nil {
		x.refuse(p)
		return
	}
	x.replay(&x.rec)
}

// Ended gives back the memory that the settle has held of the answer.
func (x *execution) Ended() { x.letGo() }

// letGo is called by each holder of the answer when it no longer needs it.
func (x *execution) letGo() {
	if x.holders.Add(-1) == 0 {
		x.g.held.Give(x.ask.ID.Scope(), x.taken)
	}
}
