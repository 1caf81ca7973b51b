package semel

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/correlation"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/refusal"
)

// Wrap protects next. The method serve, below, is the path of a request: its key, its principal, its body and
// fingerprint, then the claim. What follows is a run of next, a replay, or a refusal. A request that comes from within
// a run of its own operation is passed to next, because the outer guard has claimed it; this happens where a guard is
// within another on the same store.
//
// Layers above the guard see every request; layers below it see only the requests that run. So authentication belongs
// above the guard, and so does everything else that a repeat must pass too. A rate limiter belongs below it, and so
// does a check that can be passed only once, such as of a one-time token: above, a repeat would spend the limit, or be
// refused its answer. No layer above may read the body, as r.FormValue does in many checks of a form's token, unless it
// puts what it read back into r.Body: else a request with another body would be a repeat. The guard refuses such
// requests with 500 and [event.BodyConsumed], as far as it can tell. It can't tell if a part was read of a body whose
// length the client does not declare. Compression belongs above: a stored answer is then compressed as each repeat
// accepts. http.StripPrefix belongs below: the path that the guard sees is part of what identifies a request.
//
// echo, gin and fiber write a part of their answers after their middlewares have returned. There, use semelecho,
// semelgin or semelfiber, which are modules of their own, to put the guard in.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := takeResumption(r.Context()); s != nil {
			g.resume(s, next, w, r)
			return
		}
		switch {
		case !g.policy.protects(r):
			next.ServeHTTP(w, r)
		case g.policy.ObserveOnly:
			g.shadow(next, w, r)
		default:
			x := exchanges.Get().(*execution)
			x.g, x.w, x.r, x.started = g, w, r, time.Now()
			x.serve(next)
			x.release()
		}
	})
}

// An exchange is one HTTP request of a protected method, and its outcome.
type exchange struct {
	request
	w http.ResponseWriter
	r *http.Request

	keyHeader string // the header in which the key came, and is echoed
	keyValue  string
	unkeyed   bool
	own       bool            // the request comes from within the run that it asks for: a guard within a guard
	async     bool            // the client asked not to wait for its answer, and the route lets it
	question  bool            // the request asks about an operation ([Guard.Operations]), and runs nothing
	asker     *engine.Attempt // who asks a question: misses are counted
	alone     bool            // there is no client: a completer runs it
	made      bool            // the correlation id was made, not sent
	body      *requestbody.Body
	copied    io.Writer // gets the bytes read from the body; nil for nobody
	received  *received // memory for the body, perhaps of an earlier exchange
	values    []string  // see value

	rec driver.Record // its state after the claim, and after the settle if there is a run
}

// received is what a handler gets of a request, in one piece of memory. It can be collected as soon as the handler no
// longer holds it, even while a slow client still reads the answer.
type received struct {
	request http.Request
	body    requestbody.Body
	room    [376]byte // for a small body: with it, this is just within one of the allocator's sizes
}

func newReceived() *received {
	m := &received{}
	m.body.Data = m.room[:0]
	return m
}

// exchanges holds executions that ran nothing, so that their memory can be used again: where there are many, most are
// repeats.
var exchanges = sync.Pool{New: func() any { return &execution{} }}

// release gives x back when its request has been answered. It does not if a handler, or another function of the user,
// may still hold a part of x. It is not called if such a function has panicked. The values of headers, which live
// longer than x, have memory of their own. What only a run uses has not been touched.
func (x *execution) release() {
	if x.run != nil || x.body != nil && !x.body.Reusable() {
		return
	}
	x.exchange = exchange{received: x.received}
	exchanges.Put(x)
}

func (x *execution) serve(next http.Handler) {
	defer func() {
		if x.run == nil { // a run closes the body at its own end
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
	x.ask.Room = &x.room
	p := x.enter(x.r.Context(), &x.rec)
	switch {
	case x.run != nil:
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

// correlate takes the request's correlation id, or makes one. The handler sees it in the request, and the client in the
// answer.
func (x *exchange) correlate() {
	name := x.g.headers.correlation
	if name == "" {
		return
	}
	if v := x.r.Header[name]; len(v) == 1 && correlation.Plain(v[0]) {
		x.ask.Correlation = v[0]
	} else {
		x.ask.Correlation, x.made = correlation.New(), true
	}
	x.w.Header()[name] = x.value(x.ask.Correlation)
}

// value returns the values of a header that has one. The values of an answer share memory: an allocation for each
// header would be half of what a replay allocates.
func (x *exchange) value(v string) []string {
	if len(x.values) == cap(x.values) {
		x.values = make([]string, 0, 8) // most answers need no more
	}
	n := len(x.values)
	x.values = append(x.values, v)
	return x.values[n : n+1 : n+1]
}

// copyOf returns a copy of a header's values.
func (x *exchange) copyOf(values []string) []string {
	if len(values) == 1 {
		return x.value(values[0])
	}
	return slices.Clone(values)
}

// completed gives a copy of the request the correlation id and the key that were made for it. The caller's request and
// its header do not change.
func (x *exchange) completed(r *http.Request) {
	if !x.made && !x.ask.minted {
		return
	}
	h := maps.Clone(r.Header)
	if h == nil {
		h = http.Header{}
	}
	if x.made {
		h[x.g.headers.correlation] = x.value(x.ask.Correlation)
	}
	if x.ask.minted {
		h[x.keyHeader] = x.value(x.keyValue)
	}
	r.Header = h
}

// bypass runs next without protection.
func (x *exchange) bypass(next http.Handler, result event.Result) {
	defer x.decided(x.r.Context(), decision{result: result}) // also if next panics
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
	d := x.refusing(p)
	d.status = p.Status
	defer x.decided(x.r.Context(), d) // also if ProblemOptions.Write panics
	x.tell(p)
}

func (x *exchange) tell(p *Problem) {
	if x.keyHeader != "" {
		x.keyedHeaders(x.w.Header())
	}
	x.linked(p)
	x.g.writeProblem(x.w, x.r, p)
}

// keyedHeaders adds what every keyed answer carries.
func (x *exchange) keyedHeaders(h http.Header) {
	h[x.keyHeader] = x.value(x.keyValue)
	if _, set := h["Cache-Control"]; !set {
		h["Cache-Control"] = x.value("no-store")
	}
}
