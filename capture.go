package semel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// capture is the ResponseWriter that a guarded handler gets. A buffered answer stays in it until its outcome is durable;
// a streamed one passes through it, once the record says that it has begun. It has no Unwrap, which would let a handler
// reach the connection under the guard.
//
// Like any ResponseWriter it is used by one goroutine at a time, except for detach.
type capture struct {
	x      *exchange
	header http.Header // the handler's own; what lies on the live writer already stays there
	sent   http.Header // a copy of header as it was when the status was written; nil before
	shared bool        // sent is part of the stored answer: it is read-only
	typed  bool        // the live writer has a Content-Type already, for answers without one
	status int         // 0 before the status was written

	body     []byte
	spill    *os.File // holds body instead, above the limit
	size     int64
	declared int64 // Content-Length that the handler declared, -1 if none
	over     bool  // above the limit: can't be stored
	unlinked bool  // spill has no name any more
	streams  bool
	hijacked bool
	held     []byte

	holds    bool        // the answer is, or may become, part of a transaction: nothing leaves before the settle
	frozen   bool        // a transaction has committed the answer, or tried to
	trailers http.Header // as they were then
	point    point       // what rewind goes back to

	unbegun error // the record could not be marked begun: no byte leaves
	unkept  error // the temporary file could not be written: the answer is gone

	mu     sync.Mutex
	live   http.ResponseWriter // nil once the client was answered without this run
	begun  bool                // the first byte of the answer may have left
	begins bool                // it is about to
	ended  bool                // the outcome is settled
}

func (c *capture) init(x *exchange, live http.ResponseWriter) {
	c.x, c.live, c.declared = x, live, -1
	_, c.typed = live.Header()["Content-Type"]
}

// detach takes the client away from the run; it reports false if the client is receiving the answer already, or is about
// to.
func (c *capture) detach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leave()
}

// leave is detach, by a caller that holds c.mu.
func (c *capture) leave() bool {
	if c.begun || c.ended {
		return false
	}
	c.live = nil
	return true
}

// beginning notes that the record is about to say that the first byte of the answer may have left. It reports false, and
// notes nothing, if the client was answered without this run.
func (c *capture) beginning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return false
	}
	c.begins = true
	return true
}

// detachUnbegun is detach for a client that is promised an end: a run that has begun, or is about to, is never run again.
func (c *capture) detachUnbegun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.begins && c.leave()
}

// conclude is called when the outcome is settled. From then on the client is there for the answer, or for good gone.
func (c *capture) conclude() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.live == nil {
		c.discard()
	}
}

// client returns the live writer, nil if the client was answered without this run.
func (c *capture) client() http.ResponseWriter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

func (c *capture) Header() http.Header {
	if c.header == nil {
		c.header = make(http.Header, 8)
	}
	return c.header
}

func (c *capture) WriteHeader(status int) {
	switch {
	case c.status != 0:
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("semel: invalid WriteHeader code %d", status)) // as net/http does
	case status < 200 && status != http.StatusSwitchingProtocols:
		c.informational(status)
		return
	}
	c.status = status
	if c.sent = c.header.Clone(); c.sent == nil {
		c.sent = http.Header{}
	}
	c.declared = declaredLength(c.sent)
	// Nothing that will be released may begin: a begun operation is never run again.
	p := c.x.g.policy
	verdict := Verdict(c.x.run.op.verdict.Load())
	if verdict == VerdictDefault {
		verdict = p.byStatus(status)
	}
	c.streams = bodyAllowed(status) && c.declared != 0 && verdict == VerdictKeep &&
		(p.Stream || isEventStream(c.sent.Get("Content-Type")))
}

