// Command run kills processes that semel protects, at named and random points, hurts the servers of their stores, and counts
// effects.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/cmd/internal/chaos"
)

func main() {
	chaos.Act()
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

type commandLine struct {
	For        time.Duration `default:"1m" placeholder:"TIME" help:"How long to kill, all stores and modes together (default ${default})."`
	Operations int           `default:"0" placeholder:"N" help:"How many operations at most, with each store in each mode; 0 is no bound (default ${default})."`
	Store      string        `default:"all" enum:"all,sqlite,postgres,redis,tiered" placeholder:"STORE" help:"What keeps the records: sqlite, postgres, redis, tiered (PostgreSQL behind Redis), or all (default ${default})."`
	Mode       string        `default:"all" enum:"all,rerun,hold,tx,one-commit" placeholder:"MODE" help:"What protects the effects: rerun or hold (the gateway), tx or one-commit (the library), or all that the store has (default ${default})."`
	Seed       uint64        `placeholder:"N" help:"Decides what is asked for, who is killed when, and what happens to servers (default: random, and printed)."`
	Clients    int           `default:"32" placeholder:"N" help:"How many clients ask at once (default ${default})."`
	Fronts     int           `default:"2" placeholder:"N" help:"How many processes share the store (default ${default})."`
}

func (*commandLine) Help() string {
	return `Processes are killed with SIGKILL and started again on the same files, while clients ask and ask again. ` +
		`Servers of stores are started for the run; they are killed, paused and cut off. Then all is healed, and every operation is asked for once more, and the effects are counted. Exits with 1 if a promise was broken, ` +
		`after printing what happened to each such key; the files of the run are kept then.

Examples:

  Ten minutes, all stores and modes:

    run --for 10m

  What a seed has found, again:

    run --store postgres --mode hold --seed 17 --for 30s

  A hundred thousand operations in one mode:

    run --store sqlite --mode tx --operations 100000 --for 10m`
}

// exited is thrown by the parser when --help has been answered.
type exited int

// A program is the command, as tests can start it.
type program struct {
	stdout, stderr io.Writer
	run            func(context.Context, chaos.Config) (*chaos.Report, error)
}

// main returns the exit status.
func (p *program) main(ctx context.Context, args []string) (status int) {
	defer func() {
		thrown := recover()
		if code, ok := thrown.(exited); ok {
			status = int(code)
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	var line commandLine
	parser := kong.Must(&line, kong.Name("run"), kong.Description("Kill, restart, and count effects."),
		kong.Writers(p.stdout, p.stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}))
	_, err := parser.Parse(args)
	if err == nil && len(line.courses()) == 0 {
		err = fmt.Errorf("--mode %s does not exist with --store %s", line.Mode, line.Store)
	}
	if err == nil && (line.For <= 0 || line.Operations < 0 || line.Clients < 1 || line.Fronts < 1) {
		err = errors.New("--for, --clients and --fronts must be above zero, --operations not below")
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "run: %v\nRun \"run --help\" to see what can be asked for.\n", err)
		return exitUsage
	}
	if line.Seed == 0 {
		line.Seed = rand.Uint64()
	}
	fmt.Fprintf(p.stdout, "seed %d\n", line.Seed)
	if err := p.play(ctx, &line); err != nil {
		fmt.Fprintf(p.stderr, "run: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// shown is how many violations of a mode are printed. What is wrong once is mostly wrong a thousand times.
const shown = 10

// A course is what one run is about.
type course struct {
	storage chaos.Storage
	mode    chaos.Mode
}

func (c course) String() string { return string(c.storage) + " " + string(c.mode) }

// courses returns those that were asked for.
func (line *commandLine) courses() (all []course) {
	for _, s := range chaos.Storages() {
		for _, m := range s.Modes() {
			if (line.Store == "all" || line.Store == string(s)) && (line.Mode == "all" || line.Mode == string(m)) {
				all = append(all, course{s, m})
			}
		}
	}
	return all
}

// play plays the courses that were asked for, and prints what came of them.
func (p *program) play(ctx context.Context, line *commandLine) (err error) {
	courses := line.courses()
	dir, err := os.MkdirTemp("", "chaos-*")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w\nfiles are kept in %s", err, dir)
		}
	}()
	var reports []*chaos.Report
	broken := 0
	for _, at := range courses {
		c := chaos.Config{
			Storage: at.storage, Mode: at.mode, Seed: line.Seed, For: line.For / time.Duration(len(courses)),
			Operations: line.Operations, Clients: line.Clients, Fronts: line.Fronts,
			Dir: filepath.Join(dir, string(at.storage)+"-"+string(at.mode)),
		}
		if err := os.Mkdir(c.Dir, 0o700); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		r, err := p.run(ctx, c)
		if err != nil {
			return fmt.Errorf("%v: %w", at, err)
		}
		fmt.Fprintf(p.stdout, "%v: %d operations, %d violations\n", at, r.Operations, len(r.Violations))
		reports = append(reports, r)
		broken += len(r.Violations)
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Fprintf(p.stdout, "\n%s", chaos.Tables(reports))
	for _, r := range reports {
		at := course{r.Storage, r.Mode}
		for i, v := range r.Violations {
			if i == shown {
				fmt.Fprintf(p.stdout, "\n%v: and %d more\n", at, len(r.Violations)-i)
				break
			}
			fmt.Fprintf(p.stdout, "\n%v: %v\n", at, v)
		}
		if len(r.Missed) > 0 || len(r.MissedFaults) > 0 {
			fmt.Fprintf(p.stdout, "\n%v: the run was too short for %v %v\n", at, r.Missed, r.MissedFaults)
		}
	}
	if broken > 0 {
		return fmt.Errorf("%d promises were broken", broken)
	}
	return nil
}
