package semelecho_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/frameworktest"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelecho"
)

var post = frameworktest.Post

// echo gives its Context to other requests when it has answered.
func TestField02_APolicyThatAnswersEarlyIsRefused(t *testing.T) {
	t.Parallel()
	frameworktest.Refused(t, semel.Policy{Patience: time.Second}, func(g *semel.Guard) { semelecho.Middleware(g) })
}

// The guard that can't be a middleware of echo can stand before it.
func TestField02_PatienceBeforeEcho(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	e := echo.New()
	e.POST("/", func(c *echo.Context) error {
		<-goOn
		return echo.NewHTTPError(http.StatusConflict, c.Request().Header.Get("Idempotency-Key"))
	})
	frameworktest.PatienceBefore(t, e, goOn, http.StatusConflict, `{"message":"key"}`)
}

func TestField13_AScopeThatCanTellNobodyIsRefused(t *testing.T) {
	t.Parallel()
	account := semelecho.Scope(func(*echo.Context) (string, error) { return "acme", nil })
	frameworktest.NobodyIsRefused(t, semelecho.Scope(nil), account, func(h http.Handler) http.Handler {
		e := echo.New()
		e.POST("/", echo.WrapHandler(h))
		return e
	})
}

func TestField04_AScopeThatReadsTheBodyIsRefused(t *testing.T) {
	t.Parallel()
	account := semelecho.Scope(func(c *echo.Context) (string, error) {
		_, err := c.Request().Body.Read(make([]byte, 1))
		return "acme", err
	})
	frameworktest.ReaderIsRefused(t, account, func(g *semel.Guard) http.Handler {
		e := echo.New()
		e.POST("/", func(c *echo.Context) error { return c.NoContent(http.StatusOK) }, semelecho.Middleware(g))
		return e
	})
}

// What stands before the guard sees the request and the writer that it had before, and errors of what the guard lets
// pass.
func TestField02_WhatIsBeforeTheGuardSeesNothingOfIt(t *testing.T) {
	t.Parallel()
	var seen frameworktest.Operations
	g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Observer: &seen})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			request, response := c.Request(), c.Response()
			err := next(c)
			if c.Request() != request || c.Response() != response {
				t.Error("its context holds what is the guard's")
			}
			if passed := request.Method == http.MethodGet; passed != (err != nil) {
				t.Errorf("%s: it gets the error %v", request.Method, err)
			}
			return err
		}
	})
	e.Any("/orders/:id", func(c *echo.Context) error {
		if guarded := c.Request().Method == http.MethodPost; guarded != (semel.FromContext(c.Request().Context()) != nil) {
			t.Errorf("%s: whether the handler has an operation: %v", c.Request().Method, !guarded)
		}
		return echo.NewHTTPError(http.StatusConflict, c.Param("id"))
	}, semelecho.Middleware(g))
	for range 2 {
		if w := post(e, "/orders/7"); w.Code != http.StatusConflict {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/orders/7", nil))
	if w.Code != http.StatusConflict {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if len(seen) != 2 || seen[0] != "POST /orders/:id" {
		t.Errorf("the operation is called %q", seen)
	}
}
