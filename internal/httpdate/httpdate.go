// Package httpdate writes dates as HTTP has them (RFC 9110, section 5.6.7).
package httpdate

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A Writer writes dates. It remembers the last one, because the answers of one second expire in the same second. It is safe
// for concurrent use.
type Writer struct{ last atomic.Pointer[date] }

type date struct {
	second int64
	text   string
}

// Format returns t as HTTP has it.
func (w *Writer) Format(t time.Time) string {
	second := t.Unix()
	if l := w.last.Load(); l != nil && l.second == second {
		return l.text
	}
	text := t.UTC().Format(http.TimeFormat)
	w.last.Store(&date{second, text})
	return text
}
