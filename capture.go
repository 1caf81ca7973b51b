package semel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/answer"
)

// capture is the ResponseWriter that a guarded handler gets. A buffered answer stays in it until the outcome is
// durable. A streamed answer passes through it, once the record says that the answer has begun. capture has no Unwrap:
// with it a handler could reach the connection under the guard.
//
// The handler calls the exported methods, one at a time: they hold use. Once the handler has ended they do nothing any
// more, so a goroutine that the handler has left behind can't change the answer. The other methods are called by one
// goroutine at a time, except for detach.
type capture struct {
	x      *execution
	use    sync.Mutex
	closed bool // the handler has ended

	header http.Header // the handler's own; what is set on the live writer already stays there
	sent   http.Header // a copy of header as it was when the status was written; nil before
	shared bool        // sent is part of the stored answer: it is read-only
	typed  bool        // the live writer has a Content-Type already, for answers without one
	status int         // 0 before the status was written

	body     answer.Body
	declared int64 // Content-Length that the handler declared, -1 if none
	lent     bool  // the run has the memory that body takes, and stores the body
	streams  bool
	hijacked bool
	held     []byte

	holds    bool        // the answer is, or may become, part of a transaction: no byte leaves before the settle
	frozen   bool        // the answer can't change: a transaction has committed it, or tried to, or the handler has ended
	trailers http.Header // as they were when the answer was frozen
	point    point       // the state to which rewind returns

	unbegun error // the record could not be marked begun: no byte leaves
	unkept  error // the temporary file failed: the answer can't be stored, and went out only if it had begun
	torn    bool  // what was written before the failure could not go out either

	mu     sync.Mutex
	live   http.ResponseWriter // nil once the client was answered without this run
	begun  bool                // the first byte of the answer may have left
	begins bool                // the first byte is about to leave
	ended  bool                // the outcome is settled
}

func (c *capture) init(x *execution, live http.ResponseWriter) {
	c.x, c.live, c.declared = x, live, -1
	c.body = answer.Body{
		Limit: x.g.policy.MaxResponseBody, Held: &x.g.held, Files: &x.g.files, Principal: x.ask.ID.Scope(), Dir: x.g.tempDir,
	}
	_, c.typed = live.Header()["Content-Type"]
}

// detach takes the client away from the run. It reports false if the client is already receiving the answer, or is
// about to.
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

// beginning notes that the record is about to say that the first byte of the answer may have left. It reports false,
// and notes nothing, if the client was answered without this run.
func (c *capture) beginning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return false
	}
	c.begins = true
	return true
}

// detachUnbegun is detach for a client that is promised an end. It reports false for a run that has begun or is about
// to: such a run is never run again.
func (c *capture) detachUnbegun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.begins && c.leave()
}

// conclude is called when the outcome is settled. From then on it does not change any more whether the client is there
// for the answer.
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

// close is called when the handler has ended. If the handler wrote nothing, this means 200 where the policy says so and
// the guard has not ended the handler's context (R-32a).
func (c *capture) close() {
	c.use.Lock()
	defer c.use.Unlock()
	if c.status == 0 && c.x.g.policy.EmptyOK && c.x.run.Context().Err() == nil {
		c.writeHeader(http.StatusOK)
	}
	if !c.frozen {
		c.trailers = c.trailer()
	}
	c.frozen, c.closed = true, true
}

// Header returns the handler's header. Once the handler has ended, it returns a header that nobody reads.
func (c *capture) Header() http.Header {
	c.use.Lock()
	defer c.use.Unlock()
	if c.closed {
		return http.Header{}
	}
	if c.header == nil {
		c.header = make(http.Header, 8)
	}
	return c.header
}

func (c *capture) WriteHeader(status int) {
	c.use.Lock()
	defer c.use.Unlock()
	if !c.closed {
		c.writeHeader(status)
	}
}

func (c *capture) writeHeader(status int) {
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
	c.declared = answer.DeclaredLength(c.sent)
	c.streams = answer.BodyAllowed(status) && c.declared != 0 &&
		(c.x.g.policy.Stream || answer.IsEventStream(c.sent.Get("Content-Type")))
}

