package answer

import (
	"bufio"
	"errors"
	"net"
	"net/http"
)

// A Recorder passes an answer through and remembers it. It protects nothing, so the handler may reach through it.
type Recorder struct {
	http.ResponseWriter
	Body     *Body
	Status   int         // 0 before it was written
	Sent     http.Header // as it was then
	Hijacked bool
	Failed   error // the answer was not sent as the handler wrote it
}

// As returns the recorder with the optional interfaces that w has, by which a handler may choose what it does.
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
	if err == nil {
		r.Hijacked = true
	}
	return conn, rw, err
}

func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Note remembers the status and headers, which go out from now on.
func (r *Recorder) Note(status int) {
	if r.Status == 0 {
		r.Status, r.Sent = status, r.Header().Clone()
	}
}

func (r *Recorder) WriteHeader(status int) {
	if status >= 200 && status <= 999 || status == http.StatusSwitchingProtocols {
		r.Note(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *Recorder) Write(p []byte) (int, error) {
	r.Note(http.StatusOK)
	n, err := r.ResponseWriter.Write(p)
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		r.Failed = err
	}
	Append(r.Body, p[:n], false) //nolint:errcheck // there is no file
	return n, err
}

// WriteString is Write.
func (r *Recorder) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// FlushError sends what was written, as http.ResponseController asks for it.
func (r *Recorder) FlushError() error {
	r.Note(http.StatusOK)
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// CanHijack reports whether a connection can be taken over from under w.
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
