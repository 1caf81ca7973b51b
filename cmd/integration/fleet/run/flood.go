package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/cmd/integration/fleet"
)

const (
	aloneAtLeast = 5 * time.Second
	mebibyte     = 1 << 20
)

// floods makes the floods of a command line, and goes on after one of which something was wrong.
func floods(ctx context.Context, kinds []string, line *commandLine, stdout io.Writer) error {
	var errs []error
	var reports []*fleet.FloodReport
	for _, kind := range kinds {
		for _, attack := range line.Flood {
			for _, open := range []bool{false, true}[:1+strings.Count(attack, "hangups")] {
				f := fleet.Flood{
					Attack: attack, Store: kind, Hangups: line.Hangups, Keys: line.Keys, Peers: line.Peers, Rate: line.Rate,
					Alone: aloneAtLeast, Duration: line.Duration, FailOpen: open,
				}
				r, err := flood(ctx, f, stdout)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s, %s: %w", kind, attack, err))
				}
				if r != nil {
					reports = append(reports, r)
				}
			}
		}
	}
	if line.JSON != "" {
		text, err := json.MarshalIndent(reports, "", "  ")
		if err == nil {
			err = os.WriteFile(line.JSON, append(text, '\n'), 0o600)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write the reports: %w", err))
		}
	}
	return errors.Join(errs...)
}

func flood(ctx context.Context, f fleet.Flood, stdout io.Writer) (*fleet.FloodReport, error) {
	dir, err := os.MkdirTemp("", "flood-*")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	f.Dir = dir
	r, err := f.Run(ctx)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(stdout, "%s, %s, fail_open %t, %v: memory %d MiB before, %d at most, %d in the end; %d files open at most; %d MiB on disk; "+
		"of another principal %d kinds of refusals, %d unprotected; %d duplicates in all\n",
		r.Store, r.Attack, r.FailOpen, r.Took.Round(time.Second/10), r.MemoryBefore/mebibyte, r.MemoryPeak/mebibyte, r.MemoryAfter/mebibyte, r.OpenFiles,
		r.Disk/mebibyte, len(r.Refused), r.Bypassed, r.Duplicates)
	say := func(what string, l fleet.Latency) {
		if l.Requests > 0 {
			fmt.Fprintf(stdout, "  %-27s %6d requests, p50 %v, p99 %v (%.2fx), at most %v\n", what, l.Requests, l.P50.Round(10*time.Microsecond),
				l.P99.Round(10*time.Microsecond), float64(l.P99)/float64(max(1, r.Alone.P99)), l.Max.Round(10*time.Microsecond))
		}
	}
	say("another one, alone", r.Alone)
	say("while the first one waits", r.Served)
	say("during the attack", r.During)
	for _, what := range slices.Sorted(maps.Keys(r.Outcomes)) {
		fmt.Fprintf(stdout, "  the attacker's %-46s %d\n", what, r.Outcomes[what])
	}
	return r, r.Err()
}
