package answer

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"sync"
)

// A Recorder passes an answer through and remembers it. It protects nothing, so the handler may reach the writer below
// it. Call [Recorder.End] before you read what it remembers: from then on a goroutine that the handler has left behind
// can't change that.
type Recorder struct {
	http.ResponseWriter
	mu       sync.Mutex
	over     bool
	Body     *Body
	Status   int         // 0 before it was written
	Sent     http.Header // as it was when the status was written
	Hijacked bool
	Failed   error // the answer was not sent as the handler wrote it
}

// As returns the recorder with those optional interfaces that w has. A handler may look at them to choose what it does.
func (r *Recorder) As(w http.ResponseWriter) http.ResponseWriter {
	_, flushes := w.(http.Flusher)
	switch {
	case CanHijack(w):
		return hijacker{flusher{r}}
	case flushes:
		return flusher{r}
	}
	return r
}

type flusher struct{ *Recorder }

func (r flusher) Flush() { r.FlushError() } //nolint:errcheck // http.Flusher has no error

type hijacker struct{ flusher }

func (r hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Hijacked = r.Hijacked || err == nil && !r.over
	return conn, rw, err
}

func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// End ends the recording. If nothing was written, this means 200 if emptyOK is true.
func (r *Recorder) End(emptyOK bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.Hijacked:
		r.note(http.StatusSwitchingProtocols)
	case emptyOK:
		r.note(http.StatusOK)
	}
	r.over = true
}

// note remembers the status and headers, which are sent from now on. It is called with r.mu held.
func (r *Recorder) note(status int) {
	if r.Status == 0 && !r.over {
		r.Status, r.Sent = status, r.Header().Clone()
	}
}

func (r *Recorder) sends(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(status)
}

func (r *Recorder) WriteHeader(status int) {
	if status >= 200 && status <= 999 || status == http.StatusSwitchingProtocols {
		r.sends(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *Recorder) Write(p []byte) (int, error) {
	r.sends(http.StatusOK)
	n, err := r.ResponseWriter.Write(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return n, err
	}
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		r.Failed = err
	}
	Append(r.Body, p[:n], false) //nolint:errcheck // there is no file
	return n, err
}

// WriteString is Write.
func (r *Recorder) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// FlushError sends what was written, in the form that http.ResponseController expects.
func (r *Recorder) FlushError() error {
	r.sends(http.StatusOK)
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// CanHijack reports whether the connection below w can be taken over.
func CanHijack(w http.ResponseWriter) bool {
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
