package semelecho_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelecho"
)

func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set("account", c.Request().Header.Get("X-Account"))
		return next(c)
	}
}

func ExampleMiddleware() {
	account := semelecho.Scope(func(c *echo.Context) (string, error) { return echo.ContextGet[string](c, "account") })
	guard, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	charges := 0
	pay := func(c *echo.Context) error {
		charges++
		return echo.NewHTTPError(http.StatusPaymentRequired, fmt.Sprintf("charge %d was declined", charges))
	}

	e := echo.New()
	e.Use(authenticate)
	e.POST("/payments", pay, semelecho.Middleware(guard))

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":4900}`))
		r.Header.Set("X-Account", "acme")
		r.Header.Set("Idempotency-Key", "order-42")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()), w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 402 {"message":"charge 1 was declined"} false
	// 402 {"message":"charge 1 was declined"} true
}
