// Command semel-verify proves from outside whether the idempotency of an HTTP API holds. It has effects at the API: use
// one that is there for tests.
//
//	semel-verify --target http://127.0.0.1:8080/payments --body '{"order":"${uuid}","amount":100}'
//	semel-verify --scenario payments.yaml --rate 50 --duration 30s --faults 20% --report report.html
//
// It exits with 0 if nothing violates safety or the protocol and all bounds hold, 1 if something does, 2 for wrong use.
package main

import (
	"os"

	"github.com/semelhq/semel/internal/command"
)

func main() {
	p := program{os.Stdin, os.Stdout, os.Stderr}
	os.Exit(p.run(command.UntilSignal(), os.Args[1:]))
}
