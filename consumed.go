package semel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/refusal"
)

// A body that a layer above the guard has read looks to the guard like an empty or a shorter body. A request for
// another amount could then be taken for a repeat. So the guard refuses such a request wherever it can see that this
// has happened.

// readAbove reports how a body that was read to its end shows that somebody has read it before; "" if it does not show
// this. With a declared length, a missing part was read before: if a connection breaks off, net/http returns an error.
// Without a declared length only two cases can be told. The rest is empty but there is a Content-Type, which nobody
// sends without a body. Or the rest of a multipart body does not begin with the delimiter.
func readAbove(r *http.Request, b *requestbody.Body) string {
	switch n := b.Size(); {
	case r.ContentLength > 0 && n < r.ContentLength:
		return fmt.Sprintf("%d bytes are left of a Content-Length of %d", n, r.ContentLength)
	case r.ContentLength >= 0:
	case n == 0 && len(r.Header["Content-Type"]) > 0:
		return "nothing is left of a body with a Content-Type"
	case r.MultipartForm != nil:
		begin := make([]byte, 2)
		if _, err := io.ReadFull(b.Sent(), begin); err == nil && !bytes.Equal(begin, []byte("--")) {
			return "its parts were read"
		}
	}
	return ""
}

// closedAbove reports whether a body can't be read because somebody has closed it.
func closedAbove(err error) bool {
	return errors.Is(err, http.ErrBodyReadAfterClose) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, fs.ErrClosed) ||
		strings.HasSuffix(err.Error(), "body closed by handler") // of net/http's HTTP/2, which exports no error
}

// consumed reports, loudly, that the request's body was read before, and returns the refusal.
func (x *exchange) consumed(how string) *Problem {
	err := fmt.Errorf("%w: %s; put the guard above what reads it, or have that put r.Body back, and r.ContentLength if it has changed",
		refusal.BodyConsumed, how)
	x.g.observer.Observe(context.WithoutCancel(x.r.Context()), event.Event{
		Kind: event.BodyConsumed, Operation: x.ask.Operation, Correlation: x.ask.Correlation, Observed: x.g.policy.ObserveOnly, Err: err,
	})
	return x.g.problem(refusal.BodyConsumed, "").because(err)
}

// principal asks who sends the request. If the scope reads the body and does not put it back, the guard lacks it.
func (x *exchange) principal() (string, *Problem) {
	var watched *watchedBody
	if body := x.r.Body; body != nil && body != http.NoBody && (x.r.ContentLength < 0 || x.body != nil) {
		watched = &watchedBody{ReadCloser: body} // a declared length shows it
		x.r.Body = watched
		defer func() {
			if x.r.Body == watched {
				x.r.Body = body
			}
		}()
	}
	scope, err := x.g.scope.of(x.r)
	switch {
	case watched != nil && x.r.Body == watched && watched.touched.Load():
		return "", x.consumed("the scope has read it")
	case err != nil || scope == "":
		return "", x.noPrincipal("", err)
	}
	return scope, nil
}

// noPrincipal reports that the scope can't tell who asks, and returns the refusal.
func (x *exchange) noPrincipal(detail string, err error) *Problem {
	if err == nil {
		err = errors.New("scope: it is empty")
	}
	x.g.observer.Observe(context.WithoutCancel(x.r.Context()), event.Event{
		Kind: event.NoPrincipal, Operation: x.ask.Operation, Correlation: x.ask.Correlation, Observed: x.g.policy.ObserveOnly, Err: err,
	})
	return x.g.problem(refusal.ScopeInvalid, detail).because(err)
}

// A watchedBody notices that it is read or closed.
type watchedBody struct {
	io.ReadCloser
	touched atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	return b.ReadCloser.Read(p)
}

func (b *watchedBody) Close() error {
	b.touched.Store(true)
	return b.ReadCloser.Close()
}

// shown returns the request for a function of the user. The function may read the body, which the guard has read.
func (x *exchange) shown() *http.Request {
	if x.body == nil {
		return x.r
	}
	r := x.r.WithContext(x.r.Context())
	r.Body = x.body.Open()
	return r
}
