package answer

import (
	"net/http"
	"time"
)

// A Nowhere takes the answer of a run that has no client.
type Nowhere struct {
	Fields http.Header
	Status int
}

func (w *Nowhere) Header() http.Header { return w.Fields }

func (w *Nowhere) WriteHeader(status int) {
	if w.Status == 0 && status >= 200 {
		w.Status = status
	}
}

func (w *Nowhere) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(b), nil
}

// Flush does nothing. It and the next methods are those of net/http's own writer, so that handlers which rely on them
// work as they do with a client.
func (w *Nowhere) Flush() {}

// SetReadDeadline does nothing.
func (w *Nowhere) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (w *Nowhere) SetWriteDeadline(time.Time) error { return nil }

// EnableFullDuplex does nothing.
func (w *Nowhere) EnableFullDuplex() error { return nil }
