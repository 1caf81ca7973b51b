package semelgin

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

const noneWritten = -1

// writer is gin's ResponseWriter over that of the guard. As gin's own, it sends the status with the first byte, or when
// it is told to.
type writer struct {
	http.ResponseWriter
	status int
	size   int
	said   bool // a status was set
}

var _ gin.ResponseWriter = (*writer)(nil)

// end sends what gin would send now that its handlers have returned. unrouted says that the path has no route, and
// initial is the status that gin has found for it.
func (w *writer) end(unrouted bool, initial int) {
	switch {
	case w.Written():
	case unrouted && w.status == initial && initial == http.StatusNotFound:
		w.sayPlain("404 page not found")
	case unrouted && w.status == initial && initial == http.StatusMethodNotAllowed:
		w.sayPlain("405 method not allowed")
	case w.said || w.status != http.StatusOK:
		w.WriteHeaderNow()
	}
}

func (w *writer) sayPlain(text string) {
	w.Header()["Content-Type"] = []string{gin.MIMEPlain}
	w.WriteString(text) //nolint:errcheck // the guard keeps it
}

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status, w.said = status, true
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(p)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.size += n
	return n, err
}

func (w *writer) Status() int   { return w.status }
func (w *writer) Size() int     { return w.size }
func (w *writer) Written() bool { return w.size != noneWritten }

func (w *writer) Flush() {
	w.WriteHeaderNow()
	http.NewResponseController(w.ResponseWriter).Flush() //nolint:errcheck // http.Flusher has no error
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && !w.Written() {
		w.size = 0
	}
	return conn, rw, err
}

// CloseNotify returns a channel that tells nothing: under a guard a handler goes on when its client has gone, so that
// its answer can be replayed.
func (w *writer) CloseNotify() <-chan bool { return make(chan bool) }

// Pusher returns nil: what is pushed is no part of the answer.
func (w *writer) Pusher() http.Pusher { return nil }

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