// mayBegin reports whether the first byte may leave before the outcome is settled. An answer that may be released or
// lost must not leave: a begun operation is never run again. Policy.Decide is asked without a body, because there is
// none yet.
func (c *capture) mayBegin() bool {
	return !c.x.run.IsLost() &&
		c.x.g.policy.verdict(c.x.op.asked(), c.status, c.sent, nil) == VerdictKeep
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
	answer.AddFields(live, c.header)
	c.live.WriteHeader(status)
	clear(live)
	maps.Copy(live, before)
}

func (c *capture) Write(p []byte) (int, error) { return write(c, p) }

func (c *capture) WriteString(s string) (int, error) { return write(c, s) }

func write[T []byte | string](c *capture, p T) (int, error) {
	c.use.Lock()
	defer c.use.Unlock()
	if c.frozen {
		return 0, ErrSettled
	}
	if c.status == 0 {
		c.writeHeader(http.StatusOK)
	}
	switch {
	case c.hijacked:
		return 0, http.ErrHijacked
	case c.unbegun != nil:
		return 0, c.unbegun
	case len(p) == 0:
		return 0, nil
	case !answer.BodyAllowed(c.status):
		return 0, http.ErrBodyNotAllowed
	case c.declared >= 0 && c.body.Size()+int64(len(p)) > c.declared:
		return 0, http.ErrContentLength
	}
	if c.streams && !c.begun {
		if err := c.begin([]byte(p[:min(len(p), answer.SniffLen)])); err != nil {
			return 0, err
		}
	}
	keep(c, p)
	if c.begun {
		c.writeThrough([]byte(p))
	}
	return len(p), nil
}

// fixType gives the answer the Content-Type that net/http would give it, or keeps net/http from giving one, so that a
// replay has the same. first is the part of the body that net/http would see when it sends the header.
func (c *capture) fixType(first []byte) {
	if _, has := c.sent["Content-Type"]; has || c.typed || !answer.BodyAllowed(c.status) {
		return
	}
	if len(first) == 0 || c.sent.Get("Content-Encoding") != "" || c.sent.Get("Transfer-Encoding") != "" {
		c.sent["Content-Type"] = nil
		return
	}
	c.sent.Set("Content-Type", http.DetectContentType(first))
}

// keep adds to the captured body. A temporary file is of use only for a client that will be sent the answer from it:
// not for a client that has the answer already, or has gone.
func keep[T []byte | string](c *capture, p T) {
	if err := answer.Append(&c.body, p, !c.begun && c.client() != nil); err != nil {
		c.unkeep(err)
	}
}

// lend gives the memory that the body takes to the run. The run holds it until the settle has ended and the client has
// been answered.
func (c *capture) lend() {
	c.x.taken, c.lent = c.body.Lend(), true
	c.x.holders.Store(2)
}

// unkeep gives up the temporary file, which has failed. The handler is not told: it has had its effect, and with an
// error its run would be lost. Its client gets the answer as it is written, as on a streaming route, if the answer may
// begin. Else the answer is gone, and the client is told the same as its repeats.
func (c *capture) unkeep(why error) {
	defer c.discard()
	c.unkept = why
	if c.holds || !c.mayBegin() || !c.beginning() || c.x.run.MarkBegun() != nil {
		return
	}
	if c.beginLive(c.body.Begin()); c.begun {
		c.torn = !c.body.Salvage(c.live)
	}
}

// begin makes it durable that the first byte may leave, and sends the status and headers. It does nothing if the answer
// is not streamed, or if the client has been answered.
func (c *capture) begin(first []byte) error {
	if !c.streams || c.begun || c.holds || c.client() == nil {
		return nil
	}
	if c.streams = c.mayBegin(); !c.streams || !c.beginning() {
		return nil
	}
	if c.unbegun = c.x.run.MarkBegun(); c.unbegun != nil {
		return c.unbegun
	}
	c.beginLive(first)
	return nil
}

