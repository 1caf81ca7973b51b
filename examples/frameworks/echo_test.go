package main

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
	"github.com/semelhq/semel/semelecho"
	"github.com/semelhq/semel/semeltest"
)

func newEcho() *echo.Echo {
	return echo.NewWithConfig(echo.Config{Logger: slog.New(slog.DiscardHandler)})
}

func startEcho(t *testing.T, g *semel.Guard, p *probe) string {
	e := newEcho()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Response().Header().Set("X-Turn", p.turn())
			if c.Request().URL.Path == "/read-above" {
				c.FormValue("amount")
			}
			err := next(c)
			if res, _ := echo.UnwrapResponse(c.Response()); res != nil {
				p.see(res.Status)
			}
			return err
		}
	}, middleware.Recover())
	if g != nil {
		e.Use(semelecho.Middleware(g))
	}
	handle := func(path string, f echo.HandlerFunc, m ...echo.MiddlewareFunc) {
		e.POST(path, func(c *echo.Context) error {
			p.run()
			if c.Get("set") != nil {
				return errors.New("a value of another request")
			}
			c.Set("set", true)
			return f(c)
		}, m...)
	}
	object := map[string]int{"id": 1}
	handle("/json", func(c *echo.Context) error { return c.JSON(http.StatusOK, object) })
	handle("/created", func(c *echo.Context) error {
		c.Response().Header().Set("Location", "/created/1")
		return c.JSON(http.StatusCreated, object)
	})
	handle("/bound", func(c *echo.Context) error {
		var v payment
		if err := c.Bind(&v); err != nil {
			return err
		}
		return c.String(http.StatusOK, strconv.Itoa(v.Amount))
	})
	refused := func(*echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "no funds") }
	handle("/error", refused)
	e.GET("/error", refused)
	handle("/failed", func(*echo.Context) error { return errors.New("broken") })
	thrown := func(*echo.Context) error { panic("thrown") }
	handle("/panic", thrown)
	handle("/recovered", thrown, middleware.Recover())
	handle("/status", func(c *echo.Context) error { return c.NoContent(http.StatusAccepted) })
	handle("/nocontent", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
	handle("/many", func(c *echo.Context) error {
		c.Response().Header()["X-Many"] = []string{"a", "b, c"}
		c.SetCookie(&http.Cookie{Name: "a", Value: "1"})
		c.SetCookie(&http.Cookie{Name: "b", Value: "2"})
		return c.String(http.StatusOK, "many")
	})
	handle("/stream", func(c *echo.Context) error {
		for _, part := range parts {
			c.Response().Write(part)
			http.NewResponseController(c.Response()).Flush()
		}
		return nil
	})
	handle("/events", func(c *echo.Context) error {
		c.Response().Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			io.WriteString(c.Response(), "data: x\n\n")
			c.Response().(http.Flusher).Flush()
		}
		return nil
	})
	handle("/silent", func(c *echo.Context) error {
		c.Response().Header().Set("X-Set", "1")
		return nil
	})
	handle("/read-above", func(*echo.Context) error { return nil })
	return serve(t, e)
}

func echoPanics(g *semel.Guard) http.Handler {
	e := newEcho()
	e.POST("/", func(*echo.Context) error { panic("thrown") }, semelecho.Middleware(g))
	return e
}

func echoStreams(t *testing.T, g *semel.Guard, goOn chan struct{}) string {
	e := newEcho()
	e.POST("/", func(c *echo.Context) error {
		http.NewResponseController(c.Response()).Flush()
		<-goOn
		io.WriteString(c.Response(), "first")
		http.NewResponseController(c.Response()).Flush()
		<-goOn
		_, err := io.WriteString(c.Response(), "last")
		return err
	}, semelecho.Middleware(g))
	return serve(t, e)
}

// echo's own way of taking a net/http middleware answers errors after the guard: that is refused, not taken for 200.
func TestField02_R32a_EchoWrapMiddlewareIsRefusedLoudly(t *testing.T) {
	t.Parallel()
	g := semeltest.New(t, semel.Policy{})
	e := newEcho()
	e.POST("/", func(*echo.Context) error { return echo.NewHTTPError(http.StatusConflict, "no") }, echo.WrapMiddleware(g.Wrap))
	url := serve(t, e)
	first, again := post(t, url, "key"), post(t, url, "key")
	if c := first.header.Get("Idempotency-Code"); first.status != 500 || c != string(refusal.NoAnswer) {
		t.Errorf("the first answer is %d %s", first.status, c)
	}
	if c := again.header.Get("Idempotency-Code"); again.status != 409 || c != string(refusal.OutcomeUnknown) {
		t.Errorf("the repeat's is %d %s", again.status, c)
	}
}
