package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/cmd/internal/chaos"
	"github.com/semelhq/semel/history"
)

func TestMain(m *testing.M) {
	chaos.Act()
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
		if c.Storage == chaos.Tiered && c.Mode == chaos.Tx {
			r.Violations = []history.Violation{{Key: "k", What: "2 effects", Case: []string{"effect 1", "effect 2"}}}
		}
		return r, nil
	})
	if status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	for _, want := range []string{"tiered tx: key \"k\": 2 effects\n\teffect 1\n\teffect 2", "redis hold: the run was too short for [after-claim] [slow]"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
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

func TestUse(t *testing.T) {
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
		{"--help", 0, "Examples:"},
		{"--mode never", 2, "--mode"},
		{"--store never", 2, "--store"},
		{"--store redis --mode tx", 2, "does not exist with"},
		{"--for 0s", 2, "--for"},
		{"--for -1s", 2, "--for"},
		{"--operations -1", 2, "--operations"},
		{"--clients 0", 2, "--clients"},
		{"--fronts 0", 2, "--fronts"},
		{"--seed x", 2, "--seed"},
		{"--hammer", 2, "--hammer"},
		{"now", 2, "now"},
	} {
		status, out, errs := called(t, never, strings.Fields(tc.args)...)
		if status != tc.status || !strings.Contains(out+errs, tc.want) {
			t.Errorf("%s: status %d, want %d with %q: %s%s", tc.args, status, tc.status, tc.want, out, errs)
		}
	}
}