// declaredLength returns the Content-Length that a handler has set, -1 if there is none that counts.
func declaredLength(h http.Header) int64 {
	length := h.Get("Content-Length")
	if length == "" {
		return -1
	}
	if n, err := strconv.ParseInt(length, 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// informational sends a 1xx at once; it is not the answer.
func (c *capture) informational(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return
	}
	live := c.live.Header()
	before := live.Clone()
	answerHeaders(live, c.header)
	c.live.WriteHeader(status)
	clear(live)
	maps.Copy(live, before)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func isEventStream(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream")
}

func (c *capture) Write(p []byte) (int, error) { return write(c, p) }

func (c *capture) WriteString(s string) (int, error) { return write(c, s) }

func write[T []byte | string](c *capture, p T) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	switch {
	case c.frozen:
		return 0, ErrSettled
	case c.hijacked:
		return 0, http.ErrHijacked
	case c.unbegun != nil:
		return 0, c.unbegun
	case c.unkept != nil:
		return 0, c.unkept
	case len(p) == 0:
		return 0, nil
	case !bodyAllowed(c.status):
		return 0, http.ErrBodyNotAllowed
	case c.declared >= 0 && c.size+int64(len(p)) > c.declared:
		return 0, http.ErrContentLength
	}
	if c.streams && !c.begun {
		if err := c.begin([]byte(p[:min(len(p), sniffLen)])); err != nil {
			return 0, err
		}
	}
	if c.unkept = keep(c, p); c.unkept != nil {
		return 0, c.unkept
	}
	if c.begun {
		c.writeThrough([]byte(p))
	}
	return len(p), nil
}

const sniffLen = 512 // what http.DetectContentType looks at

// fixType gives the answer the Content-Type that net/http would give it, or keeps it from giving one, so that a replay
// has the same. first is what net/http would see of the body when it sends the header.
func (c *capture) fixType(first []byte) {
	if _, has := c.sent["Content-Type"]; has || c.typed || !bodyAllowed(c.status) {
		return
	}
	if len(first) == 0 || c.sent.Get("Content-Encoding") != "" || c.sent.Get("Transfer-Encoding") != "" {
		c.sent["Content-Type"] = nil
		return
	}
	c.sent.Set("Content-Type", http.DetectContentType(first))
}

// keep adds to the captured body. Above the limit it moves to a temporary file, or is dropped if nobody will be sent it
// from there: it has gone out already, or its client has.
func keep[T []byte | string](c *capture, p T) error {
	c.size += int64(len(p))
	switch {
	case c.spill != nil:
		_, err := c.spill.Write([]byte(p))
		return err
	case c.size <= c.x.g.policy.MaxResponseBody:
		c.body = append(c.body, p...)
		return nil
	}
	c.over = true
	body := c.body
	c.body = nil
	if c.begun || c.client() == nil {
		return nil
	}
	first := bytes.Clone(body[:min(len(body), sniffLen)])
	c.fixType(append(first, p[:min(len(p), sniffLen-len(first))]...))
	f, err := os.CreateTemp(c.x.g.tempDir, "semel-answer-*")
	if err != nil {
		return err
	}
	// Where the system lets an open file lose its name, not even a process that is killed leaves the answer behind.
	c.spill, c.unlinked = f, os.Remove(f.Name()) == nil
	if _, err := f.Write(body); err != nil {
		return err
	}
	_, err = f.Write([]byte(p))
	return err
}

// begin makes it durable that the first byte may leave, and sends the status and headers. It does nothing for an answer
// that is not streamed, or whose client has been answered.
func (c *capture) begin(first []byte) error {
	if !c.streams || c.begun || c.holds || !c.beginning() {
		return nil
	}
	if c.unbegun = c.x.run.markBegun(); c.unbegun != nil {
		return c.unbegun
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return nil
	}
	c.begun = true
	c.fixType(first)
	answerHeaders(c.live.Header(), c.sent)
	c.x.keptHeaders(c.live.Header(), &Record{}, c.status) // begun is kept; until when is known at its end only
	c.live.WriteHeader(c.status)
	return nil
}

// writeThrough sends a part of a streamed answer at once. The last byte of an answer of declared length is held back
// until the outcome is settled: with it the client would have the whole answer. A client that has gone does not stop the
// handler; the answer is still captured for its retry.
func (c *capture) writeThrough(p []byte) {
	if c.size == c.declared {
		c.held = []byte{p[len(p)-1]}
		p = p[:len(p)-1]
	}
	c.live.Write(p)                            //nolint:errcheck // the client has gone
	http.NewResponseController(c.live).Flush() //nolint:errcheck // the client has gone, or what wraps the guard decides
}

func (c *capture) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, src)
}

