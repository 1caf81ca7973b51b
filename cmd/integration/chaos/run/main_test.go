package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/cmd/integration/chaos"
	"github.com/semelhq/semel/history"
)

func TestMain(m *testing.M) {
	chaos.Act()
	chaos.Apart()
	os.Exit(m.Run())
}

// called calls the command with a run that is played by play.
func called(t *testing.T, play func(context.Context, chaos.Config) (*chaos.Report, error), args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := program{stdout: &out, stderr: &errs, run: play}
	return p.main(t.Context(), args), out.String(), errs.String()
}

func TestARunPrintsItsTable(t *testing.T) {
	t.Parallel()
	var dir string
	status, out, errs := called(t, func(ctx context.Context, c chaos.Config) (*chaos.Report, error) {
		dir = c.Dir
		return chaos.Run(ctx, c)
	}, "--store", "sqlite", "--mode", "hold", "--for", "100ms", "--seed", "5", "--clients", "4", "--fronts", "1")
	if status != 0 || errs != "" {
		t.Errorf("status %d, %s", status, errs)
	}
	for _, want := range []string{"seed 5\n", "| violations ", "| … after-claim ", "| operations "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is left behind: %v", err)
	}
}

func TestAViolationIsPrintedAndItsFilesAreKept(t *testing.T) {
	t.Parallel()
	status, out, errs := called(t, func(_ context.Context, c chaos.Config) (*chaos.Report, error) {
		r := &chaos.Report{
			Storage: c.Storage, Mode: c.Mode, Missed: []chaos.Point{chaos.AfterClaim}, MissedFaults: []chaos.Fault{chaos.Slow},
		}
		if c.Storage == chaos.SQLite {
			r.LeftOut = map[chaos.Fault]string{chaos.DiskFull: "not permitted"}
		}
		if c.Storage == chaos.Tiered && c.Mode == chaos.Tx {
			r.Violations = []history.Violation{{Key: "k", What: "2 effects", Case: []string{"effect 1", "effect 2"}}}
		}
		return r, nil
	}, "--seed", "9", "--for", "1m", "--fronts", "3", "--operations", "500")
	if status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	for _, want := range []string{
		"tiered tx: key \"k\": 2 effects\n\teffect 1\n\teffect 2", "redis hold: the run was too short for [after-claim] [slow]",
		"\n    tiered tx 9 2 effects\n", "\nsqlite: disk-full was left out: not permitted\n",
	} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, out)
		}
	}
	same := chaos.Config{
		Storage: chaos.Tiered, Mode: chaos.Tx, Seed: 9, For: time.Minute / 15, Clients: 32, Fronts: 3, Operations: 500,
	}
	if got := playsAgain(t, out); !reflect.DeepEqual(got, []chaos.Config{same}) {
		t.Errorf("the command that plays it again plays %+v, want %+v", got, same)
	}
	kept := regexp.MustCompile(`files are kept in (\S+)`).FindStringSubmatch(errs)
	if kept == nil {
		t.Fatalf("it does not say where the files are: %s", errs)
	}
	if _, err := os.Stat(filepath.Join(kept[1], "tiered-tx")); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(kept[1]); err != nil {
		t.Error(err)
	}
}

// playsAgain calls the command that is printed, and returns what it plays.
func playsAgain(t *testing.T, printed string) (all []chaos.Config) {
	t.Helper()
	command := regexp.MustCompile(`go run ./cmd/integration/chaos/run (.*)`).FindStringSubmatch(printed)
	if command == nil {
		t.Fatalf("it does not say how to play it again: %s", printed)
	}
	status, _, errs := called(t, func(_ context.Context, c chaos.Config) (*chaos.Report, error) {
		c.Dir = ""
		all = append(all, c)
		return &chaos.Report{}, nil
	}, strings.Fields(command[1])...)
	if status != 0 {
		t.Errorf("%s: status %d, %s", command[0], status, errs)
	}
	return all
}

func TestARunThatCanNotBePlayedSaysHowToTryAgain(t *testing.T) {
	t.Parallel()
	status, out, errs := called(t, func(_ context.Context, c chaos.Config) (*chaos.Report, error) {
		if c.Mode == chaos.Tx {
			return nil, errors.New("library-1 ended by itself")
		}
		return &chaos.Report{Storage: c.Storage, Mode: c.Mode, Operations: 42}, nil
	}, "--store", "sqlite", "--seed", "0")
	if status != 1 || !strings.Contains(errs, "sqlite tx: library-1 ended by itself") || !strings.Contains(out, "| operations ") {
		t.Errorf("status %d\n%s\n%s", status, out, errs)
	}
	if got := playsAgain(t, errs); len(got) != 1 || got[0].Seed != 0 || got[0].Mode != chaos.Tx || got[0].Storage != chaos.SQLite {
		t.Errorf("the command that plays it again plays %+v", got)
	}
	removeKept(t, errs)
}

