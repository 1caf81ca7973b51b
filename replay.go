package semel

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/refusal"
)

// replay answers a repeat with what the record holds: the first answer, marked. It comes before everything that the
// handler would check, including preconditions.
func (x *exchange) replay(rec *driver.Record) {
	status, problem := x.giveAgain(rec)
	if problem != nil {
		x.refuse(problem)
		return
	}
	x.decided(x.r.Context(), decision{result: event.Replayed, status: status})
}

// giveAgain sends the stored answer, marked, and returns its status. If the answer can't be given, it returns a problem
// that says why.
func (x *exchange) giveAgain(rec *driver.Record) (int, *Problem) {
	stored, body, problem := x.replayable(rec)
	if problem != nil {
		return 0, problem
	}
	principal, held := x.ask.ID.Scope(), x.g.held.Some(len(body))
	if !x.g.held.Take(principal, held) {
		p := x.g.bodyProblem(budget.ErrNoRoom)
		p.Title = "there is an answer, which can't be given at the moment"
		return 0, p
	}
	defer func() { x.g.held.Give(principal, held) }()
	rec.Response = nil // while a slow client reads, hold only what is sent to it
	h, status := x.w.Header(), stored.Status
	x.replayFields(h, stored.Header)
	if x.question {
		h["Cache-Control"] = x.value("no-store") // the stored cache headers were meant for POST, not for GET
	}
	body = x.decodeFor(h, body, &held)
	for _, name := range x.g.headers.markers {
		h[name] = x.value("true")
	}
	x.keptHeaders(h, rec, status)
	var trailer http.Header
	if len(stored.Trailer) > 0 {
		trailer = http.Header{}
		x.replayFields(trailer, stored.Trailer)
	}
	answer.Write(x.w, status, trailer, x.value(strconv.Itoa(len(body))), func(w io.Writer) error { //nolint:errcheck // memory can be read
		w.Write(body) //nolint:errcheck // the client has gone
		return nil
	})
	return status, nil
}

// longestUnpacked is the largest size in bytes to which a stored body is unpacked, if the route has no higher limit. So
// an answer is still replayed after its limit was lowered.
const longestUnpacked = 64 << 20

// replayable returns the stored answer, and its body as it was sent. If the answer can't be given, it returns a problem
// that says why.
func (x *exchange) replayable(rec *driver.Record) (*driver.Response, []byte, *Problem) {
	g := x.g
	if rec.Response == nil {
		return nil, nil, g.problem(refusal.ReplayUnavailable, g.whyNoAnswer())
	}
	stored, err := g.engine.OpenAnswer(x.r.Context(), x.ask.ID, rec)
	if err == nil {
		if err := x.mayHave(stored); err != nil {
			return nil, nil, x.withheld(err)
		}
	}
	var body []byte
	switch {
	case err != nil:
	case stored.Status < 200 || stored.Status > 999:
		err = fmt.Errorf("%w: an answer with status %d", driver.ErrUnreadable, stored.Status)
	default:
		body, err = g.codecs.Unpack(stored, max(g.policy.MaxResponseBody, longestUnpacked))
	}
	if err != nil {
		g.engine.Failed(x.r.Context(), "replay", x.ask.ID, err)
		return nil, nil, g.problem(refusal.ReplayUnavailable, "").because(err)
	}
	return stored, body, nil
}

// whyNoAnswer says why the record of an operation that is done has no answer.
func (g *Guard) whyNoAnswer() string {
	if g.policy.NoStore {
		return "answers of this kind are shown once and never stored"
	}
	return "the answer was too large, was streamed in part, or was lost"
}

// replayFields adds the stored fields that this request may have. It checks them again, because a record of another
// version, or of another policy, may have fields that must not be replayed.
func (x *exchange) replayFields(dst, stored http.Header) {
	readable := x.mayRead(stored) && len(dst[answer.CORSPrefix+"Allow-Origin"]) == 0 // what layers above have set is for this request
	for name, values := range stored {
		if x.storable(name, nil) && (readable || !answer.IsCORS(name)) {
			answer.SetField(dst, name, x.copyOf(values))
		}
	}
}

// mayRead reports whether the stored answer was for pages of the request's origin, or of any origin. For other origins
// its CORS headers do not apply.
func (x *exchange) mayRead(stored http.Header) bool {
	allowed, origin := stored[answer.CORSPrefix+"Allow-Origin"], x.r.Header["Origin"]
	return len(allowed) == 1 && (allowed[0] == "*" || len(origin) == 1 && allowed[0] == origin[0])
}

// decodeFor decodes a gzip answer for a client that does not accept gzip, if there is room for it. held is the
// part of the budget that body has taken.
func (x *exchange) decodeFor(h http.Header, body []byte, held *int) []byte {
	if !strings.EqualFold(h.Get("Content-Encoding"), "gzip") || answer.AcceptsGzip(x.r.Header["Accept-Encoding"]) {
		return body
	}
	plain, ok := answer.Gunzip(body, max(16*x.g.policy.MaxResponseBody, 1<<20))
	if !ok {
		return body
	}
	more := max(0, x.g.held.Some(len(plain))-*held)
	if !x.g.held.Take(x.ask.ID.Scope(), more) {
		return body
	}
	*held += more
	answer.Decoded(h)
	return plain
}

// keptHeaders adds the headers that say how long the answer of a done operation is kept, and that an error is
// final for this key.
func (x *exchange) keptHeaders(dst http.Header, rec *driver.Record, status int) {
	if rec.State == driver.Done && rec.Retention < Forever/2 {
		x.setOwn(dst, x.g.headers.expires, x.g.dates.Format(rec.Kept().Time()))
	}
	if status >= 500 {
		x.setOwn(dst, x.g.headers.retryable, "false")
	}
}

// setOwn sets a header of the guard's own, if it has a name.
func (x *exchange) setOwn(dst http.Header, name, value string) {
	if name != "" {
		dst[name] = x.value(value)
	}
}

// writeLive sends a buffered answer as the handler made it.
func (c *capture) writeLive() error {
	h := c.live.Header()
	if c.shared {
		for name, values := range c.sent { // whoever changes the answer's header later must not change what is stored
			answer.SetField(h, name, c.x.copyOf(values))
		}
	} else {
		answer.AddFields(h, c.sent)
	}
	if c.x.rec.State == driver.Done {
		c.x.keptHeaders(h, &c.x.rec, c.status)
	}
	size, trailer := c.body.Size(), c.trailer()
	if answer.BodyAllowed(c.status) && c.declared > size {
		// The handler wrote less than it declared: net/http breaks the connection, if the answer has a length.
		size, trailer = c.declared, nil
		delete(h, "Trailer")
		delete(h, "Transfer-Encoding")
	}
	return answer.Write(c.live, c.status, trailer, c.x.value(strconv.FormatInt(size, 10)), c.body.Send)
}

// endLive ends a streamed answer: the byte that was held back, and the trailers.
func (c *capture) endLive() {
	if c.hijacked {
		return
	}
	if len(c.held) > 0 {
		c.live.Write(c.held) //nolint:errcheck // the client has gone
	}
	h := c.live.Header()
	for name, values := range c.trailer() {
		delete(h, name) // as a header it has been sent; with the prefix it counts once
		h[http.TrailerPrefix+name] = values
	}
}
