package semel

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// execute runs next and answers with its outcome. It runs on the request's own goroutine, unless the client may be
// answered before the run has ended: then the handler gets a goroutine, and what that throws is thrown again.
func (x *exchange) execute(next http.Handler) {
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
				x.run.event(event.Panic, panicError(x.thrown))
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
		x.decided(event.Failed, "", 0, nil)
		if x.thrown == nil {
			runtime.Goexit()
		}
		panic(x.thrown)
	}
	x.answer()
}

// failed reports a run whose handler, or settle, did not return. What it threw goes on.
func (x *exchange) failed() {
	if !x.settled {
		x.run.event(event.Panic, nil)
		x.decided(event.Failed, "", 0, nil)
	}
}

// panicError describes what a handler threw on a goroutine of its own: if its client has been answered, nobody else
// will see it.
func panicError(thrown any) error {
	if thrown == nil || thrown == http.ErrAbortHandler { //nolint:errorlint // net/http compares what was thrown in the same way
		return nil
	}
	return thrownError(thrown)
}

func (g *Guard) impatient() *Problem {
	p := g.problem(refusal.OutcomePending, "the operation goes on")
	if _, configured := g.policy.problems.Status[refusal.OutcomePending]; !configured {
		p.Status = http.StatusGatewayTimeout
	}
	return p
}

// prepareRun makes the request and the writer that the handler gets. What identifies the operation was taken before, so
// that the handler may change the request as it likes. If its client can depart it may do so while the layers above,
// which have been answered, still read theirs.
func (x *exchange) prepareRun(departs bool) {
	if departs {
		x.req = x.r.Clone(&x.run.ctx)
	} else {
		x.req = x.r.WithContext(&x.run.ctx)
	}
	x.completed(x.req)
	x.req.Body = x.body.Open()
	if len(x.r.Trailer) == 0 {
		x.req.ContentLength, x.req.TransferEncoding = x.body.Size(), nil
	}
	x.capture.init(x, x.w)
	x.capture.holds = x.g.policy.OneCommit || x.alone // what nobody receives has not begun
	x.run.face = x
}

// handle runs next and settles its outcome, however it ends: by return, panic or Goexit, of Policy.Decide too. It
// recovers nothing: what was thrown goes on once the outcome is settled.
func (x *exchange) handle(next http.Handler) {
	defer x.finish()
	next.ServeHTTP(&x.capture, x.req)
	x.outcome = x.decide()
	x.returned = true
}

func (x *exchange) finish() {
	defer func() {
		if !x.settled {
			x.capture.discard() // there is no answer; the store may have ended the goroutine
		}
	}()
	defer x.closeBody()
	defer x.removeForm()
	x.run.joint.close()
	x.capture.close()
	x.run.lease.handlerEnded()
	if !x.returned {
		x.outcome = x.g.policy.lost("the handler did not return")
		if x.run.provesNothing() {
			x.outcome = driver.Outcome{State: driver.Free, Error: "the handler did not return; its transaction was rolled back", Owed: true}
		}
	}
	if x.async {
		x.stay()
	}
	if x.r.Context().Err() != nil {
		x.run.promised.Store(true) // its client has gone: nobody gets the answer
	}
	x.capture.lend()
	x.rec, x.how = x.run.settle(x.outcome)
	if !x.returned {
		x.capture.abort()
	}
	x.capture.conclude()
	x.settled = x.returned
}

// removeForm removes the temporary files of a multipart form that the handler has parsed. net/http removes only those
// of its own request.
func (x *exchange) removeForm() {
	if f := x.req.MultipartForm; f != nil {
		f.RemoveAll() //nolint:errcheck // temporary files; nobody can mend that here
	}
}

// decide says what the run of a handler that returned is settled with.
func (x *exchange) decide() driver.Outcome {
	j := &x.run.joint
	j.close()
	x.capture.close()
	var o driver.Outcome
	switch j.state {
	case committed, doubtful:
		return j.outcome
	case rolledBack:
		o = x.decideRolledBack()
	default:
		o = x.decideAnswer(x.g.policy)
	}
	if x.g.policy.OneCommit && o.State != driver.Done && (x.lost || x.capture.unkept != nil) {
		x.lost, x.nothing = false, true // nothing of it will be recorded, so there is no doubt
	}
	return o
}