func (c *capture) Flush() { c.FlushError() } //nolint:errcheck // http.Flusher has no error

// FlushError sends what was written, on streaming routes. Elsewhere the answer waits for its settle. That the client has
// gone is not told: a handler that stopped for it would leave a part of its answer to be replayed as the whole.
func (c *capture) FlushError() error {
	if c.frozen {
		return nil // all there is will be sent
	}
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if c.unbegun != nil {
		return c.unbegun
	}
	if err := c.begin(nil); err != nil || c.hijacked {
		return err
	}
	if !c.begun {
		c.fixType(c.body[:min(len(c.body), sniffLen)]) // net/http would send the header now
		return nil
	}
	if err := http.NewResponseController(c.live).Flush(); errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// Hijack hands the connection over. What the handler does with it can't be seen, so the operation has begun and its
// answer can't be replayed.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if c.begun || c.holds || c.size > 0 || !canHijack(c.client()) || !c.beginning() {
		return nil, nil, http.ErrNotSupported
	}
	if c.unbegun = c.x.run.markBegun(); c.unbegun != nil {
		return nil, nil, c.unbegun
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return nil, nil, http.ErrNotSupported
	}
	if c.status != 0 { // it goes out with the connection, as that of net/http does
		c.begun = true
		answerHeaders(c.live.Header(), c.sent)
		c.live.WriteHeader(c.status)
	}
	conn, rw, err := http.NewResponseController(c.live).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.begun, c.hijacked = true, true
	if c.status == 0 {
		c.status, c.sent = http.StatusSwitchingProtocols, http.Header{}
	}
	return conn, rw, nil
}

func canHijack(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Hijacker:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// control calls f on the live connection, if the client is still there.
func (c *capture) control(f func(*http.ResponseController) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return http.ErrNotSupported
	}
	return f(http.NewResponseController(c.live))
}

func (c *capture) SetReadDeadline(t time.Time) error {
	return c.control(func(rc *http.ResponseController) error { return rc.SetReadDeadline(t) })
}

func (c *capture) SetWriteDeadline(t time.Time) error {
	return c.control(func(rc *http.ResponseController) error { return rc.SetWriteDeadline(t) })
}

func (c *capture) EnableFullDuplex() error {
	return c.control(func(rc *http.ResponseController) error { return rc.EnableFullDuplex() })
}

// end is called when the handler has returned. It reports whether that has given an answer: a status, a byte, or a silence
// that means 200, unless the guard has ended its context (R-32a).
func (c *capture) end() bool {
	if c.status == 0 {
		if !c.x.g.policy.EmptyOK || c.x.run.ctx.Err() != nil {
			return false
		}
		c.WriteHeader(http.StatusOK)
	}
	if c.size > 0 {
		c.fixType(c.body[:min(len(c.body), sniffLen)])
	}
	return true
}

// abort breaks the connection of an answer that has begun and can't end well. The panic that follows breaks it too, but
// middleware above may recover that and end the answer cleanly.
func (c *capture) abort() {
	if c.begun && !c.hijacked {
		c.SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // where it can't be set, the panic has to do
	}
}

// discard gives back what the answer holds.
func (c *capture) discard() {
	if c.spill == nil {
		return
	}
	c.spill.Close() //nolint:errcheck // it was only written for this answer
	if !c.unlinked {
		os.Remove(c.spill.Name()) //nolint:errcheck // nobody can mend that here
	}
	c.spill = nil
}