// beginLive sends the status and headers of an answer whose record says that it has begun.
func (c *capture) beginLive(first []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return
	}
	c.begun = true
	c.fixType(first)
	answer.AddFields(c.live.Header(), c.sent)
	c.x.keptHeaders(c.live.Header(), &driver.Record{}, c.status) // begun is kept; how long is known only at the end
	c.live.WriteHeader(c.status)
}

// writeThrough sends a part of a streamed answer at once. If the length was declared, the last byte is held back until
// the outcome is settled: with it the client would have the whole answer. If the client has gone, the handler is not
// stopped: the answer is still captured for the client's retry.
func (c *capture) writeThrough(p []byte) {
	if c.body.Size() == c.declared {
		c.held = []byte{p[len(p)-1]}
		p = p[:len(p)-1]
	}
	c.live.Write(p)                            //nolint:errcheck // the client has gone
	http.NewResponseController(c.live).Flush() //nolint:errcheck // the client has gone, or layers above decide
}

func (c *capture) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, src)
}

func (c *capture) Flush() { c.FlushError() } //nolint:errcheck // http.Flusher has no error

// FlushError sends what was written, on streaming routes. On other routes the answer waits for its settle. The handler
// is not told that the client has gone: if it stopped, a part of its answer would be replayed as the whole.
func (c *capture) FlushError() error {
	c.use.Lock()
	defer c.use.Unlock()
	if c.frozen {
		return nil // the whole answer will be sent
	}
	if c.status == 0 {
		c.writeHeader(http.StatusOK)
	}
	if c.unbegun != nil {
		return c.unbegun
	}
	if err := c.begin(nil); err != nil || c.hijacked {
		return err
	}
	if !c.begun {
		c.fixType(c.body.Begin()) // net/http would send the header now
		return nil
	}
	if err := http.NewResponseController(c.live).Flush(); errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// Hijack hands the connection over. The guard can't see what the handler does with it. So the operation has begun, and
// its answer can't be replayed.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.use.Lock()
	defer c.use.Unlock()
	if c.closed {
		return nil, nil, ErrSettled
	}
	if c.begun || c.holds || c.body.Size() > 0 || !answer.CanHijack(c.client()) || !c.beginning() {
		return nil, nil, http.ErrNotSupported
	}
	if c.unbegun = c.x.run.MarkBegun(); c.unbegun != nil {
		return nil, nil, c.unbegun
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return nil, nil, http.ErrNotSupported
	}
	if c.status != 0 { // it goes out with the connection, as in net/http
		c.begun = true
		answer.AddFields(c.live.Header(), c.sent)
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

// set is control for a call by the handler.
func (c *capture) set(f func(*http.ResponseController) error) error {
	c.use.Lock()
	defer c.use.Unlock()
	if c.closed {
		return ErrSettled
	}
	return c.control(f)
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
	return c.set(func(rc *http.ResponseController) error { return rc.SetReadDeadline(t) })
}

func (c *capture) SetWriteDeadline(t time.Time) error {
	return c.set(func(rc *http.ResponseController) error { return rc.SetWriteDeadline(t) })
}

func (c *capture) EnableFullDuplex() error {
	return c.set(func(rc *http.ResponseController) error { return rc.EnableFullDuplex() })
}

// abort breaks the connection of an answer that has begun and can't end well. The panic that follows breaks it too, but
// middleware above may recover the panic and end the answer cleanly.
func (c *capture) abort() {
	if !c.begun || c.hijacked {
		return
	}
	if !c.x.r.ProtoAtLeast(1, 1) || c.sent.Get("Transfer-Encoding") != "" {
		answer.Reset(c.live)
	}
	past := func(rc *http.ResponseController) error { return rc.SetWriteDeadline(time.Unix(1, 0)) }
	c.control(past) //nolint:errcheck // where it can't be set, only the panic breaks the connection
}

// discard gives back what the answer holds.
func (c *capture) discard() {
	c.body.Close()
	if c.lent {
		c.lent = false
		c.x.letGo()
	}
}
