// Command frameworks serves one payment service behind a guard, on net/http with chi, on echo, gin or fiber:
//
//	go run ./examples/frameworks -on gin
//	curl -i localhost:8081/payments -H 'X-Account: acme' -H 'Idempotency-Key: order-42' -d '{"amount":4900}'
//
// Its tests compare what each framework answers with and without a guard.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

// A service is the payment service on one framework. The framework's own middleware authenticates, and its scope tells
// the guard as whom.
type service struct {
	scope semel.Scope
	serve func(net.Listener, *semel.Guard, *ledger) error
}

var services = map[string]service{"chi": onChi, "echo": onEcho, "gin": onGin, "fiber": onFiber}

// A payment is what a client asks for.
type payment struct {
	Amount int `json:"amount"`
}

// A charge is what it gets.
type charge struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// A ledger counts charges.
type ledger struct{ charges atomic.Int64 }

var errNothing = errors.New("an amount above 0 is needed")

func (l *ledger) charge(p payment) (charge, error) {
	if p.Amount <= 0 {
		return charge{}, errNothing
	}
	return charge{ID: fmt.Sprintf("ch_%d", l.charges.Add(1)), Amount: p.Amount}, nil
}

func main() {
	on := flag.String("on", "chi", "chi, echo, gin or fiber")
	listen := flag.String("listen", "127.0.0.1:8081", "where to listen")
	flag.Parse()
	s, ok := services[*on]
	if !ok {
		log.Fatalf("no such framework: %s", *on)
	}
	guard, err := semel.New(memstore.New(), s.scope, semel.Hold, semel.Options{Operations: "/operations"})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(s.serve(l, guard, &ledger{}))
}

// serveHTTP serves h until l is closed.
func serveHTTP(l net.Listener, h http.Handler) error {
	return (&http.Server{Handler: h}).Serve(l)
}
