package semel

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/refusal"
)

// Handler protects next. The path of a request is serve, below: its key, its principal, its body and fingerprint, then
// the claim; what follows is a run of next, a replay, or a refusal. A request that comes from within a run of its own
// operation, as where a guard is within another on the same store, is passed to next: the outer guard has claimed it.
//
// What wraps the guard sees every request; what the guard wraps sees only those that run. So authentication, and
// whatever else a repeat must pass too, belongs above the guard. A rate limiter, and a check that can be passed only
// once, such as of a one-time token, belong below it: above, a repeat would spend the limit, or be refused its answer.
// Nothing above may read the body, as r.FormValue does in many a check of a form's token, or what is read of it has to
// be put back into r.Body: else a request with another body would be a repeat. The guard refuses such requests with 500
// and [event.BodyConsumed], as far as it can tell. It can't if a part was read of a body whose length the client does
// not declare. Compression belongs above: a stored answer is then compressed as each repeat accepts. http.StripPrefix
// belongs below: the path is part of what a request was, as the guard sees it.
//
// echo, gin and fiber write a part of their answers after their middlewares have returned, so there the guard is put in
// by semelecho, semelgin and semelfiber, modules of their own.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := takeResumption(r.Context()); s != nil {
			g.resume(s, next, w, r)
			return
		}
		switch {
		case !g.policy.protects(r):
			next.ServeHTTP(w, r)
		case g.policy.Observe:
			g.shadow(next, w, r)
		default:
			x := takeExchange()
			x.g, x.w, x.r, x.started = g, w, r, time.Now()
			x.serve(next)
			x.release()
		}
	})
}

// An exchange is one request of a protected method and what becomes of it.
type exchange struct {
	g       *Guard
	w       http.ResponseWriter
	r       *http.Request
	started time.Time

	ask       ask
	keyHeader string // the header in which the key came, and is echoed
	keyValue  string
	unkeyed   bool
	own       bool    // it comes from within the run that it asks for: a guard within a guard
	async     bool    // the client asked not to wait for its answer, and the route lets it
	question  bool    // it is about an operation ([Guard.Operations]), and runs nothing
	asker     attempt // of a question, whose misses are counted
	alone     bool    // there is no client: a completer runs it
	made      bool    // the correlation id was made, not sent
	body      *requestbody.Body
	copied    io.Writer         // gets what is read of the body; nil for nobody
	spare     *requestbody.Body // that of an earlier exchange, to be used again
	room      []string          // for headers of one value

	// Of the run, if there is one. Written on the handler's goroutine.
	run      *run
	req      *http.Request // the handler's
	capture  capture
	thrown   any // what it panicked with, if it ran on a goroutine of its own
	outcome  driver.Outcome
	returned bool  // the handler returned: no panic, no Goexit
	settled  bool  // and so did the settle of its run: how tells what came of it
	lost     bool  // no answer, perhaps an effect
	nothing  bool  // no effect, and no answer that would say so
	silent   error // the handler returned without an answer, and why; nil if it gave one
	how      settled

	settling  bool // the client can't be told 202 any more
	promising sync.Mutex

	rec driver.Record // as it stands: after the claim, and after the settle if there is a run
}

// exchanges holds those that ran nothing, for their memory to be used again: most are repeats then.
var exchanges = sync.Pool{New: func() any { return &exchange{} }}

func takeExchange() *exchange { return exchanges.Get().(*exchange) }

// release gives x back when its request has been answered, unless a handler, or another function of the user, may hold
// on to a part of it. It is not called if one has thrown. The values of headers, which outlast x, have memory of their
// own.
func (x *exchange) release() {
	if x.run != nil || x.body != nil && !x.body.Reusable() {
		return
	}
	body := x.body
	if body == nil {
		body = x.spare
	}
	*x = exchange{spare: body}
	exchanges.Put(x)
}

