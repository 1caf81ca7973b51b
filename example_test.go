package semel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// show sends a keyed POST as account acme and prints the answer.
func show(h http.Handler, path, key, body string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	out := fmt.Sprint(w.Code)
	if w.Header().Get("Idempotent-Replayed") != "" {
		out += " (replayed)"
	}
	var problem semel.Problem
	if json.Unmarshal(w.Body.Bytes(), &problem) == nil {
		fmt.Println(out, problem.Code)
		return
	}
	fmt.Println(strings.TrimSpace(out + " " + w.Body.String()))
}

func Example() {
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(accountOf), semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	payments := 0
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payments)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /payments", guard.Wrap(pay))

	show(mux, "/payments", "order-42", `{"order":"42","amount":4900}`)
	show(mux, "/payments", "order-42", `{"amount":4900,"order":"42"}`)
	show(mux, "/payments", "order-42", `{"order":"42","amount":9900}`)
	show(mux, "/payments", "order-43", `{"order":"43","amount":4900}`)
	// Output:
	// 201 payment 1
	// 201 (replayed) payment 1
	// 422 IDEMPOTENCY_KEY_REUSED
	// 201 payment 2
}

func ExampleGuard_Route() {
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(accountOf), semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// A quote may be computed again: a failure is not kept, nor is a result for long.
	quotes := guard.Route(semel.Policy{OnLost: semel.Rerun, Retention: time.Hour})
	attempts := 0
	h := quotes.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		io.WriteString(w, "a quote")
	}))
	for range 3 {
		show(h, "/quotes", "quote-1", `{}`)
	}
	// Output:
	// 500
	// 200 a quote
	// 200 (replayed) a quote
}

func ExampleDo() {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	type invoice struct{ Number int }
	invoices := 0
	bill := func(month string) (invoice, error) {
		key := semel.Key{Scope: "acme", Operation: "bill", Value: "invoice-2030-01"}
		return semel.Do(context.Background(), guard, key, semel.JSON(month), func(context.Context) (invoice, error) {
			invoices++
			return invoice{Number: invoices}, nil
		})
	}
	for _, month := range []string{"2030-01", "2030-01", "2030-02"} {
		inv, err := bill(month)
		fmt.Println(inv.Number, errors.Is(err, refusal.KeyReused))
	}
	// Output:
	// 1 false
	// 1 false
	// 0 true
}

func ExampleFinal() {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Rerun, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	answers := []error{errors.New("connection reset"), semel.Final(errors.New("card declined"))}
	for range 3 {
		_, err := semel.Do(context.Background(), guard, semel.Key{Scope: "acme", Operation: "charge", Value: "charge-7"}, semel.Bytes("charge 7"),
			func(context.Context) (string, error) {
				err := answers[0]
				answers = answers[1:]
				return "", err
			})
		fmt.Println(err)
	}
	// Output:
	// connection reset
	// card declined
	// card declined
}

// printer prints decisions.
type printer struct{}

func (printer) Observe(_ context.Context, e event.Event) {
	if e.Kind == event.Decision {
		fmt.Println(e.Operation, "->", e.Result)
	}
}

func ExampleObserver() {
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(accountOf), semel.Hold, semel.Options{Observer: printer{}})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})))
	show(mux, "/orders/7", "k", `{}`)
	show(mux, "/orders/7", "k", `{}`)
	show(mux, "/orders/8", "k", `{}`)
	// Output:
	// POST /orders/{id} -> executed
	// 204
	// POST /orders/{id} -> replayed
	// 204 (replayed)
	// POST /orders/{id} -> mismatch
	// 422 IDEMPOTENCY_KEY_REUSED
}
