package semelgin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelgin"
	"github.com/semelhq/semel/semeltest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

func post(h http.Handler, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "key")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// gin gives its Context to other requests when it has answered.
func TestField02_APolicyThatAnswersEarlyIsRefused(t *testing.T) {
	t.Parallel()
	g := semeltest.New(t, semel.Policy{Patience: time.Second})
	defer func() {
		if recover() == nil {
			t.Error("a policy with Patience is taken")
		}
	}()
	semelgin.Middleware(g)
}

// The guard that can't be a middleware of gin can stand before it.
func TestField02_PatienceBeforeTheEngine(t *testing.T) {
	t.Parallel()
	goOn, ended := make(chan struct{}), make(chan struct{})
	e := gin.New()
	e.POST("/", func(c *gin.Context) {
		<-goOn
		c.JSON(http.StatusCreated, gin.H{"id": c.GetHeader("Idempotency-Key")})
	})
	g := semeltest.New(t, semel.Policy{Patience: time.Millisecond, Wait: time.Minute})
	h := g.Handler(e)
	if w := post(h, "/"); w.Code != http.StatusGatewayTimeout {
		t.Errorf("answered %d, want 504", w.Code)
	}
	go func() {
		defer close(ended)
		if w := post(h, "/"); w.Code != http.StatusCreated || w.Body.String() != `{"id":"key"}` {
			t.Errorf("repeated: %d %s", w.Code, w.Body)
		}
	}()
	close(goOn)
	<-ended
}

func TestField13_AScopeThatCanTellNobodyIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := semel.New(memstore.New(), semelgin.Scope(nil), semel.Hold, semel.Options{}); err == nil {
		t.Error("a scope without a function is taken")
	}
	account := semelgin.Scope(func(*gin.Context) (string, error) { return "acme", nil })
	g, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := gin.New()
	e.POST("/", gin.WrapH(g.Handler(http.NotFoundHandler())))
	if w := post(e, "/"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "scope-invalid") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

// A scope that reads the body is caught, as one of net/http is.
func TestField04_AScopeThatReadsTheBodyIsRefused(t *testing.T) {
	t.Parallel()
	account := semelgin.Scope(func(c *gin.Context) (string, error) {
		_, err := c.Request.Body.Read(make([]byte, 1))
		return "acme", err
	})
	g, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := gin.New()
	e.POST("/", semelgin.Middleware(g), func(c *gin.Context) { c.Status(http.StatusOK) })
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "key")
	r.ContentLength = -1
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "body-consumed") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

// What stands before the guard sees the request, the writer and the context that it had before.
func TestField02_WhatIsBeforeTheGuardSeesNothingOfIt(t *testing.T) {
	t.Parallel()
	var seen names
	g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Observer: &seen})
	if err != nil {
		t.Fatal(err)
	}
	e := gin.New()
	e.Use(func(c *gin.Context) {
		request, writer := c.Request, c.Writer
		c.Next()
		if c.Request != request || c.Writer != writer {
			t.Error("its context holds what is the guard's")
		}
	})
	e.POST("/orders/:id", semelgin.Middleware(g), func(c *gin.Context) {
		if semel.FromContext(c.Request.Context()) == nil {
			t.Error("the handler has no operation")
		}
		c.Status(http.StatusOK)
	})
	for range 2 {
		if w := post(e, "/orders/7"); w.Code != http.StatusOK || w.Body.Len() != 0 {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
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

// The writer under the guard tells what gin's own tells.
func TestField02_TheWriterIsAsGins(t *testing.T) {
	t.Parallel()
	type told struct {
		before, after, size int
		written, both       bool
	}
	tell := func(c *gin.Context) (s told) {
		w := c.Writer
		s.written = w.Written()
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusCreated)
		s.before = w.Size()
		w.WriteHeaderNow()
		s.both = w.Written()
		w.WriteHeader(http.StatusOK)
		w.WriteString("four")
		w.Write([]byte("four"))
		w.Flush()
		s.after, s.size = w.Status(), w.Size()
		return s
	}
	var bare, guarded told
	e := gin.New()
	e.POST("/bare", func(c *gin.Context) { bare = tell(c) })
	e.POST("/guarded", semelgin.Middleware(semeltest.New(t, semel.Policy{})), func(c *gin.Context) {
		guarded = tell(c)
		select {
		case <-c.Writer.CloseNotify():
			t.Error("the client is said to have gone")
		default:
		}
		if c.Writer.Pusher() != nil {
			t.Error("what is pushed would pass by the guard")
		}
		if _, _, err := c.Writer.Hijack(); err == nil {
			t.Error("a connection is handed over after the answer")
		}
	})
	if a, b := post(e, "/bare"), post(e, "/guarded"); a.Code != b.Code || a.Body.String() != b.Body.String() || bare != guarded {
		t.Errorf("bare %d %s %+v, guarded %d %s %+v", a.Code, a.Body, bare, b.Code, b.Body, guarded)
	}
}
