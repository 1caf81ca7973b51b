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
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx := untilSignal()
	m := Main{Stdout: os.Stdout, Stderr: os.Stderr}
	if self, err := os.Executable(); err == nil { // else the scenes that need it are left out
		m.Demo.Self = self
	}
	os.Exit(m.Run(ctx, os.Args[1:]))
}

// untilSignal returns a context that the first signal to end cancels, which asks to end in order. By then signals do what
// they do by default again, so that a second one ends the process at once.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		signal.Stop(signals)
		cancel(fmt.Errorf("%v signal received", first))
		select {
		case second := <-signals: // came before signals were given back
			if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(second) != nil {
				os.Exit(exitFailed)
			}
		default:
		}
	}()
	return ctx
}
