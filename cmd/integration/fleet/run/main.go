// Command run puts load on two gateways that share a store, kills one of them, and counts effects; or it floods a
// gateway.
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

	"github.com/semelhq/semel/cmd/integration/fleet"
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
	Rate     int           `placeholder:"N" help:"Requests a second, repeats included (default 50); with --flood hang-ups and keys a second (default: as many as 64 connections allow)."`
	Duration time.Duration `default:"30s" placeholder:"TIME" help:"How long, slow peers included (default ${default})."`
	Repeats  int           `default:"30" placeholder:"PERCENT" help:"How many of the requests are repeats (default ${default})."`
	Seed     uint64        `placeholder:"N" help:"Decides which requests are repeats (default: random, and printed)."`

	Flood   []string `enum:"hangups,keys,bodies,readers,all" placeholder:"KIND" help:"Instead, let one principal attack, and watch what another one gets: hangups, keys, bodies, readers, or all of these at once; several kinds, with commas, one after the other."`
	Hangups int      `default:"20000" placeholder:"N" help:"Claims that are given up (default ${default})."`
	Keys    int      `default:"100000" placeholder:"N" help:"Keys that are used once (default ${default})."`
	Peers   int      `default:"300" placeholder:"N" help:"Connections with slow bodies, and with readers that don't read (default ${default})."`
	JSON    string   `name:"json" type:"path" placeholder:"FILE" help:"Write the reports of the floods to a file, too."`
}

const defaultRate = 50

func (*commandLine) Help() string {
	return `Both gateways are processes; one is killed with SIGKILL in the middle and started again. The service behind them counts its ` +
		`effects. Exits with 1 if one has happened twice, if an answer was not true, or if less than 99.9 % of the requests ` +
		`were answered after retries.

With --flood there is one gateway, made anew for each kind; for hangups also on a route that fails open. Exits with 1 if a request of the other ` +
		`principal was refused or ran unprotected, or an effect happened twice. What its requests took, and the gateway's memory, are printed, not judged.

Examples:

    run --store tiered --rate 1000 --duration 30s
    run --store all --flood hangups --rate 2500
    run --store sqlite --flood keys --keys 1000000
    run --store redis --flood bodies,readers,all --peers 300 --duration 90s --json floods.json`
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
	if err == nil && (line.Rate < 0 || line.Duration <= 0 || line.Repeats < 0 || line.Repeats > 99 || line.Hangups < 1 || line.Keys < 1 || line.Peers < 1) {
		err = errors.New("--rate, --duration, --hangups, --keys and --peers must be above zero, --repeats from 0 to 99")
	}
	if err != nil {
		fmt.Fprintf(stderr, "run: %v\nRun \"run --help\" to see what can be asked for.\n", err)
		return exitUsage
	}
	kinds := []string{line.Store}
	if line.Store == "all" {
		kinds = fleet.Stores()
	}
	if len(line.Flood) > 0 {
		if err := floods(ctx, kinds, &line, stdout); err != nil {
			fmt.Fprintf(stderr, "run: %v\n", err)
			return exitFailed
		}
		return exitOK
	}
	if line.Rate == 0 {
		line.Rate = defaultRate
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
