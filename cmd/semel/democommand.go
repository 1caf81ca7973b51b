package main

import (
	"context"
	"os"
)

type demoCommand struct {
	Once   bool   `help:"Play the scenes and exit: 0 if every step came out right, else 1."`
	Listen string `placeholder:"HOST:PORT" help:"Address of the gateway (default: 127.0.0.1:8080 if it is free, else a free port; with --once a free port)."`
}

func (*demoCommand) Help() string {
	return `A small payment service and the gateway in front of it, both on this machine, and clients that do to them what happens ` +
		`in production: repeats, a hundred at once, lost answers, impatient proxies, an outage, kill -9 in the middle. Every scene is judged by the ` +
		`service's own ledger, a file with one line a charge. Afterwards it keeps serving, for your own curl, until Ctrl-C.

Examples:

    semel demo
    semel demo --once`
}

func (m *Main) demo(ctx context.Context, c *demoCommand) error {
	cfg := m.Demo
	cfg.Once, cfg.Listen, cfg.Out, cfg.Color = c.Once, c.Listen, m.Stdout, colored(m.Stdout)
	return cfg.Run(ctx)
}

// colored reports whether w is a terminal whose user has not asked for plain text (https://no-color.org).
func colored(w any) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
