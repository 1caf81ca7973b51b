package semelgin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/frameworktest"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelgin"
	"github.com/semelhq/semel/semeltest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

var post = frameworktest.Post

// gin gives its Context to other requests when it has answered.
func TestField02_APolicyThatAnswersEarlyIsRefused(t *testing.T) {
	t.Parallel()
	frameworktest.Refused(t, semel.Policy{Patience: time.Second}, func(g *semel.Guard) { semelgin.Middleware(g) })
}

// The guard that can't be a middleware of gin can stand before it.
func TestField02_PatienceBeforeTheEngine(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	e := gin.New()
	e.POST("/", func(c *gin.Context) {
		<-goOn
		c.JSON(http.StatusCreated, gin.H{"id": c.GetHeader("Idempotency-Key")})
	})
	frameworktest.PatienceBefore(t, e, goOn, http.StatusCreated, `{"id":"key"}`)
}

func TestField13_AScopeThatCanTellNobodyIsRefused(t *testing.T) {
	t.Parallel()
	account := semelgin.Scope(func(*gin.Context) (string, error) { return "acme", nil })
	frameworktest.NobodyIsRefused(t, semelgin.Scope(nil), account, func(h http.Handler) http.Handler {
		e := gin.New()
		e.POST("/", gin.WrapH(h))
		return e
	})
}

func TestField04_AScopeThatReadsTheBodyIsRefused(t *testing.T) {
	t.Parallel()
	account := semelgin.Scope(func(c *gin.Context) (string, error) {
		_, err := c.Request.Body.Read(make([]byte, 1))
		return "acme", err
	})
	frameworktest.ReaderIsRefused(t, account, func(g *semel.Guard) http.Handler {
		e := gin.New()
		e.POST("/", semelgin.Middleware(g), func(c *gin.Context) { c.Status(http.StatusOK) })
		return e
	})
}

// What stands before the guard sees the request, the writer and the context that it had before.
func TestField02_WhatIsBeforeTheGuardSeesNothingOfIt(t *testing.T) {
	t.Parallel()
	var seen frameworktest.Operations
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
