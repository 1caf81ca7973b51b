package verify

import (
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

var _ Watcher = (*Progress)(nil)

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := NewProgress(&out, true)
	p.Start(4)
	p.Check("repeat")
	p.Done(Result{Name: "repeat", Status: Passed})
	p.Check("concurrent")
	p.Check("concurrent") // nothing new
	p.Done(Result{Name: "concurrent", Status: Failed, Findings: []Finding{{Severity: Safety}}})
	p.Done(Result{Name: "marker", Status: Failed, Findings: []Finding{{Severity: Advice}}})
	p.Done(Result{Name: "slow", Status: Skipped, Why: "why"})
	p.Load("without faults", 0, 30*time.Second, 0)
	p.Load("without faults", 7500*time.Millisecond, 30*time.Second, 1)
	p.Load("without faults", 30*time.Second, 30*time.Second, 1200)
	p.End()
	p.End()
	want := "\r░░░░░░░░░░░░░░░░░░░░  0 of 4\x1b[K" +
		"\r░░░░░░░░░░░░░░░░░░░░  0 of 4  repeat\x1b[K" +
		"\r█████░░░░░░░░░░░░░░░  1 of 4\x1b[K" +
		"\r█████░░░░░░░░░░░░░░░  1 of 4  concurrent\x1b[K" +
		"\r██████████░░░░░░░░░░  2 of 4, 1 failed\x1b[K" +
		"\r███████████████░░░░░  3 of 4, 1 failed\x1b[K" +
		"\r████████████████████  4 of 4, 1 failed\x1b[K" +
		"\r░░░░░░░░░░░░░░░░░░░░  load without faults: 0 operations, 30 s left\x1b[K" +
		"\r█████░░░░░░░░░░░░░░░  load without faults: 1 operation, 23 s left\x1b[K" +
		"\r████████████████████  load without faults: 1200 operations, last answers\x1b[K" +
		"\r\x1b[K"
	if got := out.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestProgressElsewhereIsALineForEachCheck(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := NewProgress(&out, false)
	p.Start(5)
	p.Check("repeat")
	p.Done(Result{Name: "repeat", Status: Passed, Took: 41 * time.Millisecond})
	p.Done(Result{Name: "concurrent", Status: Failed, Took: 2 * time.Second, Findings: []Finding{
		{Severity: Advice, What: "no Retry-After"},
		{Severity: Safety, What: "2 effects\x1b[2J\n"},
		{Severity: Protocol, What: "no problem document"},
	}})
	p.Done(Result{Name: "marker", Status: Failed, Findings: []Finding{{Severity: Advice, What: "no marker"}}})
	p.Done(Result{Name: "slow", Status: Skipped, Why: "the scenario has no variant"})
	p.Load("without faults", 0, 30*time.Second, 0)
	p.Load("without faults", time.Second, 30*time.Second, 40)
	p.Load("20 % faults", 0, 90*time.Second, 0)
	p.End()
	want := "✓ repeat (41 ms)\n" +
		"✗ concurrent: safety: 2 effects\\x1b[2J\\n, and 2 more (2 s)\n" +
		"! marker: advice: no marker (0 ms)\n" +
		"– slow: the scenario has no variant\n" +
		"load without faults: 30 s\n" +
		"load 20 % faults: 1 m 30 s\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A terminal can't take back a line that it has wrapped, nor may a name move its cursor.
func TestProgressNeverTakesMoreThanALine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := NewProgress(&out, true)
	p.Start(0) // nothing to do is no division by nothing
	p.Check(strings.Repeat("é", 200) + "\n\x1b[A")
	p.Done(Result{Name: "more than were told of"})
	p.Load("\r\n", 2*time.Second, 0, 1)
	p.End()
	lines := strings.Split(strings.ReplaceAll(out.String(), "\x1b[K", ""), "\r")
	if len(lines) != 6 {
		t.Fatalf("%d lines, want 6: %q", len(lines), lines)
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 79 || strings.ContainsAny(line, "\n\x1b") {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if want := strings.Repeat("░", 20) + "  0 of 0  " + strings.Repeat("é", 48) + "…"; lines[2] != want {
		t.Errorf("got %q, want %q", lines[2], want)
	}
}

func TestProgressIsToldByManyAtOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := NewProgress(&out, false)
	p.Start(100)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			p.Check("one")
			p.Done(Result{Name: "one", Status: Passed})
			p.Load("load", time.Second, time.Second, 1)
		})
	}
	all.Wait()
	p.End()
	if got := strings.Count(out.String(), "✓ one (0 ms)\n"); got != 100 {
		t.Errorf("%d whole lines, want 100", got)
	}
	if got := strings.Count(out.String(), "load load: 1 s\n"); got != 1 {
		t.Errorf("the load is told of %d times, want once", got)
	}
}
