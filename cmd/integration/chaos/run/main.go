// Command run kills processes that semel protects, at named and random points, hurts the servers and fills the disks of
// their stores, and counts effects.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/semelhq/semel/cmd/integration/chaos"
)

func main() {
	chaos.Act()
	chaos.Apart()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	p := program{stdout: os.Stdout, stderr: os.Stderr, run: chaos.Run}
	os.Exit(p.main(ctx, os.Args[1:]))
}

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // a promise was broken, or the run could not be played
	exitUsage  = 2
)

// A program is the command, as tests can start it.
type program struct {
	stdout, stderr io.Writer
	run            func(context.Context, chaos.Config) (*chaos.Report, error)
}

// main returns the exit status.
func (p *program) main(ctx context.Context, args []string) int {
	line, status, err := p.parse(args)
	switch {
	case err != nil:
		fmt.Fprintf(p.stderr, "run: %v\nRun \"run --help\" to see what can be asked for.\n", err)
		return exitUsage
	case line == nil:
		return status
	}
	play := p.once
	if line.Round != nil {
		play = p.rounds
	}
	if err := play(ctx, line); err != nil {
		fmt.Fprintf(p.stderr, "run: %v\n", err)
		return exitFailed
	}
	return exitOK
}
