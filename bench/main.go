// Command bench measures semel beside the least that the same work must cost, in one run, and prints one table. Nothing
// here asserts a time: shared machines are noisy, so what counts are ratios, as medians of interleaved rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 7, "interleaved rounds; the median counts")
	span := flag.Duration("span", 300*time.Millisecond, "time for each measurement in a round")
	only := flag.String("only", "", "measure only rows whose name contains this")
	big := flag.Bool("large", false, "measure what needs millions of records, instead")
	records := flag.Int("records", 10_000_000, "with -large: records in the store that has grown")
	expired := flag.Int("expired", 1_000_000, "with -large: records to sweep")
	cost := flag.Bool("cost", false, "measure what an operation costs in CPU time and bytes, instead (Linux)")
	results := flag.String("results", "", "write the table into this `file`, and a picture beside it; not of a part")
	serve := flag.String("serve", "", "internal: serve as `upstream` or proxy:URL on the address that is printed")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "Usage: go run ./bench [flags]\n\nMeasures semel beside its floors and prints one table.\n\nExample:\n  go run ./bench -only P-1 -rounds 11\n\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: unexpected argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *serve != "" {
		if err := serveChild(ctx, *serve); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if *cost {
		if err := costs(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	suites := []suite{
		{"P-1 first execution", firstExecution},
		{"P-2 replay", replays},
		{"P-3 memory store", memoryStore},
		{"P-4 Redis", redisFirst},
		{"P-5 Redis", redisReplay},
		{"P-6 Redis", redisMiddleware},
		{"P-20 Redis", redisLook},
		{"P-7 SQLite", sqliteStore},
		{"P-17 SQLite", bulkImport},
		{"saga", sagas},
		{"P-8 PostgreSQL", postgresOneCommit},
		{"P-8a PostgreSQL", postgresLeased},
		{"P-9 PostgreSQL", postgresJoined},
		{"P-10 PostgreSQL", postgresReplay},
		{"P-15 outbox", outboxRelay},
		{"P-16 PostgreSQL", postgresInbox},
		{"P-19 peers, memory", memoryPeers},
		{"P-19 peers, Redis", redisPeers},
		{"P-19 peers, PostgreSQL", postgresPeers},
		{"P-11 P-12 gateway, memory", gatewayOn("memory://")},
		{"P-11 P-12 gateway, SQLite", gatewayOn("sqlite://")},
	}
	if *big {
		l := large{*records, *expired}
		suites = []suite{
			{"P-13 growth, SQLite", l.sqliteGrowth},
			{"P-14 sweep, SQLite", l.sqliteSweeping},
			{"P-13 growth, PostgreSQL", l.postgresGrowth},
			{"P-14 sweep, PostgreSQL", l.postgresSweeping},
		}
	}
	if *results != "" && (*only != "" || *big) {
		fmt.Fprintln(os.Stderr, "bench: -results is left alone: it is of a whole run without -large")
		*results = ""
	}
	r := report{at: time.Now().UTC(), machine: machine(), rounds: *rounds}
	if err := r.measure(ctx, *span, suites, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Printf("%s\n\n%s", r.headline(), r.table())
	if *results != "" {
		if err := r.write(*results); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
}

// A suite measures some rows.
type suite struct {
	name string
	run  func(context.Context, *meter) ([]row, error)
}
