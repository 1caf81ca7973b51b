package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/cmd/internal/demo"
	"github.com/semelhq/semel/cmd/internal/gateway"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/command"
)

// Main is the program, as tests can start it.
type Main struct {
	Stdout, Stderr io.Writer
	// Stdin is read where a file is named "-". Defaults to os.Stdin.
	Stdin io.Reader
	// Confirm asks whoever runs the program a question, to be answered with yes or no. Defaults to asking at the terminal,
	// if Stdin and Stderr are one; else it is an errNoTerminal.
	Confirm func(ctx context.Context, question string) (yes bool, err error)
	// Demo is what the demo's flags are put into.
	Demo demo.Config
}

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked for could not be done
	exitUsage  = 2 // it was asked for in a way that makes no sense
)

type commandLine struct {
	Version kong.VersionFlag `help:"Print the version and exit."`
	Gateway gatewayCommand   `cmd:"" help:"Protect an HTTP service: a reverse proxy that runs each keyed request once."`
	Demo    demoCommand      `cmd:"" help:"Show what semel does: a payment service and the gateway, on this machine."`
	Keys    keysCommand      `cmd:"" help:"Look at operations, and decide about those whose outcome is unknown."`
	Outbox  outboxCommand    `cmd:"" help:"Look at the messages of an outbox, send dead letters again, and find commits without a message."`
	Migrate migrateCommand   `cmd:"" help:"Bring a store's schema to the version that this program needs."`
}

// usageError is an error in what was asked for.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exited is thrown by the parser when --help or --version has been answered.
type exited int

// Run runs the command line and returns the exit status. It ends when ctx does.
func (m *Main) Run(ctx context.Context, args []string) (status int) {
	defer func() {
		thrown := recover()
		if code, ok := thrown.(exited); ok {
			status = int(code)
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	var line commandLine
	parser := kong.Must(&line,
		kong.Name("semel"),
		kong.Description("An operation takes effect once, however often it is asked for."),
		kong.Writers(m.Stdout, m.Stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.Vars{"version": command.Version("semel")},
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
	)
	parsed, err := parser.Parse(dashedLast(args))
	if err != nil {
		return m.fail(usageError{err}, selected(err))
	}
	name := parsed.Selected().Path()
	switch name {
	case "gateway":
		err = m.gateway(ctx, &line.Gateway)
	case "demo":
		err = m.demo(ctx, &line.Demo)
	case "migrate":
		err = m.migrate(ctx, &line.Migrate)
	default:
		if strings.HasPrefix(name, "outbox ") {
			err = m.outbox(ctx, name, &line.Outbox)
		} else {
			err = m.keys(ctx, name, &line.Keys)
		}
	}
	if err != nil {
		return m.fail(err, name)
	}
	return exitOK
}

// duration reads a time as the gateway's file does, in days and weeks too.
func duration(c *kong.DecodeContext, to reflect.Value) error {
	var s string
	if err := c.Scan.PopValueInto("duration", &s); err != nil {
		return err
	}
	d, err := gateway.ParseDuration(s)
	if err != nil {
		return err
	}
	to.SetInt(int64(d))
	return nil
}

// dashedLast puts operations' ids that begin with a dash behind "--", where they are not taken for flags.
func dashedLast(args []string) []string {
	var front, ids []string
	for i, arg := range args {
		if arg == "--" {
			ids = append(ids, args[i+1:]...)
			break
		}
		if _, err := driver.ParseID(arg); err == nil && arg[0] == '-' {
			ids = append(ids, arg)
		} else {
			front = append(front, arg)
		}
	}
	return append(append(front, "--"), ids...)
}

// selected returns the command that a failed command line was about, or "".
func selected(err error) string {
	var failed *kong.ParseError
	if !errors.As(err, &failed) || failed.Context == nil || failed.Context.Selected() == nil {
		return ""
	}
	return failed.Context.Selected().Path()
}

func (m *Main) fail(err error, command string) int {
	program := "semel"
	if command != "" {
		program += " " + command
	}
	fmt.Fprintf(m.Stderr, "%s: %v\n", program, err)
	if errors.As(err, new(usageError)) {
		fmt.Fprintf(m.Stderr, "Run \"%s --help\" to see what can be asked for.\n", program)
		return exitUsage
	}
	return exitFailed
}
