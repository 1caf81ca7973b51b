package semelecho_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelecho"
	"github.com/semelhq/semel/semeltest"
)

func post(h http.Handler, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "key")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// echo gives its Context to other requests when it has answered.
func TestField02_APolicyThatAnswersEarlyIsRefused(t *testing.T) {
	t.Parallel()
	g := semeltest.New(t, semel.Policy{Patience: time.Second})
	defer func() {
		if recover() == nil {
			t.Error("a policy with Patience is taken")
		}
	}()
	semelecho.Middleware(g)
}

// The guard that can't be a middleware of echo can stand before it.
func TestField02_PatienceBeforeEcho(t *testing.T) {
	t.Parallel()
	goOn, ended := make(chan struct{}), make(chan struct{})
	e := echo.New()
	e.POST("/", func(c *echo.Context) error {
		<-goOn
		return echo.NewHTTPError(http.StatusConflict, c.Request().Header.Get("Idempotency-Key"))
	})
	g := semeltest.New(t, semel.Policy{Patience: time.Millisecond, Wait: time.Minute})
	h := g.Handler(e)
	if w := post(h, "/"); w.Code != http.StatusGatewayTimeout {
		t.Errorf("answered %d, want 504", w.Code)
	}
	go func() {
		defer close(ended)
		if w := post(h, "/"); w.Code != http.StatusConflict || strings.TrimSpace(w.Body.String()) != `{"message":"key"}` {
			t.Errorf("repeated: %d %s", w.Code, w.Body)
		}
	}()
	close(goOn)
	<-ended
}

func TestField13_AScopeThatCanTellNobodyIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := semel.New(memstore.New(), semelecho.Scope(nil), semel.Hold, semel.Options{}); err == nil {
		t.Error("a scope without a function is taken")
	}
	account := semelecho.Scope(func(*echo.Context) (string, error) { return "acme", nil })
	g, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.POST("/", echo.WrapHandler(g.Handler(http.NotFoundHandler())))
	if w := post(e, "/"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "scope-invalid") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

// A scope that reads the body is caught, as one of net/http is.
func TestField04_AScopeThatReadsTheBodyIsRefused(t *testing.T) {
	t.Parallel()
	account := semelecho.Scope(func(c *echo.Context) (string, error) {
		_, err := c.Request().Body.Read(make([]byte, 1))
		return "acme", err
	})
	g, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.POST("/", func(c *echo.Context) error { return c.NoContent(http.StatusOK) }, semelecho.Middleware(g))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "key")
	r.ContentLength = -1
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "body-consumed") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

// What stands before the guard sees the request and the writer that it had before, and errors of what the guard lets
// pass.
func TestField02_WhatIsBeforeTheGuardSeesNothingOfIt(t *testing.T) {
	t.Parallel()
	var seen names
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

// names are those of the operations of decisions.
type names []string

func (n *names) Observe(_ context.Context, e event.Event) {
	if e.Kind == event.Decision {
		*n = append(*n, e.Operation)
	}
}
