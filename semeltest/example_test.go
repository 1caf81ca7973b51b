package semeltest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/semeltest"
)

// In a test file this is the body of a test; t is its *testing.T.
func ExampleAssertOnce() {
	var t testing.TB = &substitute{}

	orders := 0
	handler := semeltest.New(t, semel.Policy{}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
	}))
	newRequest := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"item":"book"}`))
		r.Header.Set("Idempotency-Key", "order-1")
		return r
	}
	fmt.Println(semeltest.AssertOnce(t, handler, newRequest, func() int { return orders }), orders)
	// Output: true 1
}
