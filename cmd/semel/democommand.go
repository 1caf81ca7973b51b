package main

import (
	"context"
	"errors"

	"github.com/semelhq/semel/cmd/internal/broken"
	"github.com/semelhq/semel/cmd/internal/demo"
	"github.com/semelhq/semel/internal/command"
)

type demoCommand struct {
	Once   bool   `help:"Play the scenes and exit: 0 if every step came out right, else 1."`
	Listen string `placeholder:"HOST:PORT" help:"Address of the gateway (default: 127.0.0.1:8080 if it is free, else a free port; with --once a free port)."`
	Bug    string `placeholder:"NAME" help:"Play no scenes, but serve the payments behind a layer with this bug, for \"semel-verify\" to find. \"none\" is the layer without a bug; \"list\" prints the bugs."`
	Dir    string `placeholder:"FOLDER" help:"Where --bug keeps its ledger and its journal, over restarts (default: a folder that is removed at the end)."`
}

func (*demoCommand) Help() string {
	return `A small payment service and the gateway in front of it, both on this machine, and clients that do to them what happens ` +
		`in production: repeats, a hundred at once, lost answers, impatient proxies, an outage, kill -9 in the middle. Every scene is judged by the ` +
		`service's own ledger, a file with one line a charge. Afterwards it keeps serving, for your own curl, until Ctrl-C.

With --bug a small idempotency layer stands in the gateway's place. It is right but for one thing, and "semel-verify" finds out which.

Examples:

    semel demo
    semel demo --once
    semel demo --bug list
    semel demo --bug free-on-restart --dir demo-data`
}

func (m *Main) demo(ctx context.Context, c *demoCommand) error {
	switch {
	case c.Bug == "" && c.Dir != "":
		return usageError{errors.New("--dir is for --bug")}
	case c.Bug != "" && c.Once:
		return usageError{errors.New("--bug plays no scenes: --once says nothing there")}
	case c.Bug == "list":
		return demo.PrintBugs(m.Stdout)
	case c.Bug != "":
		if _, err := broken.Find(c.Bug); err != nil {
			return usageError{err}
		}
	}
	cfg := m.Demo
	cfg.Once, cfg.Listen, cfg.Out, cfg.Color = c.Once, c.Listen, m.Stdout, command.Colored(m.Stdout)
	cfg.Bug, cfg.Dir = c.Bug, c.Dir
	return cfg.Run(ctx)
}
