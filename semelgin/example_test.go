package semelgin_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelgin"
)

func authenticate(c *gin.Context) { c.Set("account", c.GetHeader("X-Account")) }

func ExampleMiddleware() {
	account := semelgin.Scope(func(c *gin.Context) (string, error) { return c.GetString("account"), nil })
	guard, err := semel.New(memstore.New(), account, semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	charges := 0
	pay := func(c *gin.Context) {
		charges++
		c.JSON(http.StatusCreated, gin.H{"charge": charges})
	}

	router := gin.New()
	router.Use(authenticate)
	router.POST("/payments", semelgin.Middleware(guard), pay)

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":4900}`))
		r.Header.Set("X-Account", "acme")
		r.Header.Set("Idempotency-Key", "order-42")
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body, w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 {"charge":1} false
	// 201 {"charge":1} true
}
