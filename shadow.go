package semel

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/thrown"
	"github.com/semelhq/semel/refusal"
)

// shadow is Wrap in observe mode: next always runs, and answers as if there were no guard. The guard records and
// reports what it would have done.
func (g *Guard) shadow(next http.Handler, w http.ResponseWriter, r *http.Request) {
	x := &execution{exchange: exchange{request: request{g: g, started: time.Now()}, w: shadowWriter{}, r: r}}
	var read bytes.Buffer
	x.copied = &read
	problem := x.unthrown(x.identify)
	if body := r.Body; read.Len() > 0 {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(&read, body), body}
	}
	defer x.closeBody()
	switch {
	case x.own:
	case problem != nil:
		x.watched(x.refusing(problem))
	case x.unkeyed:
		x.watched(decision{result: event.Unkeyed})
	default:
		x.ask.Wait = 0
		problem := x.enter(r.Context(), &x.rec)
		if x.run != nil {
			x.shadowRun(next, w)
			return
		}
		if problem == nil {
			problem = x.unthrown(func() (p *Problem) {
				_, _, p = x.replayable(&x.rec)
				return p
			})
		}
		switch {
		case problem == nil:
			x.watched(decision{result: event.Replayed, status: x.rec.Response.Status})
		case g.opens(problem):
			x.watched(decision{result: event.Bypassed, code: problem.Code, err: problem.cause})
		default:
			x.watched(x.refusing(problem))
		}
	}
	next.ServeHTTP(w, r)
}

// unthrown returns the panic of a hook as a refusal, so that observing does not disturb next.
func (x *exchange) unthrown(f func() *Problem) (p *Problem) {
	defer func() {
		if value := recover(); value != nil {
			p = x.g.problem(refusal.RequestUnreadable, "").because(thrown.Error(value))
		}
	}()
	return f()
}

// shadowRun runs next as the owner of its operation. The lease is renewed, but nothing that happens to it touches next.
func (x *execution) shadowRun(next http.Handler, w http.ResponseWriter) {
	x.capture.init(x, w)
	rec, above := &answer.Recorder{ResponseWriter: w, Body: &x.capture.body}, w.Header().Clone()
	x.begin(&x.op, x)
	x.op.observed = true
	x.req = x.r.WithContext(engine.WithRun(x.r.Context(), x.run))
	defer func() {
		x.run.Close()
		x.removeForm()
		rec.End(x.g.policy.EmptyOK)
		if err := x.r.Context().Err(); err != nil && rec.Failed == nil {
			rec.Failed = err // its client ended it; under the guard it would have finished
		}
		x.capture.record(rec, above)
		// The handler has already given the answer. Settling must not hold it back, and Policy.Decide must not change it.
		go x.shadowSettle()
	}()
	next.ServeHTTP(rec.As(w), x.req)
	x.returned = true
}

// shadowSettle records the outcome of a run, whether its handler returned or not.
func (x *execution) shadowSettle() {
	d := x.run.Decide(engine.Ending{})
	decided := false
	defer x.capture.discard()
	defer func() {
		recover() //nolint:errcheck // a panic of Policy.Decide; the run counts as lost
		if !decided {
			x.run.Tell(event.Panic, nil)
		}
		x.run.HandlerEnded()
		x.capture.lend()
		result, code := x.op.counts()
		if _, how := x.run.Settle(d.Outcome); how != engine.SettleAcknowledged || !decided || d.Lost {
			result, code = event.Failed, ""
		}
		if x.silent != nil {
			result, code = event.Failed, refusal.NoAnswer
		}
		x.watched(decision{result: result, code: code, status: x.capture.status, err: x.silent})
	}()
	if x.returned {
		d = x.decide()
		decided = true
	}
}

// watched reports what would have become of the request.
func (x *exchange) watched(d decision) {
	d.observed = true
	x.decided(x.r.Context(), d)
}

// shadowWriter takes the headers that the guard would have added to the answer.
type shadowWriter struct{}

func (shadowWriter) Header() http.Header         { return http.Header{} }
func (shadowWriter) WriteHeader(int)             {}
func (shadowWriter) Write(p []byte) (int, error) { return len(p), nil }

// record takes over an answer that was recorded, to decide what is stored of it. above has the headers that the layers
// above the guard had set before.
func (c *capture) record(r *answer.Recorder, above http.Header) {
	for name, values := range above {
		if slices.Equal(r.Sent[name], values) {
			delete(r.Sent, name)
		}
	}
	c.header, c.sent = r.Header().Clone(), r.Sent
	c.status, c.declared, c.hijacked, c.unkept = r.Status, answer.DeclaredLength(r.Sent), r.Hijacked, r.Failed
}
