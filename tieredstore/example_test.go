package tieredstore_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/tieredstore"
)

func Example() {
	durable := memstore.New() // stands for a store that lasts, such as sqlitestore or pgstore
	store := tieredstore.New(durable, tieredstore.Options{
		Memory: tieredstore.Memory{Entries: 10_000}, // and Cache: redisstore.NewCache(client, redisstore.CacheOptions{})
	})
	guard, err := semel.New(store, semel.SingleTenant, driver.Hold, semel.Options{})
	if err != nil {
		panic(err)
	}
	pay := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "paid")
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":5}`))
		r.Header.Set("Idempotency-Key", "order-7")
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// 201 paid, replayed: ""
	// 201 paid, replayed: "true"
}
