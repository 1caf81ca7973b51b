package semelfiber_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelfiber"
)

func authenticate(c fiber.Ctx) error {
	c.Locals("account", c.Get("X-Account"))
	return c.Next()
}

func ExampleMiddleware() {
	account := semelfiber.Scope(func(c fiber.Ctx) (string, error) { return fiber.Locals[string](c, "account"), nil })
	guard, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	charges := 0
	pay := func(c fiber.Ctx) error {
		charges++
		return c.Status(fiber.StatusCreated).JSON(fiber.Map{"charge": charges})
	}

	app := fiber.New()
	app.Use(authenticate)
	app.Post("/payments", semelfiber.Middleware(guard), pay)

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":4900}`))
		r.Header.Set("X-Account", "acme")
		r.Header.Set("Idempotency-Key", "order-42")
		res, err := app.Test(r)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.StatusCode, string(body), res.Header.Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 {"charge":1} false
	// 201 {"charge":1} true
}
