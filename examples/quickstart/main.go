// A payment service that charges once, however often it is asked.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

// accountOf says who asks. Here it believes a header; let it return what your authentication has found out.
func accountOf(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

func pay(w http.ResponseWriter, _ *http.Request) {
	log.Print("charged") // the effect
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, `{"status":"captured"}`)
}

func main() {
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(accountOf), semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(guard.Run(context.Background())) }() // removes what is over
	http.Handle("POST /payments", guard.Wrap(http.HandlerFunc(pay)))
	log.Fatal(http.ListenAndServe("localhost:8000", nil))
}
