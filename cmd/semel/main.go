// Command semel makes the requests of any HTTP service take effect once.
//
//	semel gateway   protect a service
//	semel keys      look at operations, and decide about those whose outcome is unknown
//	semel outbox    look at messages that are to be sent, and decide about dead letters
//	semel migrate   bring a store up to date
//	semel demo      see what that means, on this machine
package main

import (
	"os"

	"github.com/semelhq/semel/internal/command"
)

func main() {
	ctx := command.UntilSignal()
	m := Main{Stdout: os.Stdout, Stderr: os.Stderr}
	if self, err := os.Executable(); err == nil { // else the scenes that need it are left out
		m.Demo.Self = self
	}
	os.Exit(m.Run(ctx, os.Args[1:]))
}
