// Command semel makes the requests of any HTTP service take effect once.
//
//	semel gateway   protect a service
//	semel keys      look at operations, and decide about those whose outcome is unknown
//	semel verify    prove from outside whether the idempotency of any HTTP API holds
//	semel migrate   bring a store up to date
//	semel demo      see what that means, on this machine
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The first signal asks to end in order; after it signals do what they do by default, so that a second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	m := Main{Stdout: os.Stdout, Stderr: os.Stderr}
	if self, err := os.Executable(); err == nil { // else the scenes that need it are left out
		m.Demo.Self = self
	}
	os.Exit(m.Run(ctx, os.Args[1:]))
}