func (x *exchange) serve(next http.Handler) {
	defer func() {
		if x.run == nil { // a run closes it at its own end
			x.closeBody()
		}
	}()
	x.correlate()
	if p := x.identify(); p != nil {
		x.refuse(p)
		return
	}
	if x.own {
		x.pass(next)
		return
	}
	if x.unkeyed {
		x.bypass(next, event.Unkeyed)
		return
	}
	if p := x.sealRequest(); p != nil {
		x.refuse(p)
		return
	}
	x.keyedHeaders(x.w.Header())
	run, p := x.g.enter(x.r.Context(), &x.ask, &x.rec)
	switch {
	case run != nil:
		x.run = run
		x.execute(next)
	case p == nil:
		x.replay(&x.rec)
	case x.async && p.Code == refusal.InProgress && p.stored:
		x.accept(event.InProgress)
	case x.g.opens(p):
		x.setOwn(x.w.Header(), x.g.headers.status, "bypassed")
		x.bypass(next, event.Bypassed)
	default:
		x.refuse(p)
	}
}

// correlate takes the request's correlation id, or makes one, which the handler sees in the request and the client in
// the answer.
func (x *exchange) correlate() {
	name := x.g.headers.correlation
	if name == "" {
		return
	}
	if v := x.r.Header[name]; len(v) == 1 && plainID(v[0]) {
		x.ask.correlation = v[0]
	} else {
		x.ask.correlation, x.made = newCorrelation(), true
	}
	x.w.Header()[name] = x.value(x.ask.correlation)
}

// newCorrelation makes a correlation id: 128 random bits. It is no secret, so it need not cost what a token does.
func newCorrelation() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	return hex.EncodeToString(id[:])
}

// value returns the values of a header that has one. They share memory, so that what the guard adds to an answer does
// not cost an allocation a header.
func (x *exchange) value(v string) []string {
	if len(x.room) == cap(x.room) {
		x.room = make([]string, 0, 7) // most answers need no more
	}
	n := len(x.room)
	x.room = append(x.room, v)
	return x.room[n : n+1 : n+1]
}

// completed gives a copy of the request the correlation id and the key that were made for it. The caller's request, and
// its header, stay as they are.
func (x *exchange) completed(r *http.Request) {
	if !x.made && !x.ask.minted {
		return
	}
	h := maps.Clone(r.Header)
	if h == nil {
		h = http.Header{}
	}
	if x.made {
		h[x.g.headers.correlation] = x.value(x.ask.correlation)
	}
	if x.ask.minted {
		h[x.keyHeader] = x.value(x.keyValue)
	}
	r.Header = h
}

// plainID reports whether a correlation id may stand in logs and headers as it is.
func plainID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// bypass runs next without protection.
func (x *exchange) bypass(next http.Handler, result event.Result) {
	defer x.decided(result, "", 0, nil) // also if next panics
	x.pass(next)
}

// pass runs next with the request as it came.
func (x *exchange) pass(next http.Handler) {
	r := x.r.WithContext(x.r.Context())
	x.completed(r)
	if x.body != nil {
		r.Body = x.body.Open()
	}
	next.ServeHTTP(x.w, r)
}

// refuse answers with a problem of the guard's own.
func (x *exchange) refuse(p *Problem) {
	defer x.decided(resultOf(p.Code, x.run), p.Code, p.Status, p.cause) // also if ProblemOptions.Write panics
	x.tell(p)
}

func (x *exchange) tell(p *Problem) {
	if x.keyHeader != "" {
		x.keyedHeaders(x.w.Header())
	}
	x.linked(p)
	x.g.writeProblem(x.w, x.r, p)
}

// resultOf is the result of a request that was answered with a problem; r is its run, nil if there was none.
func resultOf(c refusal.Code, r *run) event.Result {
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

// keyedHeaders adds what every keyed answer carries.
func (x *exchange) keyedHeaders(h http.Header) {
	h[x.keyHeader] = x.value(x.keyValue)
	if _, set := h["Cache-Control"]; !set {
		h["Cache-Control"] = x.value("no-store")
	}
}

// decided reports the decision about this request.
func (x *exchange) decided(result event.Result, code refusal.Code, status int, err error) {
	if x.g.quiet {
		return
	}
	e := event.Event{
		Kind: event.Decision, Result: result, Code: code, ID: x.ask.id, Operation: x.ask.operation,
		Correlation: x.ask.correlation, Status: status, Duration: time.Since(x.started), Err: err,
	}
	if x.run != nil {
		e.Attempt, e.Fence = uint32(x.run.attempt), x.run.owner.Fence
	}
	x.g.observer.Observe(context.WithoutCancel(x.r.Context()), e)
}
