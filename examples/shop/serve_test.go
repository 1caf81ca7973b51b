package main

import (
	"strings"
	"testing"
)

func TestAShopWithoutItsTemporalEndsAndSaysWhy(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := program{Stdout: &out, Stderr: &out}
	status := m.run(t.Context(), []string{"serve", "--data", t.TempDir(), "--listen", "localhost:0", "--temporal", "127.0.0.1:1"})
	if want := "shop: work on sagas of Temporal: failed reaching server: "; status != exitFailed || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "127.0.0.1:1") {
		t.Errorf("status %d, want %d and %q in:\n%s", status, exitFailed, want, &out)
	}
}

func TestAPointAtWhichNobodyCrashesIsWrongUse(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := program{Stdout: &out, Stderr: &out}
	status := m.run(t.Context(), []string{"serve", "--data", t.TempDir(), "--listen", "localhost:0", "--crash-at", "payments.process.charge"})
	if status != exitUsage || !strings.Contains(out.String(), `there is no point "payments.process.charge"; there are orders.create.taken, `) {
		t.Errorf("status %d: %s", status, &out)
	}
}
