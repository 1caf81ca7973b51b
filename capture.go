package semel

import (
	"bufio"
	"io"
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
	sent   http.Header // header as it was when the status was written; nil before
	asked  bool        // the handler has header in its hands
	status int         // 0 before the status was written

	body     []byte
	spill    *os.File // holds body instead, above the limit
	size     int64
	declared int64 // Content-Length that the handler declared, -1 if none
	over     bool  // above the limit: can't be stored
	streams  bool
	hijacked bool
	failed   error // a stream that could not begin, or a spill that could not be written
	held     []byte

	mu    sync.Mutex
	live  http.ResponseWriter // nil once the client was answered without this run
	begun bool                // the first byte of the answer may have left
}

func (c *capture) init(x *exchange, live http.ResponseWriter) {
	c.x, c.live, c.declared = x, live, -1
	c.header = make(http.Header, 8)
}

// detach takes the client away from the run; it reports false if the client is receiving the answer already.
func (c *capture) detach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return false
	}
	c.live = nil
	return true
}

func (c *capture) Header() http.Header {
	c.asked = true
	return c.header
}

func (c *capture) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic("semel: invalid status code " + strconv.Itoa(status))
	case c.status != 0:
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		c.informational(status)
		return
	}
	c.status = status
	c.sent = c.header
	if c.asked {
		c.sent = c.header.Clone() // later changes only count as trailers
	}
	if n, err := strconv.ParseInt(c.sent.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		c.declared = n
	}
	// Nothing that will be released may begin: a begun operation is never run again.
	p := c.x.g.policy
	c.streams = bodyAllowed(status) && c.declared != 0 && p.byStatus(status) == VerdictKeep &&
		(p.Stream || isEventStream(c.sent.Get("Content-Type")))
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
	for name, values := range c.header {
		live[name] = values
	}
	c.live.WriteHeader(status)
	clear(live)
	for name, values := range before {
		live[name] = values
	}
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
	case c.hijacked:
		return 0, http.ErrHijacked
	case c.failed != nil:
		return 0, c.failed
	case len(p) == 0:
		return 0, nil
	case !bodyAllowed(c.status):
		return 0, http.ErrBodyNotAllowed
	case c.declared >= 0 && c.size+int64(len(p)) > c.declared:
		return 0, http.ErrContentLength
	}
	if c.size == 0 {
		c.sniff([]byte(p[:min(len(p), 512)]))
	}
	if err := c.begin(); err != nil {
		return 0, err
	}
	if err := keep(c, p); err != nil {
		c.failed = err
		return 0, err
	}
	if c.begun {
		c.writeThrough([]byte(p))
	}
	return len(p), nil
}

// sniff gives the answer the Content-Type that net/http would give it, so that a replay has the same.
func (c *capture) sniff(first []byte) {
	_, has := c.sent["Content-Type"]
	if !has && c.sent.Get("Content-Encoding") == "" && c.sent.Get("Transfer-Encoding") == "" {
		c.sent.Set("Content-Type", http.DetectContentType(first))
	}
}

// keep adds to the captured body. Above the limit a stream's is dropped, because it has gone out already, and a buffered
// one moves to a temporary file.
func keep[T []byte | string](c *capture, p T) error {
	c.size += int64(len(p))
	switch {
	case c.spill != nil:
		_, err := c.spill.WriteString(string(p))
		return err
	case c.over:
		return nil
	case c.size <= c.x.g.policy.MaxResponseBody:
		c.body = append(c.body, p...)
		return nil
	}
	c.over = true
	body := c.body
	c.body = nil
	if c.begun {
		return nil
	}
	f, err := os.CreateTemp(c.x.g.tempDir, "semel-answer-*")
	if err != nil {
		return err
	}
	c.spill = f
	if _, err := f.Write(body); err != nil {
		return err
	}
	_, err = f.WriteString(string(p))
	return err
}

// begin makes it durable that the first byte may leave, and sends the status and headers. It does nothing for an answer
// that is not streamed, or whose client has been answered.
func (c *capture) begin() error {
	if !c.streams || c.begun {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return nil
	}
	if err := c.x.run.markBegun(); err != nil {
		c.failed = err
		return err
	}
	c.begun = true
	answerHeaders(c.live.Header(), c.sent)
	keptHeaders(c.live.Header(), &Record{}, c.status) // begun is kept; until when is known at its end only
	c.live.WriteHeader(c.status)
	return nil
}

// writeThrough sends a part of a streamed answer. The last byte of an answer of declared length is held back until the
// outcome is settled: with it the client would have the whole answer. A client that has gone does not stop the handler.
func (c *capture) writeThrough(p []byte) {
	if c.size == c.declared {
		c.held = []byte{p[len(p)-1]}
		p = p[:len(p)-1]
	}
	c.live.Write(p) //nolint:errcheck // the client has gone; the answer is still captured for its retry
}

func (c *capture) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, src)
}

func (c *capture) Flush() { c.FlushError() } //nolint:errcheck // http.Flusher has no error

// FlushError sends what was written, on streaming routes. Elsewhere the answer waits for its settle.
func (c *capture) FlushError() error {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if !c.streams {
		return nil
	}
	if c.failed != nil {
		return c.failed
	}
	if err := c.begin(); err != nil {
		return err
	}
	if !c.begun {
		return nil
	}
	return http.NewResponseController(c.live).Flush()
}

// Hijack hands the connection over. What the handler does with it can't be seen, so the operation has begun and its
// answer can't be replayed.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil || c.begun || !canHijack(c.live) {
		return nil, nil, http.ErrNotSupported
	}
	if err := c.x.run.markBegun(); err != nil {
		c.failed = err
		return nil, nil, err
	}
	c.begun, c.hijacked = true, true
	if c.status == 0 {
		c.status, c.sent = http.StatusSwitchingProtocols, http.Header{}
	}
	return http.NewResponseController(c.live).Hijack()
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

// end is called when the handler has returned; one that wrote nothing has answered 200.
func (c *capture) end() {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
}

// discard gives back what the answer holds.
func (c *capture) discard() {
	if c.spill != nil {
		c.spill.Close()           //nolint:errcheck // it was only written for this answer
		os.Remove(c.spill.Name()) //nolint:errcheck // nobody can mend that here
		c.spill = nil
	}
}
