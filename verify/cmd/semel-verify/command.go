package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/internal/command"
	"github.com/semelhq/semel/verify"
)

// A program is the command, as tests can start it.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // the target does not keep its promises, or can't be asked
	exitUsage  = 2 // it was asked for in a way that makes no sense
)

// usageError is an error in what was asked for.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run runs the command line and returns the exit status. It ends when ctx does.
func (p *program) run(ctx context.Context, args []string) int {
	var line commandLine
	answered := -1 // the status with which --help or --version ends
	parser := kong.Must(&line,
		kong.Name("semel-verify"),
		kong.Description("Prove from outside whether the idempotency of any HTTP API holds."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(status int) { answered = status }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}),
		kong.Vars{"version": command.Version("semel-verify")},
	)
	_, err := parser.Parse(args)
	switch {
	case answered >= 0:
		return answered
	case err != nil:
		err = usageError{err}
	default:
		err = p.verify(ctx, &line)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(p.stderr, "semel-verify: %v\n", err)
	if !errors.As(err, new(usageError)) {
		return exitFailed
	}
	fmt.Fprintln(p.stderr, `Run "semel-verify --help" to see what can be asked for.`)
	return exitUsage
}

// errViolated is what a run ends with that found something.
var errViolated = errors.New("the target does not keep its promises")

// verify asks for what the command line says, and prints what came of it.
func (p *program) verify(ctx context.Context, c *commandLine) error {
	if c.List {
		return verify.List(p.stdout)
	}
	s, err := p.scenario(c)
	if err != nil {
		return usageError{err}
	}
	out := p.stdout
	if c.JSON == "-" {
		out = io.Discard
	}
	watch := verify.NewProgress(p.stderr, command.Colored(p.stderr))
	report, err := verify.Run(ctx, s, verify.Options{
		Only: c.Only, Skip: c.Skip, Watch: watch,
		Load: verify.LoadOptions{
			Rate: c.Rate, Duration: time.Duration(c.Duration), Faults: float64(c.Faults), Seed: c.Seed,
		},
		Gates: verify.Gates{MinSuccess: float64(c.MinSuccess), MaxP99: time.Duration(c.MaxP99), MaxDuplicates: c.MaxDuplicates},
	})
	if errors.As(err, new(verify.UsageError)) {
		return usageError{err}
	}
	if report == nil {
		return err
	}
	report.Print(out, command.Colored(p.stdout))
	for _, output := range []struct {
		file  string
		write func(io.Writer) error
	}{{c.JSON, report.JSON}, {c.JUnit, report.JUnit}, {c.Report, report.HTML}, {c.Prometheus, report.Prometheus}} {
		if output.file != "" {
			err = errors.Join(err, p.write(output.file, output.write))
		}
	}
	if err == nil && report.Violated() {
		err = errViolated
	}
	return err
}

// write writes an output to a file, or to standard output for "-".
func (p *program) write(name string, to func(io.Writer) error) error {
	if name == "-" {
		return to(p.stdout)
	}
	f, err := os.Create(name) //nolint:gosec // the user has named it
	if err != nil {
		return err
	}
	if err := errors.Join(to(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
