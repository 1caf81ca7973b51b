package main

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/semelgin"
	"github.com/semelhq/semel/semeltest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

func startGin(t *testing.T, g *semel.Guard, p *probe) string {
	recovers := gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) })
	e := gin.New()
	e.Use(func(c *gin.Context) {
		c.Header("X-Turn", p.turn())
		if c.Request.URL.Path == "/read-above" {
			c.PostForm("amount")
		}
		c.Next()
		p.see(c.Writer.Status())
	}, recovers)
	if g != nil {
		e.Use(semelgin.Middleware(g))
	}
	handle := func(path string, f ...gin.HandlerFunc) {
		e.POST(path, append([]gin.HandlerFunc{func(*gin.Context) { p.run() }}, f...)...)
	}
	object := gin.H{"id": 1}
	handle("/json", func(c *gin.Context) { c.JSON(http.StatusOK, object) })
	handle("/created", func(c *gin.Context) {
		c.Header("Location", "/created/1")
		c.JSON(http.StatusCreated, object)
	})
	handle("/bound", func(c *gin.Context) {
		var v payment
		if c.BindJSON(&v) == nil {
			c.String(http.StatusOK, strconv.Itoa(v.Amount))
		}
	})
	refused := func(c *gin.Context) {
		c.AbortWithError(http.StatusPaymentRequired, errors.New("no funds")) //nolint:errcheck // gin returns what it was given
	}
	handle("/error", refused)
	e.GET("/error", refused)
	handle("/failed", func(c *gin.Context) { c.AbortWithStatusJSON(http.StatusInternalServerError, gin.H{"error": "broken"}) })
	thrown := func(*gin.Context) { panic("thrown") }
	handle("/panic", thrown)
	handle("/recovered", recovers, thrown)
	handle("/status", func(c *gin.Context) { c.Status(http.StatusAccepted) })
	handle("/nocontent", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	handle("/many", func(c *gin.Context) {
		c.Writer.Header()["X-Many"] = []string{"a", "b, c"}
		c.SetCookie("a", "1", 0, "", "", false, false)
		c.SetCookie("b", "2", 0, "", "", false, false)
		c.String(http.StatusOK, "many")
	})
	handle("/stream", func(c *gin.Context) {
		left := parts
		c.Stream(func(w io.Writer) bool {
			w.Write(left[0])
			left = left[1:]
			return len(left) > 0
		})
	})
	handle("/events", func(c *gin.Context) {
		for range 3 {
			c.SSEvent("tick", "x")
			c.Writer.Flush()
		}
	})
	handle("/silent", func(c *gin.Context) { c.Header("X-Set", "1") })
	handle("/read-above")
	return serve(t, e)
}

func ginPanics(g *semel.Guard) http.Handler {
	e := gin.New()
	e.POST("/", semelgin.Middleware(g), func(*gin.Context) { panic("thrown") })
	return e
}

func ginStreams(t *testing.T, g *semel.Guard, goOn chan struct{}) string {
	e := gin.New()
	e.POST("/", semelgin.Middleware(g), func(c *gin.Context) {
		c.Writer.Flush()
		<-goOn
		c.Writer.WriteString("first")
		c.Writer.Flush()
		<-goOn
		c.Writer.WriteString("last")
	})
	return serve(t, e)
}

// gin answers a path without a route, or with one for another method, after its middlewares have returned.
func TestField02_GinAnswersWhatHasNoRoute(t *testing.T) {
	t.Parallel()
	start := func(g *semel.Guard, noRoute ...gin.HandlerFunc) string {
		e := gin.New()
		e.HandleMethodNotAllowed = true
		if g != nil {
			e.Use(semelgin.Middleware(g))
		}
		e.GET("/known", func(*gin.Context) {})
		e.NoRoute(noRoute...)
		return serve(t, e)
	}
	for name, noRoute := range map[string]gin.HandlerFunc{
		"a body":         func(c *gin.Context) { c.String(http.StatusTeapot, "gone") },
		"a status":       func(c *gin.Context) { c.Status(http.StatusNoContent) },
		"the same":       func(c *gin.Context) { c.Status(http.StatusNotFound) },
		"without a body": func(c *gin.Context) { c.AbortWithStatus(http.StatusNotFound) },
	} {
		t.Run(name, func(t *testing.T) {
			bare, guarded := start(nil, noRoute), start(semeltest.New(t, semel.Policy{}), noRoute)
			for _, path := range []string{"/unknown", "/known"} {
				want := post(t, bare+path, "")
				want.compare(t, post(t, guarded+path, "key"+path[1:]), false)
				want.compare(t, post(t, guarded+path, "key"+path[1:]), true)
			}
		})
	}
}
