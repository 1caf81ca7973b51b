package semelecho

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/semelhq/semel"
)

// Middleware protects what follows it. Requests that the guard lets pass, such as GET, are echo's alone, and so are
// their errors.
//
// It panics if the guard's policy has Patience or RespondAsync.
func Middleware(g *semel.Guard) echo.MiddlewareFunc {
	if p := g.Policy(); p.Patience > 0 || p.RespondAsync {
		panic("semelecho: a policy with Patience or RespondAsync answers while a handler still uses its echo.Context, which echo gives to other requests then: use guard.Wrap(e)")
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err = serve(c, next, w, r)
			})).ServeHTTP(&live{c.Response()}, known(c))
			return err
		}
	}
}

// serve runs next, and has its error answered, unless the guard lets the request pass.
func serve(c *echo.Context, next echo.HandlerFunc, w http.ResponseWriter, r *http.Request) error {
	outer, request := c.Response(), c.Request()
	c.SetRequest(r)
	defer func() {
		c.SetResponse(outer)
		c.SetRequest(request)
	}()
	if _, passed := w.(*live); passed {
		return next(c)
	}
	c.SetResponse(echo.NewResponse(w, c.Logger()))
	if err := next(c); err != nil {
		c.Echo().HTTPErrorHandler(c, err)
	}
	return nil
}

// live is the writer that the guard gets, to be recognised if the guard hands it on.
type live struct{ http.ResponseWriter }

func (l *live) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Handler serves h, such as semel.Guard.Operations, for which echo.WrapHandler would not do if the guard's scope is one
// of [Scope].
func Handler(h http.Handler) echo.HandlerFunc {
	return func(c *echo.Context) error {
		h.ServeHTTP(c.Response(), known(c))
		return nil
	}
}

// Scope takes the principal from echo's context, where the authentication middleware has put it:
//
//	semelecho.Scope(func(c *echo.Context) (string, error) { return echo.ContextGet[string](c, "account") })
//
// An error, or an empty string, refuses a keyed request with 400. It serves the requests of [Middleware] and [Handler]
// alone.
func Scope(of func(*echo.Context) (string, error)) semel.Scope {
	if of == nil {
		return semel.ScopeFunc(nil)
	}
	return semel.ScopeFunc(func(r *http.Request) (string, error) {
		c, ok := r.Context().Value(contextKey{}).(*echo.Context)
		if !ok {
			return "", errors.New("scope: the request did not come through semelecho")
		}
		request := c.Request()
		c.SetRequest(r) // so that the guard sees if its body is read
		defer c.SetRequest(request)
		return of(c)
	})
}

type contextKey struct{}

// known returns the request with what the guard looks for: its route, and for [Scope] its echo.Context, which is asked
// only while it is this request's.
func known(c *echo.Context) *http.Request {
	r := c.Request().WithContext(context.WithValue(c.Request().Context(), contextKey{}, c))
	if route := c.Path(); route != "" {
		r.Pattern = r.Method + " " + route
	}
	return r
}