// decideAnswer decides by the answer.
func (x *exchange) decideAnswer(p *policy) driver.Outcome {
	c := &x.capture
	if lost := x.run.op.lost.Load(); lost != nil {
		x.lost = true
		return p.lost(errorText(lost.err))
	}
	if c.unbegun != nil {
		x.lost = true // the handler could not give its answer, and may have stopped in the middle
		return p.lost(c.unbegun.Error())
	}
	if c.status == 0 {
		return x.decideSilent(p)
	}
	if c.size > 0 {
		c.fixType(c.body[:min(len(c.body), sniffLen)])
	}
	v := Verdict(x.run.op.verdict.Load())
	if v == VerdictDefault && c.begun && !c.hijacked {
		v = VerdictKeep // the route has decided before the first byte left
	}
	v = p.verdict(v, c.status, c.sent, c.stored())
	if _, known := problemKinds[refusedBy(c.sent)]; known && v == VerdictRelease {
		x.run.op.Refuse(refusedBy(c.sent))
	}
	o := driver.Outcome{State: p.stateFor(v), Owed: v == VerdictLost}
	if o.State != driver.Done {
		o.Error = "answered " + strconv.Itoa(c.status)
		return o
	}
	if x.g.policy.NoStore {
		return o
	}
	if o.Response = c.response(); o.Response == nil {
		x.run.event(event.NotReplayable, c.whyNotStored())
	}
	return o
}

// decideSilent decides about a handler that has returned without an answer (R-32a). Nothing of it is known, unless it
// has promised that nothing happened.
func (x *exchange) decideSilent(p *policy) driver.Outcome {
	err := error(refusal.NoAnswer)
	if cause := context.Cause(&x.run.ctx); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	x.silent = err
	x.run.event(event.NoAnswer, err)
	if Verdict(x.run.op.verdict.Load()) == VerdictRelease {
		return driver.Outcome{State: driver.Free, Error: err.Error()}
	}
	x.lost = true
	return p.lost(err.Error())
}

func errorText(err error) string {
	if err == nil {
		return "lost"
	}
	return err.Error()
}

// answer gives the client the outcome of its run, now that it is durable or known not to be.
func (x *exchange) answer() {
	c := &x.capture
	defer c.discard()
	switch {
	case c.begun && (x.how != settledOwn || x.lost || c.torn):
		x.breakOff() // a stream ends cleanly only after its settle is acknowledged
	case c.begun:
		c.endLive()
		x.ran(c.status)
	case x.how == settledLater:
		x.refuse(x.g.problem(refusal.OutcomePending, ""))
	case x.silent != nil && x.how == settledOwn:
		x.refuse(x.silentProblem())
	case x.how == settledNothing, x.nothing && x.how == settledOwn:
		x.refuse(x.g.nothingProblem())
	case x.how == settledFenced, c.unkept != nil:
		x.answerRecorded()
	case x.lost, x.how == settledLost:
		x.refuse(x.g.lostProblem())
	default:
		// While a slow client reads, only what it is sent is held.
		x.body, x.req, x.outcome.Response, x.rec.Response = nil, nil, nil, nil
		if err := c.writeLive(); err != nil {
			x.breakOff() // the temporary file can't be read
		}
		x.ran(c.status)
	}
}

// ran reports that the client has the answer of its run.
func (x *exchange) ran(status int) {
	result, code := x.run.op.result()
	x.decided(result, code, status, nil)
}

// breakOff ends the exchange without ending the answer.
func (x *exchange) breakOff() {
	x.decided(event.Failed, "", x.capture.status, nil)
	x.capture.abort()
	panic(http.ErrAbortHandler)
}

// lostProblem tells a client that its own run was lost. Under Rerun the same key may try again.
func (g *Guard) lostProblem() *Problem {
	if g.policy.OnLost == Rerun {
		return g.problem(refusal.OutcomePending, "the run was lost; the same key will run it again")
	}
	return g.problem(refusal.OutcomeUnknown, "the run was lost; ask for the operation's status, or for its operator's decision")
}

// silentProblem tells a client that the handler gave its run no answer, and whether the same key may try again.
func (x *exchange) silentProblem() *Problem {
	p := x.g.problem(refusal.NoAnswer, "").because(x.silent)
	switch {
	case x.nothing:
		p.Retryable, p.Detail = true, "its transaction was rolled back; the same key may try again"
	case x.outcome.State == driver.Free:
		p.Retryable, p.Detail = true, "the same key will run it again"
	}
	return p
}

// answerRecorded answers with what the record says: the client of a late owner, which never gets the late owner's own
// result, and one whose answer could not be kept.
func (x *exchange) answerRecorded() {
	rec := &x.rec
	if rec.State == driver.Absent || !rec.Fingerprint.Equal(x.ask.fingerprint) {
		x.refuse(x.g.problem(refusal.OutcomeUnknown, ""))
		return
	}
	switch rec.Reads(x.g.policy.OnLost) {
	case driver.ReadsDone:
		x.replay(rec)
	case driver.ReadsRunning, driver.ReadsFree:
		x.refuse(x.g.inProgress(rec))
	default:
		x.refuse(x.g.problem(refusal.OutcomeUnknown, ""))
	}
}
