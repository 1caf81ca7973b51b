package semel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// shadow is Handler in observe mode: next always runs, and answers as if there were no guard. What the guard would
// have done is recorded and reported.
func (g *Guard) shadow(next http.Handler, w http.ResponseWriter, r *http.Request) {
	x := &exchange{g: g, w: shadowWriter{}, r: r, started: time.Now()}
	var read bytes.Buffer
	body := r.Body
	problem := x.identify(io.TeeReader(body, &read))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&read, body), body}
	x.closeBody()
	switch {
	case problem != nil:
		x.observed(resultOf(problem.Code), problem)
	case x.unkeyed:
		x.observed(ResultUnkeyed, nil)
	default:
		x.ask.wait = 0
		run, _, problem := g.enter(r.Context(), &x.ask)
		switch {
		case run != nil:
			x.run = run
			x.shadowRun(next, w)
			return
		case problem != nil:
			x.observed(resultOf(problem.Code), problem)
		default:
			x.observed(ResultReplayed, nil)
		}
	}
	next.ServeHTTP(w, r)
}

// shadowRun runs next as the owner of its operation. The lease is renewed, but nothing that happens to it touches next.
func (x *exchange) shadowRun(next http.Handler, w http.ResponseWriter) {
	rec := &recorder{ResponseWriter: w, limit: x.g.policy.MaxResponseBody}
	x.capture.init(x, nil)
	defer func() {
		x.run.lease.handlerEnded()
		o := Outcome{State: x.g.policy.lostState(), Error: "the handler did not return"}
		if x.returned {
			rec.copyTo(&x.capture)
			o, _ = x.outcome()
		}
		// The answer has gone; settling must not hold it back.
		go func() {
			x.run.settle(o)
			x.observed(ResultExecuted, nil)
		}()
	}()
	next.ServeHTTP(rec, x.r.WithContext(context.WithValue(x.r.Context(), operationKey{}, &x.run.op)))
	x.returned = true
}

func (x *exchange) observed(result Result, p *Problem) {
	e := Event{
		Kind: EventDecision, Result: result, Observed: true, ID: x.ask.id, Operation: x.ask.operation,
		Correlation: x.ask.correlation, Duration: time.Since(x.started),
	}
	if x.run != nil {
		e.Attempt, e.Fence = uint32(x.run.op.Attempt), x.run.owner.Fence
	}
	if p != nil {
		e.Code, e.Err = p.Code, p.cause
	}
	x.g.observer.Observe(x.r.Context(), e)
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
	limit  int64
	status int
	sent   http.Header
	body   []byte
	size   int64
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status, r.sent = status, r.Header().Clone()
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status, r.sent = http.StatusOK, r.Header().Clone()
	}
	n, err := r.ResponseWriter.Write(p)
	r.size += int64(n)
	if r.size <= r.limit {
		r.body = append(r.body, p[:n]...)
	}
	return n, err
}

func (r *recorder) Flush() { r.FlushError() } //nolint:errcheck // http.Flusher has no error

func (r *recorder) FlushError() error {
	if r.status == 0 {
		r.status, r.sent = http.StatusOK, r.Header().Clone()
	}
	err := http.NewResponseController(r.ResponseWriter).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// copyTo gives the recorded answer to a capture, which decides what is stored of it.
func (r *recorder) copyTo(c *capture) {
	if r.status == 0 {
		r.status, r.sent = http.StatusOK, r.Header().Clone()
	}
	c.header, c.sent = r.Header(), r.sent
	c.status, c.body, c.size, c.over = r.status, r.body, r.size, r.size > r.limit
}
