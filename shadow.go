package semel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// shadow is Handler in observe mode: next always runs, and answers as if there were no guard. What the guard
// would have done is recorded and reported.
func (g *Guard) shadow(next http.Handler, w http.ResponseWriter, r *http.Request) {
	x := &exchange{g: g, w: shadowWriter{}, r: r, started: time.Now()}
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
		x.observed(resultOf(problem.Code, nil), 0, problem)
	case x.unkeyed:
		x.observed(event.Unkeyed, 0, nil)
	default:
		x.ask.wait = 0
		run, problem := g.enter(r.Context(), &x.ask, &x.rec)
		if run != nil {
			x.run = run
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
			x.observed(event.Replayed, x.rec.Response.Status, nil)
		case g.opens(problem):
			x.observed(event.Bypassed, 0, problem)
		default:
			x.observed(resultOf(problem.Code, nil), 0, problem)
		}
	}
	next.ServeHTTP(w, r)
}

// unthrown returns what a hook has thrown as a refusal: what is observed is not in the way of next.
func (x *exchange) unthrown(f func() *Problem) (p *Problem) {
	defer func() {
		if thrown := recover(); thrown != nil {
			p = x.g.problem(refusal.RequestUnreadable, "").because(thrownError(thrown))
		}
	}()
	return f()
}

// shadowRun runs next as the owner of its operation. The lease is renewed, but nothing that happens to it touches next.
func (x *exchange) shadowRun(next http.Handler, w http.ResponseWriter) {
	rec := &recorder{ResponseWriter: w, limit: x.g.policy.MaxResponseBody, above: w.Header().Clone()}
	x.capture.init(x, w)
	x.run.joint.apart = true
	x.req = x.r.WithContext(context.WithValue(x.r.Context(), operationKey{}, &x.run.op))
	defer func() {
		x.run.lease.handlerEnded()
		x.removeForm()
		if err := x.r.Context().Err(); err != nil && rec.failed == nil {
			rec.failed = err // its client cut it off; under the guard it would have finished
		}
		rec.copyTo(&x.capture)
		// The answer is the handler's already; settling must not hold it back, nor Policy.Decide change it.
		go x.shadowSettle(x.returned)
	}()
	next.ServeHTTP(rec.as(w), x.req)
	x.returned = true
}

// shadowSettle records the outcome of a run whose handler returned or did not.
func (x *exchange) shadowSettle(returned bool) {
	o := x.g.policy.lost("the handler did not return")
	decided := false
	defer func() {
		recover() //nolint:errcheck // what Policy.Decide throws; the run counts as lost
		result, code := x.run.op.result()
		if !decided {
			x.run.event(event.Panic, nil)
		}
		if _, how := x.run.settle(o); how != settledOwn || !decided || x.lost {
			result, code = event.Failed, ""
		}
		var problem *Problem
		if code != "" {
			problem = &Problem{Code: code}
		}
		if x.silent != nil {
			result, problem = event.Failed, x.g.problem(refusal.NoAnswer, "").because(x.silent)
		}
		x.observed(result, x.capture.status, problem)
	}()
	if returned {
		o = x.decide()
		decided = true
	}
}

func (x *exchange) observed(result event.Result, status int, p *Problem) {
	e := event.Event{
		Kind: event.Decision, Result: result, Observed: true, ID: x.ask.id, Operation: x.ask.operation,
		Correlation: x.ask.correlation, Status: status, Duration: time.Since(x.started),
	}
	if x.run != nil {
		e.Attempt, e.Fence = uint32(x.run.attempt), x.run.owner.Fence
	}
	if p != nil {
		e.Code, e.Err = p.Code, p.cause
	}
	x.g.observer.Observe(context.WithoutCancel(x.r.Context()), e)
}

// shadowWriter takes what the guard would have added to the answer.
type shadowWriter struct{}

func (shadowWriter) Header() http.Header         { return http.Header{} }
func (shadowWriter) WriteHeader(int)             {}
func (shadowWriter) Write(p []byte) (int, error) { return len(p), nil }

// recorder passes an answer through and remembers it up to a limit. Unlike capture it protects nothing, so the handler
// may reach through it.
type recorder struct {
	http.ResponseWriter
	above    http.Header // what the layers above the guard had set before
	limit    int64
	status   int
	sent     http.Header
	body     []byte
	size     int64
	hijacked bool
	failed   error // the answer was not sent as the handler wrote it
}

// as returns the recorder with the optional interfaces that w has, by which a handler may choose what it does.
func (r *recorder) as(w http.ResponseWriter) http.ResponseWriter {
	_, flushes := w.(http.Flusher)
	switch {
	case canHijack(w):
		return hijackRecorder{flushRecorder{r}}
	case flushes:
		return flushRecorder{r}
	}
	return r
}

type flushRecorder struct{ *recorder }

func (r flushRecorder) Flush() { r.FlushError() } //nolint:errcheck // http.Flusher has no error

type hijackRecorder struct{ flushRecorder }

func (r hijackRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.hijacked = true
	}
	return conn, rw, err
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// note remembers the status and headers, which go out from now on.
func (r *recorder) note(status int) {
	if r.status == 0 {
		r.status, r.sent = status, r.Header().Clone()
	}
}

func (r *recorder) WriteHeader(status int) {
	if status >= 200 && status <= 999 || status == http.StatusSwitchingProtocols {
		r.note(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.note(http.StatusOK)
	n, err := r.ResponseWriter.Write(p)
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		r.failed = err
	}
	r.size += int64(n)
	if r.size <= r.limit {
		r.body = append(r.body, p[:n]...)
	} else {
		r.body = nil
	}
	return n, err
}

func (r *recorder) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

func (r *recorder) FlushError() error {
	r.note(http.StatusOK)
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// copyTo gives the recorded answer to a capture, which decides what is stored of it.
func (r *recorder) copyTo(c *capture) {
	switch {
	case r.hijacked:
		r.note(http.StatusSwitchingProtocols)
	case c.x.g.policy.EmptyOK:
		r.note(http.StatusOK)
	}
	for name, values := range r.above {
		if slices.Equal(r.sent[name], values) {
			delete(r.sent, name)
		}
	}
	c.header, c.sent = r.Header().Clone(), r.sent
	c.status, c.body, c.size, c.over = r.status, r.body, r.size, r.size > r.limit
	c.declared, c.hijacked, c.unkept = declaredLength(r.sent), r.hijacked, r.failed
}
