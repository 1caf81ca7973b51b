// Command run puts load on two gateways that share a store, kills one of them, and counts effects.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/cmd/internal/fleet"
)

func main() {
	fleet.Act()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // a promise was broken, or the load could not be put on
	exitUsage  = 2
)

type commandLine struct {
	Store    string        `default:"postgres" enum:"sqlite,postgres,redis,tiered,all" placeholder:"STORE" help:"What the gateways share: sqlite, postgres, redis, tiered (PostgreSQL behind Redis) or all (default ${default})."`
	Rate     int           `default:"50" placeholder:"N" help:"Requests a second, repeats included (default ${default})."`
	Duration time.Duration `default:"30s" placeholder:"TIME" help:"How long (default ${default})."`
	Repeats  int           `default:"30" placeholder:"PERCENT" help:"How many of the requests are repeats (default ${default})."`
	Flood    int           `placeholder:"N" help:"Instead, let one principal hang up in this many claims, at --rate a second, and watch what another one gets."`
	Seed     uint64        `placeholder:"N" help:"Decides which requests are repeats (default: random, and printed)."`
}

func (*commandLine) Help() string {
	return `Both gateways are processes; one is killed with SIGKILL in the middle and started again. The service behind them counts its ` +
		`effects. Exits with 1 if one has happened twice, if an answer was not true, or if less than 99.9 % of the requests ` +
		`were answered after retries.

With --flood there is one gateway, and it is flooded twice: also on a route that fails open. Exits with 1 if a request of the other ` +
		`principal was refused or ran unprotected, or an effect happened twice. How long its requests took is printed, not judged.

Examples:

    run --store tiered --rate 1000 --duration 30s
    run --store all --flood 20000 --rate 2500`
}

// exited is thrown by the parser when --help has been answered.
type exited int

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	defer func() {
		thrown := recover()
		if code, ok := thrown.(exited); ok {
			status = int(code)
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	var line commandLine
	parser := kong.Must(&line, kong.Name("run"), kong.Description("Put load on two gateways, kill one, and count effects."),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}))
	_, err := parser.Parse(args)
	if err == nil && (line.Rate < 1 || line.Duration <= 0 || line.Repeats < 0 || line.Repeats > 99 || line.Flood < 0) {
		err = errors.New("--rate and --duration must be above zero, --repeats from 0 to 99, --flood not below zero")
	}
	if err != nil {
		fmt.Fprintf(stderr, "run: %v\nRun \"run --help\" to see what can be asked for.\n", err)
		return exitUsage
	}
	kinds := []string{line.Store}
	if line.Store == "all" {
		kinds = fleet.Stores()
	}
	if line.Flood > 0 {
		for _, kind := range kinds {
			for _, open := range []bool{false, true} {
				if err := flood(ctx, kind, open, &line, stdout); err != nil {
					fmt.Fprintf(stderr, "run: %s: %v\n", kind, err)
					status = exitFailed
				}
			}
		}
		return status
	}
	if line.Seed == 0 {
		line.Seed = rand.Uint64()
	}
	fmt.Fprintf(stdout, "seed %d, %d requests/s for %v, %d %% repeats\n", line.Seed, line.Rate, line.Duration, line.Repeats)
	for _, kind := range kinds {
		if err := stress(ctx, kind, &line, stdout); err != nil {
			fmt.Fprintf(stderr, "run: %s: %v\n", kind, err)
			status = exitFailed
		}
	}
	return status
}

func flood(ctx context.Context, kind string, failOpen bool, line *commandLine, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "flood-*")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	r, err := fleet.Flood{Store: kind, Claims: line.Flood, Rate: line.Rate, FailOpen: failOpen, Dir: dir}.Run(ctx)
	if err != nil {
		return err
	}
	say := func(what string, l fleet.Latency) {
		fmt.Fprintf(stdout, "  %-28s %5d requests, p50 %v, p99 %v (%.2fx)\n", what, l.Requests, l.P50.Round(10*time.Microsecond),
			l.P99.Round(10*time.Microsecond), float64(l.P99)/float64(max(1, r.Alone.P99)))
	}
	fmt.Fprintf(stdout, "%s, fail_open %t: %d claims given up; another principal, with %d kinds of refusals, %d unprotected, %d duplicates in all:\n",
		kind, failOpen, r.Claims-r.Unconnected, len(r.Refused), r.Bypassed, r.Duplicates)
	say("alone", r.Alone)
	say("while the first one waits", r.Served)
	say("while it hangs up", r.During)
	return r.Err()
}

func stress(ctx context.Context, kind string, line *commandLine, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "stress-*")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	r, err := fleet.Stress{
		Store: kind, Rate: line.Rate, Duration: line.Duration, Repeats: line.Repeats, Seed: line.Seed, Patience: 30 * time.Second, Dir: dir,
	}.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%-8s  %d operations, %d requests, %d succeeded (%.2f %%), %d retries, %d replays, %d killed; p50 %v, p99 %v; "+
		"%d duplicates, %d untrue\n", kind, r.Operations, r.Requests, r.Succeeded, 100*float64(r.Succeeded)/float64(max(1, r.Requests)),
		r.Retries, r.Replayed, r.Kills, r.P50.Round(100*time.Microsecond), r.P99.Round(100*time.Microsecond), r.Duplicates, r.Untrue)
	var ends []string
	for end, n := range r.Failures {
		ends = append(ends, fmt.Sprintf("%d × %s", n, end))
	}
	slices.Sort(ends)
	if len(ends) > 0 {
		fmt.Fprintf(stdout, "%-8s  not answered: %s\n", "", strings.Join(ends, ", "))
	}
	return r.Err()
}
