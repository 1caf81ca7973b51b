package semelfiber

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/semelhq/semel"
)

// Middleware protects what follows it. Requests that the guard lets pass, such as GET, are fiber's alone, and so are
// their errors.
//
// It panics if the guard's policy has Patience, RespondAsync, Complete or Stream.
func Middleware(g *semel.Guard) fiber.Handler {
	if p := g.Policy(); p.Patience > 0 || p.RespondAsync || p.Complete || p.Stream {
		panic("semelfiber: a policy with Patience, RespondAsync, Complete or Stream: fiber answers when its handler has returned, not before, and runs no requests of others")
	}
	return func(c fiber.Ctx) error {
		switch c.Method() {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
			return c.Next() // a guard protects none of these
		}
		r, err := request(c)
		if err != nil {
			return err
		}
		x := &exchange{c: c, asked: r.Header.Clone(), body: r.Body, live: newAnswer(c.Response())}
		x.serve(g.Wrap(http.HandlerFunc(x.next)), r)
		return x.err
	}
}

// An exchange is a request of fiber's under the guard.
type exchange struct {
	c      fiber.Ctx
	asked  http.Header // the request's, as it came
	body   io.Reader   // so is this
	live   *answer     // the writer that the guard gets
	passed bool        // the guard lets the request pass
	inside bool        // the handlers run, or have thrown
	err    error       // theirs, if it passed
}

// serve runs the guard. If that breaks an answer off, so that nobody takes it for whole, the connection is closed.
func (x *exchange) serve(guarded http.Handler, r *http.Request) {
	defer func() {
		if x.inside {
			return
		}
		switch thrown := recover(); thrown {
		case nil:
		case http.ErrAbortHandler:
			x.c.Response().ResetBody()
			x.c.Status(http.StatusInternalServerError)
			x.err = x.c.Drop()
		default:
			panic(thrown)
		}
	}()
	guarded.ServeHTTP(x.live, r)
	if x.passed {
		return
	}
	x.live.send(x.c.Response())
	if s, ok := r.Body.(*streamed); ok && !s.ended {
		x.c.RequestCtx().SetConnectionClose() // fasthttp would take the rest of the body for the next request
	}
}

// next runs the handlers that follow.
func (x *exchange) next(w http.ResponseWriter, r *http.Request) {
	x.inside = true
	x.addHeaders(r.Header)
	if x.c.RequestCtx().RequestBodyStream() != nil && r.Body != x.body {
		x.c.Request().SetBodyStream(r.Body, int(r.ContentLength)) // the guard has read it
	}
	if w == http.ResponseWriter(x.live) {
		x.live.addTo(x.c.Response())
		x.passed = true
		x.err = x.c.Next()
	} else {
		x.run(w, r)
	}
	x.inside = false
}

// run runs the handlers under the guard, and writes their answer to w.
func (x *exchange) run(w http.ResponseWriter, r *http.Request) {
	c := x.c
	outer := c.Context()
	c.SetContext(r.Context())
	defer c.SetContext(outer)
	above := newAnswer(c.Response())
	if err := c.Next(); err != nil {
		if c.App().ErrorHandler(c, err) != nil {
			c.SendStatus(http.StatusInternalServerError) //nolint:errcheck // as fiber does
		}
	}
	answer := c.Response()
	h := w.Header()
	for name, values := range newAnswer(answer).header {
		if !slices.Equal(values, above.header[name]) {
			h[name] = values
		}
	}
	h["Content-Type"] = contentType(answer)
	if answer.StatusCode() == http.StatusOK && !answer.IsBodyStream() && len(answer.Body()) == 0 {
		return // silence looks like this
	}
	w.WriteHeader(answer.StatusCode())
	if err := answer.BodyWriteTo(untilDone{w, r.Context()}); err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		semel.FromContext(r.Context()).Lost(fmt.Errorf("semelfiber: the handler's stream: %w", err))
	}
}

// addHeaders gives the request the headers that the guard has made for it, such as a correlation id.
func (x *exchange) addHeaders(h http.Header) {
	for name, values := range h {
		if len(values) > 0 && !slices.Equal(values, x.asked[name]) {
			x.c.Request().Header.Set(name, values[0])
		}
	}
}

// untilDone ends a stream whose run the guard has ended.
type untilDone struct {
	io.Writer
	ctx context.Context
}

func (u untilDone) Write(p []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.Writer.Write(p)
}

// Handler serves h, such as semel.Guard.Operations, for which fiber's adaptor would not do if the guard's scope is one
// of [Scope].
func Handler(h http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		r, err := request(c)
		if err != nil {
			return err
		}
		x := &exchange{c: c, live: newAnswer(c.Response())}
		x.serve(h, r)
		return x.err
	}
}

// Scope takes the principal from fiber's context, where the authentication middleware has put it:
//
//	semelfiber.Scope(func(c fiber.Ctx) (string, error) { return fiber.Locals[string](c, "account"), nil })
//
// An error, or an empty string, refuses a keyed request with 400. It serves the requests of [Middleware] and [Handler]
// alone. What it returns is copied, since fiber uses the memory of a request's strings again.
func Scope(of func(fiber.Ctx) (string, error)) semel.Scope {
	if of == nil {
		return semel.ScopeFunc(nil)
	}
	return semel.ScopeFunc(func(r *http.Request) (string, error) {
		c, ok := r.Context().Value(contextKey{}).(fiber.Ctx)
		if !ok {
			return "", errors.New("scope: the request did not come through semelfiber")
		}
		principal, err := of(c)
		return strings.Clone(principal), err
	})
}
