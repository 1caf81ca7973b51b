package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/cmd/integration/chaos"
)

type commandLine struct {
	For        time.Duration  `default:"1m" placeholder:"TIME" help:"How long to kill, all stores and modes and rounds together (default ${default})."`
	Round      *time.Duration `placeholder:"TIME" help:"Play rounds of so long, each with a seed of its own, until --for is over or a promise is broken (default: one round)."`
	Operations int            `default:"0" placeholder:"N" help:"How many operations at most, with each store in each mode; 0 is no bound (default ${default})."`
	Store      string         `default:"all" enum:"all,sqlite,postgres,redis,tiered,sharded" placeholder:"STORE" help:"What keeps the records: sqlite, postgres, redis, tiered (PostgreSQL behind Redis), sharded (four PostgreSQL), or all (default ${default})."`
	Mode       string         `default:"all" enum:"all,rerun,hold,tx,one-commit" placeholder:"MODE" help:"What protects the effects: rerun or hold (the gateway), tx or one-commit (the library), or all that the store has (default ${default})."`
	Seed       *uint64        `placeholder:"N" help:"Decides what is asked for, who is killed when, and what happens to servers and disks (default: random, and printed)."`
	Clients    int            `default:"32" placeholder:"N" help:"How many clients ask at once (default ${default})."`
	Fronts     int            `default:"2" placeholder:"N" help:"How many processes share the store (default ${default})."`
}

func (*commandLine) Help() string {
	return `Processes are killed with SIGKILL and started again on the same files, while clients ask and ask again. ` +
		`Servers of stores are started for the run; they are killed, paused and cut off. The disk of the SQLite file, which the run mounts in ` +
		`memory, is full now and then; where nothing may be mounted, neither as root nor in a user namespace, that is left out, and said. ` +
		`Then all is healed, and every operation is asked for once more, and the effects are counted. Exits with 1 if a promise was broken, ` +
		`after printing what happened to each such key, the command that plays the same again, and the line that keeps the seed as a ` +
		`test; the files of the run are kept then. Exits with 2 if it does not understand what is asked for.

The same seed, store, mode, --clients and --fronts give the same operations, in the same order, the same kills, once each ` +
		`point was visited, and the same faults. What meets what is up to the machine: what a seed has found, it may find only now and then.

Examples:

  Ten minutes, all stores and modes:

    run --for 10m

  What a seed has found, again:

    run --store postgres --mode hold --seed 17 --for 30s

  One minute of kills and full disks:

    run --store sqlite --for 1m

  A hundred thousand operations in one mode:

    run --store sqlite --mode tx --operations 100000 --for 10m

  A night, in rounds of twenty minutes with new seeds, up to the first broken promise:

    run --for 8h --round 20m`
}

// parse reads the command line. If that asks for help there is no line, but a status.
func (p *program) parse(args []string) (line *commandLine, status int, err error) {
	defer func() {
		thrown := recover()
		if code, ok := thrown.(exited); ok {
			line, status, err = nil, int(code), nil
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	line = &commandLine{}
	parser := kong.Must(line, kong.Name("run"), kong.Description("Kill, restart, and count effects."),
		kong.Writers(p.stdout, p.stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}))
	if _, err := parser.Parse(args); err != nil {
		return nil, exitUsage, err
	}
	if err := line.check(); err != nil {
		return nil, exitUsage, err
	}
	return line, exitOK, nil
}

// exited is thrown by the parser when --help has been answered.
type exited int

func (line *commandLine) check() error {
	switch courses := len(line.courses()); {
	case courses == 0:
		return fmt.Errorf("--mode %s does not exist with --store %s", line.Mode, line.Store)
	case line.For <= 0 || line.Operations < 0 || line.Clients < 1 || line.Fronts < 1:
		return errors.New("--for, --clients and --fronts must be above zero, --operations not below")
	case line.Round != nil && line.Seed != nil:
		return errors.New("--seed is that of one round, and --round plays many, each with a new one")
	case line.Round != nil && *line.Round <= 0:
		return errors.New("--round must be above zero")
	}
	return nil
}

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
