package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
	"github.com/semelhq/semel/semelfiber"
	"github.com/semelhq/semel/semeltest"
)

func startFiber(t *testing.T, g *semel.Guard, p *probe) string {
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.Set("X-Turn", p.turn())
		if c.Path() == "/read-above" {
			c.FormValue("amount")
		}
		err := c.Next()
		p.see(c.Response().StatusCode())
		return err
	}, recover.New())
	if g != nil {
		app.Use(semelfiber.Middleware(g))
	}
	handle := func(path string, f fiber.Handler) {
		app.Post(path, func(c fiber.Ctx) error {
			p.run()
			return f(c)
		})
	}
	object := fiber.Map{"id": 1}
	handle("/json", func(c fiber.Ctx) error { return c.JSON(object) })
	handle("/created", func(c fiber.Ctx) error {
		c.Location("/created/1")
		return c.Status(http.StatusCreated).JSON(object)
	})
	handle("/bound", func(c fiber.Ctx) error {
		var v payment
		if err := c.Bind().Body(&v); err != nil {
			return err
		}
		return c.SendString(strconv.Itoa(v.Amount))
	})
	refused := func(fiber.Ctx) error { return fiber.NewError(http.StatusPaymentRequired, "no funds") }
	handle("/error", refused)
	app.Get("/error", refused)
	handle("/failed", func(fiber.Ctx) error { return errors.New("broken") })
	thrown := func(fiber.Ctx) error { panic("thrown") }
	handle("/panic", thrown)
	app.Post("/recovered", recover.New(), func(c fiber.Ctx) error {
		p.run()
		return thrown(c)
	})
	handle("/status", func(c fiber.Ctx) error {
		c.Status(http.StatusAccepted)
		return nil
	})
	handle("/nocontent", func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })
	handle("/many", func(c fiber.Ctx) error {
		c.Response().Header.Add("X-Many", "a")
		c.Response().Header.Add("X-Many", "b, c")
		c.Cookie(&fiber.Cookie{Name: "a", Value: "1"})
		c.Cookie(&fiber.Cookie{Name: "b", Value: "2"})
		return c.SendString("many")
	})
	handle("/stream", func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for _, part := range parts {
				w.Write(part)
				w.Flush()
			}
		})
	})
	handle("/events", func(c fiber.Ctx) error {
		c.Set("Content-Type", "text/event-stream")
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for range 3 {
				w.WriteString("data: x\n\n")
				w.Flush()
			}
		})
	})
	handle("/silent", func(c fiber.Ctx) error {
		c.Set("X-Set", "1")
		return nil
	})
	handle("/read-above", func(c fiber.Ctx) error { return c.SendString(c.FormValue("amount")) })
	return serveFiber(t, app)
}

func serveFiber(t *testing.T, app *fiber.App) string {
	t.Helper()
	l := listen(t)
	ended := make(chan error)
	go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		l.Close()
		<-ended //nolint:errcheck // it ends because the listener is closed
	})
	return "http://" + l.Addr().String()
}

func fiberPanics(g *semel.Guard) http.Handler {
	app := fiber.New()
	app.Post("/", semelfiber.Middleware(g), func(fiber.Ctx) error { panic("thrown") })
	return adaptor.FiberApp(app)
}

// What fiber parses before its handlers run is still told apart.
func TestField02_R21_FiberFormsOfManyParts(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]fiber.Config{"parsed": {}, "as sent": {DisablePreParseMultipartForm: true}, "streamed": {StreamRequestBody: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := fiber.New(config)
			app.Post("/", semelfiber.Middleware(semeltest.New(t, semel.Policy{})), func(c fiber.Ctx) error {
				f, err := c.FormFile("file")
				if err != nil {
					return err
				}
				return c.SendString(fmt.Sprint(c.FormValue("field1"), f.Filename, f.Size))
			})
			url := serveFiber(t, app)
			ask := func(last string) answered {
				var body bytes.Buffer
				w := multipart.NewWriter(&body)
				for i := range 20 {
					w.WriteField(fmt.Sprint("field", i), "value") //nolint:errcheck // memory takes it
				}
				part, _ := w.CreateFormFile("file", "name.txt")
				part.Write([]byte(last))
				w.Close()
				r := request(t, http.MethodPost, url, "key", body.String())
				r.Header.Set("Content-Type", w.FormDataContentType())
				return send(t, r)
			}
			first := ask("content")
			if first.status != 200 || first.body != "valuename.txt7" {
				t.Fatalf("answered %d %s", first.status, first.body)
			}
			first.compare(t, ask("content"), true)
			if a := ask("another"); a.header.Get("Idempotency-Code") != string(refusal.KeyReused) {
				t.Errorf("another file under the key: %d %s", a.status, a.body)
			}
		})
	}
}

