package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
	"github.com/semelhq/semel/semelecho"
	"github.com/semelhq/semel/semelgin"
)

// A completer finishes what was lost by the framework's own routes: echo and gin are http.Handlers.
func TestField02_R52_ACompleterRunsTheFrameworksRoutes(t *testing.T) {
	t.Parallel()
	for name, newHandler := range map[string]func(*semel.Guard, func(context.Context, string) error) http.Handler{"echo": echoFinishes, "gin": ginFinishes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := keyring.New(keyring.Key{ID: "a", Key: bytes.Repeat([]byte{1}, 32)})
			if err != nil {
				t.Fatal(err)
			}
			guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Rerun, semel.Options{
				Policy: semel.Policy{Complete: true, Wait: time.Minute}, Encryption: keys,
			})
			if err != nil {
				t.Fatal(err)
			}
			finished := make(chan string, 1)
			h := newHandler(guard, func(ctx context.Context, body string) error {
				op := semel.FromContext(ctx)
				if op.Attempt() == 1 {
					op.Lost(errors.New("the connection broke"))
					return nil
				}
				finished <- body
				return errors.New("declined")
			})
			completer, err := guard.Completer(h, semel.CompleterOptions{
				Interval: time.Millisecond, Backoff: time.Millisecond,
				Principal: func(_ context.Context, r *http.Request, _ string) (*http.Request, error) { return r, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- completer.Run(ctx) }()
			url := serve(t, h)
			if a := post(t, url, "key"); a.header.Get("Idempotency-Code") != string(refusal.OutcomePending) {
				t.Errorf("the client of the lost run is told %d %s", a.status, a.body)
			}
			if body := <-finished; body != `{"amount":4900}` {
				t.Errorf("run without its client with %s", body)
			}
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if a := post(t, url, "key"); a.status != http.StatusPaymentRequired || a.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("its repeat is told %d %s", a.status, a.body)
			}
		})
	}
}

func echoFinishes(g *semel.Guard, run func(context.Context, string) error) http.Handler {
	e := newEcho()
	e.POST("/", func(c *echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		if err := run(c.Request().Context(), string(body)); err != nil {
			return echo.NewHTTPError(http.StatusPaymentRequired, err.Error())
		}
		return nil
	}, semelecho.Middleware(g))
	return e
}

func ginFinishes(g *semel.Guard, run func(context.Context, string) error) http.Handler {
	e := gin.New()
	e.POST("/", semelgin.Middleware(g), func(c *gin.Context) {
		body, err := c.GetRawData()
		if err == nil {
			err = run(c.Request.Context(), string(body))
		}
		if err != nil {
			c.AbortWithStatus(http.StatusPaymentRequired)
		}
	})
	return e
}
