package semel_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

// The answer was lost, and its Location with it. The key finds the operation.
func ExampleGuard_Operations() {
	store, scope, mux := memstore.New(), semel.ScopeFunc(accountOf), http.NewServeMux()
	authenticated := func(h http.Handler) http.Handler { return h } // stands for what tells who asks

	guard, err := semel.New(store, scope, semel.Hold, semel.Options{Operations: "/operations"})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("/operations", authenticated(guard.Operations()))
	mux.Handle("/operations/", authenticated(guard.Operations()))
	mux.Handle("POST /payments", authenticated(guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/payments/7")
		w.WriteHeader(http.StatusCreated)
	}))))

	send := func(method, path, body string) string {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("X-Account", "acme")
		r.Header.Set("Idempotency-Key", "order-42")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Body.String()
	}
	send(http.MethodPost, "/payments", `{"order":"42"}`)
	_, told, _ := strings.Cut(send(http.MethodGet, "/operations", ""), `"result":`)
	fmt.Println(told[:strings.Index(told, ",\"href")])

	// Output:
	// {"status":201,"location":"/payments/7"
}
