package semel

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/refusal"
)

// replay answers a repeat with what the record holds: the first answer, marked. It comes before everything the handler
// would check, preconditions included.
func (x *exchange) replay(rec *driver.Record) {
	status, problem := x.giveAgain(rec)
	if problem != nil {
		x.refuse(problem)
		return
	}
	x.decided(event.Replayed, "", status, nil)
}

// giveAgain sends the stored answer, marked, and returns its status; or it says why that can't be given.
func (x *exchange) giveAgain(rec *driver.Record) (int, *Problem) {
	answer, body, problem := x.replayable(rec)
	if problem != nil {
		return 0, problem
	}
	principal, held := x.ask.id.Scope(), x.g.held.Some(len(body))
	if !x.g.held.Take(principal, held) {
		p := x.g.bodyProblem(budget.ErrNoRoom)
		p.Title = "there is an answer, which can't be given at the moment"
		return 0, p
	}
	defer func() { x.g.held.Give(principal, held) }()
	rec.Response = nil // while a slow client reads, only what it is sent is held
	h, status := x.w.Header(), answer.Status
	x.replayFields(h, answer.Header)
	if x.question {
		h["Cache-Control"] = x.value("no-store") // what may be kept of an answer to POST may not be of one to GET
	}
	body = x.decodeFor(h, body, &held)
	for _, name := range x.g.headers.markers {
		h[name] = x.value("true")
	}
	x.keptHeaders(h, rec, status)
	var trailer http.Header
	if len(answer.Trailer) > 0 {
		trailer = http.Header{}
		x.replayFields(trailer, answer.Trailer)
	}
	x.writeBody(x.w, status, trailer, int64(len(body)), func(w io.Writer) error { //nolint:errcheck // memory can be read
		w.Write(body) //nolint:errcheck // the client has gone
		return nil
	})
	return status, nil
}

// longestUnpacked bounds what is unpacked of a stored body, in bytes, where the route has no higher limit: an answer is
// still replayed after the limit that it was stored under was lowered.
const longestUnpacked = 64 << 20

// replayable returns the stored answer, and its body as it was sent, or says why it can't be given.
func (x *exchange) replayable(rec *driver.Record) (*driver.Response, []byte, *Problem) {
	g := x.g
	if rec.Response == nil {
		return nil, nil, g.problem(refusal.ReplayUnavailable, g.whyNoAnswer())
	}
	answer, err := g.openAnswer(x.r.Context(), x.ask.id, rec)
	if err == nil {
		if err := x.mayHave(answer); err != nil {
			return nil, nil, x.withheld(err)
		}
	}
	var body []byte
	switch {
	case err != nil:
	case answer.Status < 200 || answer.Status > 999:
		err = fmt.Errorf("%w: an answer with status %d", driver.ErrUnreadable, answer.Status)
	default:
		body, err = g.codecs.unpack(answer, max(g.policy.MaxResponseBody, longestUnpacked))
	}
	if err != nil {
		g.storeFailed(x.r.Context(), "replay", x.ask.id, err)
		return nil, nil, g.problem(refusal.ReplayUnavailable, "").because(err)
	}
	return answer, body, nil
}

// whyNoAnswer says why a record that is done has no answer.
func (g *Guard) whyNoAnswer() string {
	if g.policy.NoStore {
		return "answers of this kind are shown once and never stored"
	}
	return "the answer was too large, was streamed in part, or was lost"
}

// replayFields adds the stored fields that this request may have: what must not be replayed may be in records of
// another version, or of another policy.
func (x *exchange) replayFields(dst, stored http.Header) {
	for name := range stored {
		if isCORS(name) || !x.storable(name, nil) {
			stored = x.ofThisRequest(dst, stored)
			break
		}
	}
	x.copyFields(dst, stored)
}

// ofThisRequest returns those of the stored fields that this request may have.
func (x *exchange) ofThisRequest(dst, stored http.Header) http.Header {
	readable := x.mayRead(stored) && len(dst[corsPrefix+"Allow-Origin"]) == 0 // what is set above the guard is for this request
	some := make(http.Header, len(stored))
	for name, values := range stored {
		if x.storable(name, nil) && (readable || !isCORS(name)) {
			some[name] = values
		}
	}
	return some
}

const corsPrefix = "Access-Control-"

// isCORS reports whether a header says which pages may read the answer, and what of it.
func isCORS(name string) bool { return strings.HasPrefix(name, corsPrefix) }

// mayRead reports whether the stored answer was for pages of the request's origin, or of any: to others its CORS
// headers say nothing.
func (x *exchange) mayRead(stored http.Header) bool {
	allowed, origin := stored[corsPrefix+"Allow-Origin"], x.r.Header["Origin"]
	return len(allowed) == 1 && (allowed[0] == "*" || len(origin) == 1 && allowed[0] == origin[0])
}

// copyFields adds stored fields to dst. It copies them: what is stored is shared, and must not be within reach of
// whoever changes the answer's header later.
func (x *exchange) copyFields(dst, stored http.Header) {
	for name, values := range stored {
		if len(values) == 1 {
			values = x.value(values[0])
		} else {
			values = slices.Clone(values)
		}
		setField(dst, name, values)
	}
}

