package main

import (
	"strings"
	"testing"
)

func TestAnExerciseIsListedMarkedAndSolved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"exercise", exitOK, "17  batch"},
		{"exercise 7", exitFailed, "Not yet. an operation that has run for 30 hours was forgotten while it runs"},
		{"exercise 7 --solution", exitOK, "Passed."},
		{"exercise 18", exitFailed, "there is no exercise 18: they have the numbers 1 to 17"},
		{"exercise seven", exitUsage, "expected a valid 64 bit int"},
	} {
		var out strings.Builder
		m := program{Stdout: &out, Stderr: &out}
		if status := m.run(t.Context(), strings.Fields(c.args)); status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("shop %s: status %d, want %d and %q in:\n%s", c.args, status, c.status, c.want, &out)
		}
	}
}
