package semelfiber_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	recoverer "github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/frameworktest"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelfiber"
	"github.com/semelhq/semel/semeltest"
)

// fiber answers when its handlers have returned, not before.
func TestField02_APolicyThatAnswersEarlyIsRefused(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]semel.Policy{"patience": {Patience: time.Second}, "stream": {Stream: true}} {
		t.Run(name, func(t *testing.T) {
			frameworktest.Refused(t, p, func(g *semel.Guard) { semelfiber.Middleware(g) })
		})
	}
}

func ask(t *testing.T, app *fiber.App, path, key string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := app.Test(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestField13_AScopeThatCanTellNobodyIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := semel.New(memstore.New(), semelfiber.Scope(nil), semel.Hold, semel.Options{}); err == nil {
		t.Error("a scope without a function is taken")
	}
	account := semelfiber.Scope(func(fiber.Ctx) (string, error) { return "acme", nil })
	g, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Post("/", adaptor.HTTPHandler(g.Wrap(http.NotFoundHandler())))
	if status, body := ask(t, app, "/", "key"); status != 400 || !strings.Contains(body, "scope-invalid") {
		t.Errorf("answered %d %s", status, body)
	}
}

// What stands before the guard sees the context that it had before, and the errors of what the guard lets pass.
func TestField02_WhatIsBeforeTheGuardSeesNothingOfIt(t *testing.T) {
	t.Parallel()
	var seen frameworktest.Operations
	g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Observer: &seen, Policy: semel.Policy{KeyOptional: true}})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		before := c.Context()
		err := c.Next()
		if c.Context() != before {
			t.Error("its context is the guard's")
		}
		if passed := c.Get("Idempotency-Key") == ""; passed != (err != nil) {
			t.Errorf("passed: %v; it gets the error %v", passed, err)
		}
		return err
	})
	app.Post("/orders/:id", semelfiber.Middleware(g), func(c fiber.Ctx) error {
		if guarded := c.Get("Idempotency-Key") != ""; guarded != (semel.FromContext(c.Context()) != nil) {
			t.Errorf("whether the handler has an operation: %v", !guarded)
		}
		return fiber.NewError(http.StatusConflict, c.Params("id"))
	})
	for _, key := range []string{"key", "key", ""} {
		if status, body := ask(t, app, "/orders/7", key); status != http.StatusConflict || body != "7" {
			t.Errorf("answered %d %s", status, body)
		}
	}
	if len(seen) != 3 || seen[0] != "POST /orders/:id" {
		t.Errorf("the operation is called %q", seen)
	}
}

// A stream that goes on when the run's time is over is no answer.
func TestField02_AnEndlessStreamIsLost(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Post("/", semelfiber.Middleware(semeltest.New(t, semel.Policy{MaxRun: 10 * time.Millisecond})), func(c fiber.Ctx) error {
		return c.SendStream(endless{c.Context()})
	})
	for range 2 {
		if status, body := ask(t, app, "/", "key"); status != 409 || !strings.Contains(body, "outcome-unknown") {
			t.Errorf("answered %d %s", status, body)
		}
	}
}

// endless gives bytes when its context has ended, and for ever.
type endless struct{ ctx context.Context }

func (e endless) Read(p []byte) (int, error) {
	<-e.ctx.Done()
	return copy(p, "x"), nil
}

// What a handler throws is a middleware's that stands before the guard, whatever it is.
func TestField02_WhatAHandlerThrowsGoesOn(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Use(recoverer.New())
	app.Post("/", semelfiber.Middleware(semeltest.New(t, semel.Policy{})), func(fiber.Ctx) error { panic(http.ErrAbortHandler) })
	if status, body := ask(t, app, "/", "key"); status != 500 || body != http.ErrAbortHandler.Error() {
		t.Errorf("answered %d %s", status, body)
	}
}

// fiber's own adaptor runs the handlers after the guard: that is refused, not taken for an empty 200.
func TestField02_R32a_FibersAdaptorIsRefusedLoudly(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Post("/", adaptor.HTTPMiddleware(semeltest.New(t, semel.Policy{}).Wrap), func(c fiber.Ctx) error { return c.SendString("paid") })
	if _, body := ask(t, app, "/", "key"); !strings.Contains(body, "paid") && !strings.Contains(body, "no-answer") {
		t.Errorf("the first answer is %s", body)
	}
	if status, body := ask(t, app, "/", "key"); status != 409 || !strings.Contains(body, "outcome-unknown") {
		t.Errorf("the repeat's is %d %s", status, body)
	}
}

func TestField02_ATargetThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Use(semelfiber.Middleware(semeltest.New(t, semel.Policy{})))
	app.Post("/*", func(c fiber.Ctx) error { return c.SendString("paid") })
	answer := exchange(t, app, "POST /%zz HTTP/1.1\r\nHost: a\r\nIdempotency-Key: key\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		t.Errorf("answered %s", answer)
	}
}

// What a refusal leaves unread of a body on the connection is no request.
func TestField02_NoBodyIsTakenForARequest(t *testing.T) {
	t.Parallel()
	app := fiber.New(fiber.Config{StreamRequestBody: true})
	app.Post("/", semelfiber.Middleware(semeltest.New(t, semel.Policy{})), func(c fiber.Ctx) error { return c.SendString("paid") })
	answers := exchange(t, app, "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: not a key\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
	if n := strings.Count(answers, "HTTP/1.1 "); n != 1 || !strings.Contains(answers, "key-invalid") {
		t.Errorf("%d answers: %s", n, answers)
	}
}

// exchange sends raw bytes over a socket, and returns all that comes until the server closes it.
func exchange(t *testing.T, app *fiber.App, raw string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	defer func() {
		l.Close()
		<-ended //nolint:errcheck // it ends because the listener is closed
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	io.Copy(&all, conn) //nolint:errcheck // what has come is looked at
	return all.String()
}
