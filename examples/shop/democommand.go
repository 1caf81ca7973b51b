package main

import (
	"context"
	"io"
	"os"

	"github.com/semelhq/semel/examples/shop/demo"
	"github.com/semelhq/semel/examples/shop/demo/naive"
	"github.com/semelhq/semel/internal/command"
)

type demoCommand struct {
	Once   bool   `help:"Play the scenes and end. The exit status is 1 if what a scene claims is false."`
	Data   string `placeholder:"FOLDER" help:"Folder to keep the data in. Defaults to a temporary one."`
	Listen string `placeholder:"ADDRESS" help:"Address to serve at; the second instance has the port after it. Defaults to localhost:8080 if that is free."`

	Compare bool   `help:"Instead, play the same faults without and with semel, side by side."`
	Seed    uint64 `default:"7" help:"Of the choice what is hit by a fault."`
	SVG     string `name:"svg" placeholder:"FILE" help:"Write the comparison as a picture, too."`
}

func (c *demoCommand) Run(ctx context.Context, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if c.Compare {
		return demo.Comparison{Seed: c.Seed, SVG: c.SVG, Out: out, Color: command.Colored(out), Self: self}.Run(ctx)
	}
	return demo.Config{Once: c.Once, Data: c.Data, Listen: c.Listen, Out: out, Color: command.Colored(out), Self: self}.Run(ctx)
}

// naiveCommand serves the shop of package naive, for the comparison.
type naiveCommand struct {
	Database  string
	Processor string
	NATS      string
	Crash     bool
}

func (c *naiveCommand) Run(ctx context.Context, out io.Writer) error {
	o := naive.Options{Database: c.Database, Processor: c.Processor}
	if c.Crash {
		o.Crash = die
	}
	return naive.Serve(ctx, c.NATS, o, out)
}