// A body that fiber leaves on the connection is read by the guard, and by the handler.
func TestField02_FiberBodiesThatStream(t *testing.T) {
	t.Parallel()
	app := fiber.New(fiber.Config{StreamRequestBody: true})
	var p probe
	g := semeltest.New(t, semel.Policy{KeyOptional: true})
	app.Post("/", semelfiber.Middleware(g), func(c fiber.Ctx) error {
		p.run()
		return c.Send(c.Body())
	})
	url := serveFiber(t, app)
	for _, size := range []int{0, 10, 500_000} {
		for _, chunked := range []bool{false, true} {
			for i, key := range []string{"", fmt.Sprintf("key-%d-%v", size, chunked), fmt.Sprintf("key-%d-%v", size, chunked)} {
				body := string(bytes.Repeat([]byte("a"), size)) + "!"
				r := request(t, http.MethodPost, url, key, body)
				if chunked {
					r.ContentLength = -1
				}
				if a := send(t, r); a.status != 200 || a.body != body || (a.header.Get("Idempotent-Replayed") != "") != (i == 2) {
					t.Errorf("%d bytes, chunked %v, answer %d: %d, %d bytes", size, chunked, i, a.status, len(a.body))
				}
			}
		}
	}
	// A refusal leaves the rest of a body unread, which is not taken for a request.
	for range 3 {
		r := request(t, http.MethodPost, url, "not a key", string(bytes.Repeat([]byte("a"), 100)))
		r.ContentLength = -1
		if a := send(t, r); a.status != 400 || !strings.Contains(a.body, "key-invalid") {
			t.Errorf("answered %d %s", a.status, a.body)
		}
	}
	if p.runs() != 12 {
		t.Errorf("run %d times, want 12", p.runs())
	}
}

// fiber uses the memory of a request's strings for the next one. What the guard remembers stays.
func TestField02_R60_FiberLendsNoMemoryToTheGuard(t *testing.T) {
	t.Parallel()
	account := func(c fiber.Ctx) (string, error) { return c.Get("X-Account"), nil }
	g, err := semel.New(memstore.New(), semelfiber.Scope(account), semel.Hold, semel.Options{MaxKeys: 2})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Post("/", semelfiber.Middleware(g), func(c fiber.Ctx) error {
		return c.SendString(semel.FromContext(c.Context()).Correlation() + c.Get("X-Correlation-Id"))
	})
	url := serveFiber(t, app)
	ask := func(account, key string) answered {
		r := request(t, http.MethodPost, url, key, "{}")
		r.Header.Set("X-Account", account)
		return send(t, r)
	}
	for round := range 2 {
		for _, account := range []string{"aaaa", "bbbb", "cccc"} {
			if a := ask(account, fmt.Sprint("key", round)); a.status != 200 || len(a.body) != 64 || a.body[:32] != a.body[32:] {
				t.Errorf("%s: %d %s", account, a.status, a.body)
			}
		}
	}
	for _, account := range []string{"aaaa", "bbbb", "cccc"} {
		if a := ask(account, "key-beyond"); a.status != http.StatusTooManyRequests {
			t.Errorf("%s has a third key: %d", account, a.status)
		}
		if a := ask(account, "key0"); a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: no replay: %d", account, a.status)
		}
	}
}

// Two keys are refused, though fiber's adaptor would see the last one only.
func TestField02_R4_FiberPassesEveryHeaderLine(t *testing.T) {
	t.Parallel()
	var p probe
	url := startFiber(t, semeltest.New(t, semel.Policy{}), &p)
	r := request(t, http.MethodPost, url+"/json", "", "{}")
	r.Header["Idempotency-Key"] = []string{"one", "two"}
	if a := send(t, r); a.status != 400 || p.runs() != 0 {
		t.Errorf("answered %d, run %d times", a.status, p.runs())
	}
}

// An answer that can't end well, since its settle is refused, breaks the connection.
func TestField02_FiberBreaksOffAnAnswerThatIsNone(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Post("/", semelfiber.Middleware(semeltest.New(t, semel.Policy{})), func(c fiber.Ctx) error {
		semel.FromContext(c.Context()).Keep()
		c.Set("Content-Type", "text/event-stream")
		return c.SendStream(failing{})
	})
	url := serveFiber(t, app)
	if res, err := http.DefaultClient.Do(request(t, http.MethodPost, url, "key", `{"amount":4900}`)); err == nil {
		res.Body.Close()
		t.Errorf("answered %d, want a broken connection", res.StatusCode)
	}
	if a := post(t, url, "key"); a.header.Get("Idempotency-Code") != string(refusal.ReplayUnavailable) {
		t.Errorf("the repeat is told %d %s", a.status, a.body)
	}
}

// failing is a stream that breaks.
type failing struct{}

func (failing) Read(p []byte) (int, error) { return copy(p, "data: x\n\n"), errors.New("broken") }