// answerHeaders adds the handler's headers to dst.
func answerHeaders(dst, answer http.Header) {
	for name, values := range answer {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			setField(dst, name, values)
		}
	}
}

// layered are the headers to which several layers add: the handler can't see what the layers above it have set, so it
// must not replace that.
var layered = map[string]bool{
	"Link": true, "Server-Timing": true, "Set-Cookie": true, "Vary": true, "Www-Authenticate": true,
}

// setField sets a header of the handler's answer on the live one, over what was there.
func setField(dst http.Header, name string, values []string) {
	before := dst[name]
	if len(before) == 0 || len(values) == 0 || !layered[name] {
		dst[name] = values
		return
	}
	both := slices.Clip(before)
	for _, v := range values {
		if !slices.Contains(before, v) {
			both = append(both, v)
		}
	}
	dst[name] = both
}

// decodeFor decodes a gzip answer for a client that does not accept gzip, if there is room for it. held is what
// body has taken of the budget.
func (x *exchange) decodeFor(h http.Header, body []byte, held *int) []byte {
	if !strings.EqualFold(h.Get("Content-Encoding"), "gzip") || acceptsGzip(x.r.Header["Accept-Encoding"]) {
		return body
	}
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	limit := max(16*x.g.policy.MaxResponseBody, 1<<20)
	plain, err := io.ReadAll(io.LimitReader(zr, limit+1))
	if err != nil || int64(len(plain)) > limit {
		return body
	}
	more := max(0, x.g.held.Some(len(plain))-*held)
	if !x.g.held.Take(x.ask.id.Scope(), more) {
		return body
	}
	*held += more
	// These describe the encoded bytes.
	for _, name := range []string{"Content-Encoding", "Content-Digest", "Repr-Digest", "Digest", "Content-Md5"} {
		delete(h, name)
	}
	if tag := h.Get("Etag"); strings.HasPrefix(tag, `"`) {
		h.Set("Etag", "W/"+tag)
	}
	return plain
}

// acceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3). Without the header a client gets no coding, which is
// always acceptable.
func acceptsGzip(lines []string) bool {
	accepts := false
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(item, ";")
			coding = strings.TrimSpace(coding)
			refused := false
			if name, weight, ok := strings.Cut(params, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
				q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
				refused = err != nil || !(q > 0)
			}
			switch {
			case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
				return !refused
			case coding == "*":
				accepts = !refused
			}
		}
	}
	return accepts
}

// keptHeaders adds what the answer of a done operation carries: until when it is kept, and that an error is
// final for this key.
func (x *exchange) keptHeaders(dst http.Header, rec *driver.Record, status int) {
	if rec.State == driver.Done && rec.Retention < Forever/2 {
		x.setOwn(dst, x.g.headers.expires, x.g.dates.format(rec.Kept()))
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

// writeLive sends a buffered answer, as the handler made it.
func (c *capture) writeLive() error {
	h := c.live.Header()
	if c.shared {
		c.x.copyFields(h, c.sent)
	} else {
		answerHeaders(h, c.sent)
	}
	if c.x.rec.State == driver.Done {
		c.x.keptHeaders(h, &c.x.rec, c.status)
	}
	size, trailer := c.size, c.trailer()
	if bodyAllowed(c.status) && c.declared > size {
		// The handler promised more than it wrote: net/http breaks the connection, if the answer has a length.
		size, trailer = c.declared, nil
		delete(h, "Trailer")
		delete(h, "Transfer-Encoding")
	}
	return c.x.writeBody(c.live, c.status, trailer, size, func(w io.Writer) error {
		if c.spill == nil {
			w.Write(c.body) //nolint:errcheck // the client has gone
			return nil
		}
		src := requestbody.WatchedReader{Reader: io.NewSectionReader(c.spill, 0, c.size)}
		n, err := io.Copy(w, &src)
		if err == nil && n < c.size {
			return io.ErrUnexpectedEOF // the file has become shorter
		}
		return src.Err // any other error is the client's, who has gone
	})
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
		delete(h, name) // as a header it has gone out; with the prefix it counts once
		h[http.TrailerPrefix+name] = values
	}
}

// writeBody sends status, body and trailers. An answer with trailers has no Content-Length, since they need chunks. The
// only error is that of body, if that can't be read whole.
func (x *exchange) writeBody(w http.ResponseWriter, status int, trailer http.Header, size int64, body func(io.Writer) error) error {
	h := w.Header()
	if !bodyAllowed(status) {
		if status != http.StatusNotModified {
			delete(h, "Content-Length")
		}
		w.WriteHeader(status)
		return nil
	}
	var names []string
	if len(trailer) > 0 {
		names = slices.Sorted(maps.Keys(trailer))
		announced := elements(h["Trailer"])
		for _, name := range names {
			if !slices.Contains(announced, name) {
				h["Trailer"] = append(slices.Clip(h["Trailer"]), name)
			}
		}
	}
	if len(h["Trailer"]) > 0 || len(h["Transfer-Encoding"]) > 0 {
		delete(h, "Content-Length")
	} else {
		h["Content-Length"] = x.value(strconv.FormatInt(size, 10))
	}
	w.WriteHeader(status)
	if err := body(w); err != nil {
		return err
	}
	for _, name := range names {
		h[name] = trailer[name]
	}
	return nil
}
