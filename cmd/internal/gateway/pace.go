package gateway

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// pace bounds how long a request waits for its client: each read of the body, and over HTTP/2 each piece of the answer,
// must come to something within an idle time. How long the service takes has no bound here. The function that it
// returns is called at the request's end.
//
// In the request itself the server must find its own body: it decides by that how much of an unread one it skips.
func pace(w http.ResponseWriter, r *http.Request, idle time.Duration) (http.ResponseWriter, *http.Request, func()) {
	rc, http2 := http.NewResponseController(w), r.ProtoMajor >= 2
	var body *pacedBody
	if r.Body != nil && r.Body != http.NoBody {
		body = &pacedBody{ReadCloser: r.Body, rc: rc, idle: idle, http2: http2}
		if !http2 {
			body.arm() // the server itself skips what nobody has read
		}
		r = r.WithContext(r.Context())
		r.Body = body
	}
	if http2 {
		w = &pacedWriter{ResponseWriter: w, rc: rc, idle: idle}
	}
	return w, r, func() {
		if body != nil {
			body.end()
		}
		if http2 {
			rc.SetWriteDeadline(time.Now().Add(idle)) //nolint:errcheck // for what is still buffered
		}
	}
}

// A pacedBody is a request's body that must not stand still for long.
type pacedBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	idle  time.Duration
	until time.Time // when the whole must have arrived, zero for no such time
	http2 bool

	mu    sync.Mutex
	whole bool // the server has taken the deadline away
	ended bool // the request is over: the deadlines are another's, and whoever still reads is left with an error
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.arm()
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole = b.whole || err == io.EOF
	if b.http2 && !b.ended {
		// A stream's deadline breaks it also while nobody reads.
		b.rc.SetReadDeadline(time.Time{}) //nolint:errcheck // then it was not set either
	}
	return n, err
}

// arm sets the deadline of the next read.
func (b *pacedBody) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.whole {
		return
	}
	by := time.Now().Add(b.idle)
	if !b.until.IsZero() && b.until.Before(by) {
		by = b.until
	}
	b.rc.SetReadDeadline(by) //nolint:errcheck // not a connection of a server's
}

// end leaves the server an idle time to skip the rest.
func (b *pacedBody) end() {
	if !b.http2 {
		b.arm()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// A pacedWriter is an answer over HTTP/2, whose client may hold up one stream and not the connection.
type pacedWriter struct {
	http.ResponseWriter
	rc   *http.ResponseController
	idle time.Duration
}

func (w *pacedWriter) Write(p []byte) (n int, err error) {
	defer w.disarm()
	for {
		w.arm()
		m, err := w.ResponseWriter.Write(p[n:min(n+writePiece, len(p))])
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

func (w *pacedWriter) FlushError() error {
	defer w.disarm()
	w.arm()
	return w.rc.Flush()
}

func (w *pacedWriter) arm() {
	w.rc.SetWriteDeadline(time.Now().Add(w.idle)) //nolint:errcheck // not a connection of a server's
}

// disarm takes the deadline away: a stream's deadline breaks it also while nothing is written.
func (w *pacedWriter) disarm() {
	w.rc.SetWriteDeadline(time.Time{}) //nolint:errcheck // then it was not set either
}

func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
