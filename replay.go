package semel

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// replay answers a repeat with what the record holds: the first answer, marked. It comes before everything the handler
// would check, preconditions included.
func (x *exchange) replay(rec *Record) {
	g := x.g
	if rec.Response == nil || rec.State != Done {
		x.refuse(g.problem(CodeReplayUnavailable, "the answer was too large, was streamed in part, or was lost"))
		return
	}
	if f := g.policy.AuthorizeReplay; f != nil {
		if err := f(x.r); err != nil {
			x.refuse(g.problem(CodeReplayForbidden, "").because(err))
			return
		}
	}
	body, err := g.codecs.unpack(rec.Response, g.policy.MaxResponseBody)
	if err != nil {
		g.storeFailed(x.r.Context(), "replay", x.ask.id, err)
		x.refuse(g.problem(CodeReplayUnavailable, "").because(err))
		return
	}
	h := x.w.Header()
	copyHeader(h, rec.Response.Header)
	body = x.decodeFor(h, body)
	for _, name := range g.headers.markers {
		h[name] = []string{"true"}
	}
	keptHeaders(h, rec, rec.Response.Status)
	writeBody(x.w, rec.Response.Status, rec.Response.Trailer, int64(len(body)), func(w io.Writer) error {
		_, err := w.Write(body)
		return err
	})
	x.decided(ResultReplayed, "", rec.Response.Status, nil)
}

// copyHeader copies the stored values: what is stored is shared, and must not be within reach of whoever changes the
// answer's header later.
func copyHeader(dst, src http.Header) {
	n := 0
	for _, values := range src {
		n += len(values)
	}
	all := make([]string, 0, n)
	for name, values := range src {
		from := len(all)
		all = append(all, values...)
		dst[name] = all[from:len(all):len(all)]
	}
}

// decodeFor decodes a gzip answer for a client that does not accept gzip.
func (x *exchange) decodeFor(h http.Header, body []byte) []byte {
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
			if q, ok := strings.CutPrefix(strings.ToLower(strings.ReplaceAll(params, " ", "")), "q="); ok {
				v, err := strconv.ParseFloat(q, 64)
				refused = err != nil || v == 0
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

// answerHeaders adds the handler's headers to dst.
func answerHeaders(dst, answer http.Header) {
	for name, values := range answer {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			dst[name] = values
		}
	}
}

// keptHeaders adds what the answer of a done operation carries: until when it is kept, and that an error is final
// for this key.
func keptHeaders(dst http.Header, rec *Record, status int) {
	if rec.State == Done && rec.Retention < Forever/2 {
		dst["Idempotency-Expires"] = []string{rec.Expires().Time().Format(http.TimeFormat)}
	}
	if status >= 500 {
		dst["Idempotency-Retryable"] = []string{"false"}
	}
}

// writeLive sends a buffered answer, as the handler made it.
func (c *capture) writeLive() {
	h := c.live.Header()
	answerHeaders(h, c.sent)
	if c.x.rec.State == Done {
		keptHeaders(h, &c.x.rec, c.status)
	}
	size := c.size
	if bodyAllowed(c.status) && c.declared > size {
		size = c.declared // the handler promised more than it wrote: net/http breaks the connection
	}
	writeBody(c.live, c.status, c.trailer(), size, func(w io.Writer) error {
		if c.spill == nil {
			_, err := w.Write(c.body)
			return err
		}
		if _, err := c.spill.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(w, c.spill)
		return err
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
		h[http.TrailerPrefix+name] = values
	}
}

// writeBody sends status, body and trailers. An answer with trailers has no Content-Length, since they need chunks.
func writeBody(w http.ResponseWriter, status int, trailer http.Header, size int64, body func(io.Writer) error) {
	h := w.Header()
	var names []string
	if len(trailer) > 0 {
		names = slices.Sorted(maps.Keys(trailer))
	}
	switch {
	case !bodyAllowed(status):
		if status == http.StatusNoContent {
			delete(h, "Content-Length")
		}
	case len(names) > 0:
		delete(h, "Content-Length")
		h["Trailer"] = names
	default:
		h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	}
	w.WriteHeader(status)
	if bodyAllowed(status) {
		if err := body(w); err != nil {
			return // the client has gone, or the connection breaks because the body is short
		}
	}
	for _, name := range names {
		h[name] = trailer[name]
	}
}
