package semeltest

import (
	"errors"
	"net/http"
	"sync/atomic"
)

// ErrAnswerLost is what a caller gets whose answer was dropped by [LosingTransport].
var ErrAnswerLost = errors.New("semeltest: the answer was lost")

// LosingHandler passes requests to next, and drops the answers that lose says, by number from 1: next has run to its
// end, and the connection breaks before the first byte. It belongs above the guard. As with any broken connection, it
// ends with panic(http.ErrAbortHandler).
func LosingHandler(next http.Handler, lose func(n int) bool) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !lose(int(n.Add(1))) {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&drop{header: w.Header().Clone()}, r)
		panic(http.ErrAbortHandler)
	})
}

// drop is a ResponseWriter to nowhere.
type drop struct{ header http.Header }

func (d *drop) Header() http.Header         { return d.header }
func (d *drop) WriteHeader(int)             {}
func (d *drop) Write(p []byte) (int, error) { return len(p), nil }

// LosingTransport sends requests by base, and drops the answers that lose says, by number from 1: the server has
// answered, and the caller gets [ErrAnswerLost]. A nil base is http.DefaultTransport.
func LosingTransport(base http.RoundTripper, lose func(n int) bool) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &losingTransport{base: base, lose: lose}
}

type losingTransport struct {
	base http.RoundTripper
	lose func(int) bool
	n    atomic.Int64
}

func (t *losingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	n := int(t.n.Add(1))
	res, err := t.base.RoundTrip(r)
	if err == nil && t.lose(n) {
		res.Body.Close()
		return nil, ErrAnswerLost
	}
	return res, err
}
