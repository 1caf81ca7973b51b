// Command shop is the reference system of semel: an order, payment and pricing service that is correct under repeats.
//
//	shop demo     show what happens to shops, and what becomes of it here
//	shop serve    serve the API, the checkout page and a simulated card processor
//	shop token    print a token for the API
//	shop openapi  print the description of the API
//	shop exercise list the exercises of docs/patterns.md, or mark one
package main

import (
	"os"

	"github.com/semelhq/semel/internal/command"
)

func main() {
	m := program{Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(m.run(command.UntilSignal(), os.Args[1:]))
}
