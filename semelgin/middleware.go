package semelgin

import (
	"context"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
)

// Middleware protects the handlers that follow it. Requests that the guard lets pass, such as GET, are gin's alone. If
// the request is a repeat, or is refused, the chain is aborted.
//
// It panics if the guard's policy has Patience or RespondAsync.
func Middleware(g *semel.Guard) gin.HandlerFunc {
	if p := g.Policy(); p.Patience > 0 || p.RespondAsync {
		panic("semelgin: a policy with Patience or RespondAsync answers while a handler still uses its gin.Context, which gin gives to other requests then: use guard.Wrap(engine)")
	}
	return func(c *gin.Context) {
		ran := false
		g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			next(c, w, r)
		})).ServeHTTP(&live{c.Writer}, known(c))
		if !ran {
			c.Abort()
		}
	}
}

// next runs the handlers that follow, under the guard unless that lets the request pass.
func next(c *gin.Context, w http.ResponseWriter, r *http.Request) {
	outer, request := c.Writer, c.Request
	c.Request = r
	defer func() { c.Writer, c.Request = outer, request }()
	if _, passed := w.(*live); passed {
		c.Next()
		return
	}
	own := &writer{ResponseWriter: w, status: outer.Status(), size: noneWritten}
	c.Writer = own
	c.Next()
	own.end(c.FullPath() == "", outer.Status())
}

// live is the writer that the guard gets, to be recognised if the guard hands it on.
type live struct{ http.ResponseWriter }

func (l *live) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Handler serves h, such as semel.Guard.Operations, for which gin.WrapH would not do if the guard's scope is one of
// [Scope].
func Handler(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) { h.ServeHTTP(c.Writer, known(c)) }
}

// Scope takes the principal from gin's context, where the authentication middleware has put it:
//
//	semelgin.Scope(func(c *gin.Context) (string, error) { return c.GetString("account"), nil })
//
// An error, or an empty string, refuses a keyed request with 400. It serves the requests of [Middleware] and [Handler]
// alone.
func Scope(of func(*gin.Context) (string, error)) semel.Scope {
	if of == nil {
		return semel.ScopeFunc(nil)
	}
	return semel.ScopeFunc(func(r *http.Request) (string, error) {
		c, ok := r.Context().Value(contextKey{}).(*gin.Context)
		if !ok {
			return "", errors.New("scope: the request did not come through semelgin")
		}
		request := c.Request
		c.Request = r // so that the guard sees if its body is read
		defer func() { c.Request = request }()
		return of(c)
	})
}

type contextKey struct{}

// known returns the request with what the guard looks for: its route, and for [Scope] its gin.Context, which is asked
// only while it is this request's.
func known(c *gin.Context) *http.Request {
	r := c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, c))
	if route := c.FullPath(); route != "" {
		r.Pattern = r.Method + " " + route
	}
	return r
}
