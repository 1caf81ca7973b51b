package semel

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/refusal"
)

// A body that a layer above the guard has read looks to the guard like an empty or a shorter body. A request for
// another amount could then be taken for a repeat. So the guard refuses such a request wherever it can see that this
// has happened.

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
	var watched *requestbody.Watched
	if body := x.r.Body; body != nil && body != http.NoBody && (x.r.ContentLength < 0 || x.body != nil) {
		watched = &requestbody.Watched{ReadCloser: body} // a declared length shows it
		x.r.Body = watched
		defer func() {
			if x.r.Body == watched {
				x.r.Body = body
			}
		}()
	}
	scope, err := x.g.scope.of(x.r)
	switch {
	case watched != nil && x.r.Body == watched && watched.Touched.Load():
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

// shown returns the request for a function of the user. The function may read the body, which the guard has read.
func (x *exchange) shown() *http.Request {
	if x.body == nil {
		return x.r
	}
	r := x.r.WithContext(x.r.Context())
	r.Body = x.body.Open()
	return r
}