func TestRoundsAreOfNewSeedsUntilTheTimeIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lengths := map[uint64]time.Duration{}
		status, out, errs := called(t, func(_ context.Context, c chaos.Config) (*chaos.Report, error) {
			lengths[c.Seed] += c.For
			time.Sleep(c.For)
			return &chaos.Report{
				Storage: c.Storage, Mode: c.Mode, Operations: 10, Missed: []chaos.Point{chaos.MidStream, chaos.Point(rune('a' + len(lengths)))},
			}, nil
		}, "--store", "redis", "--for", "50m", "--round", "20m")
		if status != 0 || errs != "" {
			t.Errorf("status %d, %s", status, errs)
		}
		got := slices.Sorted(maps.Values(lengths))
		if want := []time.Duration{10 * time.Minute, 20 * time.Minute, 20 * time.Minute}; !slices.Equal(got, want) {
			t.Errorf("rounds of %v, want %v", got, want)
		}
		for seed := range lengths {
			if !strings.Contains(out, fmt.Sprintf(", seed %d\n", seed)) {
				t.Errorf("seed %d is not in\n%s", seed, out)
			}
		}
		if !regexp.MustCompile(`\| operations +\| +30 \| +30 \| +60 \|`).MatchString(out) {
			t.Errorf("it does not add up:\n%s", out)
		}
		if !strings.Contains(out, "redis hold: the run was too short for [mid-stream] []") {
			t.Errorf("it does not say what all rounds have missed:\n%s", out)
		}
	})
}

func TestRoundsEndWithTheFirstBrokenPromise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var played []chaos.Config
		status, out, errs := called(t, func(_ context.Context, c chaos.Config) (*chaos.Report, error) {
			time.Sleep(c.For)
			c.Dir = ""
			played = append(played, c)
			r := &chaos.Report{Storage: c.Storage, Mode: c.Mode}
			if len(played) == 6 {
				r.Violations = []history.Violation{{Key: "k", What: "it never came to an end"}}
			}
			return r, nil
		}, "--store", "sqlite", "--for", "8h", "--round", "20m")
		if status != 1 || len(played) != 6 {
			t.Fatalf("status %d after %d courses, want 1 after 6", status, len(played))
		}
		last := played[5]
		if got := playsAgain(t, out); !reflect.DeepEqual(got, []chaos.Config{last}) {
			t.Errorf("the command that plays it again plays %+v, want %+v", got, last)
		}
		if want := fmt.Sprintf("\n    sqlite hold %d it never came to an end\n", last.Seed); !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
		removeKept(t, errs)
	})
}

// removeKept removes the files that are kept.
func removeKept(t *testing.T, errs string) {
	t.Helper()
	kept := regexp.MustCompile(`files are kept in (\S+)`).FindStringSubmatch(errs)
	if kept == nil {
		t.Fatalf("it does not say where the files are: %s", errs)
	}
	if err := os.RemoveAll(kept[1]); err != nil {
		t.Error(err)
	}
}

func TestHelpAndWrongFlagsRunNothing(t *testing.T) {
	t.Parallel()
	never := func(context.Context, chaos.Config) (*chaos.Report, error) {
		t.Error("it ran")
		return nil, errors.New("it ran")
	}
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"--help", 0, "run --for 8h --round 20m"},
		{"--help --for 0s", 0, "Examples:"},
		{"--mode never", 2, "--mode"},
		{"--store never", 2, "--store"},
		{"--store redis --mode tx", 2, "does not exist with"},
		{"--for 0s", 2, "--for"},
		{"--for -1s", 2, "--for"},
		{"--operations -1", 2, "--operations"},
		{"--clients 0", 2, "--clients"},
		{"--fronts 0", 2, "--fronts"},
		{"--seed x", 2, "--seed"},
		{"--seed -1", 2, "--seed"},
		{"--round 0s", 2, "--round"},
		{"--round -1m", 2, "--round"},
		{"--round often", 2, "--round"},
		{"--round 1m --seed 1", 2, "--seed is that of one round"},
		{"--for 2", 2, "--for"},
		{"--hammer", 2, "--hammer"},
		{"now", 2, "now"},
	} {
		status, out, errs := called(t, never, strings.Fields(tc.args)...)
		if status != tc.status || !strings.Contains(out+errs, tc.want) {
			t.Errorf("%s: status %d, want %d with %q: %s%s", tc.args, status, tc.status, tc.want, out, errs)
		}
	}
}
