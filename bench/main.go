// Command bench measures semel beside the least that the same work must cost, in one run, and prints one table. Nothing
// here asserts a time: shared machines are noisy, so what counts are ratios, as medians of interleaved rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
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
	m := &meter{rounds: *rounds, span: *span}
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
	if err := run(ctx, m, suites, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A row is one line of the table.
type row struct {
	name, what, semel, floor, ratio, reach string
}

// A suite measures some rows.
type suite struct {
	name string
	run  func(context.Context, *meter) ([]row, error)
}

func run(ctx context.Context, m *meter, suites []suite, only string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	fmt.Printf("%s, %s/%s, %d cores, %s; medians of %d interleaved rounds\n\n", host, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), m.rounds)
	var rows []row
	for _, s := range suites {
		if !strings.Contains(s.name, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", s.name)
		r, err := s.run(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, r...)
	}
	printTable(rows)
	return nil
}

func printTable(rows []row) {
	head := row{"#", "work", "semel", "floor", "ratio", "to reach"}
	cells := func(r row) []string { return []string{r.name, r.what, r.semel, r.floor, r.ratio, r.reach} }
	widths := make([]int, len(cells(head)))
	for _, r := range append([]row{head}, rows...) {
		for i, c := range cells(r) {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	line := func(r row) {
		for i, c := range cells(r) {
			fmt.Print("| ", c, strings.Repeat(" ", widths[i]-len([]rune(c))+1))
		}
		fmt.Println("|")
	}
	line(head)
	for _, w := range widths {
		fmt.Print("| ", strings.Repeat("-", w), " ")
	}
	fmt.Println("|")
	for _, r := range rows {
		line(r)
	}
}
