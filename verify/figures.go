package verify

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A figure is one thing that a load shows, in the words of reports for people.
type figure struct {
	name string
	of   func(*Load) string
	bad  func(*Load) bool // optional: it is a violation
}

// figures are in the order of reports. What has a name of the field's own has that of the JSON report.
var figures = []figure{
	{name: "rate", of: func(l *Load) string { return number(l.Rate) + " a second" }},
	{name: "duration", of: func(l *Load) string { return span(l.Duration) }},
	{name: "operations", of: func(l *Load) string { return strconv.Itoa(l.Operations) }},
	{name: "requests", of: func(l *Load) string { return strconv.Itoa(l.Requests) }},
	{name: "attempts", of: func(l *Load) string { return strconv.Itoa(l.Attempts) }},
	{name: "effects", of: effectsOf},
	{
		name: "duplicate_side_effect_rate",
		of: func(l *Load) string {
			if l.Effects < 0 {
				return "not counted"
			}
			return partOf(l.Duplicates, l.Operations)
		},
		bad: func(l *Load) bool { return l.Duplicates > 0 },
	},
	{name: "idempotent_replay_rate", of: func(l *Load) string { return partOf(l.Replayed, l.Repeats) }},
	{name: "success_rate", of: func(l *Load) string { return partOf(l.Succeeded, l.Requests) }},
	{name: "conflict_rate", of: func(l *Load) string { return partOf(l.Conflicts, l.Attempts) }},
	{name: "p50", of: func(l *Load) string { return quantile(l.P50) }},
	{name: "p95", of: func(l *Load) string { return quantile(l.P95) }},
	{name: "p99", of: func(l *Load) string { return quantile(l.P99) }},
}

func effectsOf(l *Load) string {
	if l.Effects < 0 {
		return "not counted"
	}
	return strconv.Itoa(l.Effects)
}

// quantile is a latency. Without an answer there is none.
func quantile(d time.Duration) string {
	if d <= 0 {
		return "–"
	}
	return span(d)
}

func partOf(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%d of %d)", percent(part, whole), part, whole)
}

func (l *Load) answers() []Count  { return l.Kinds }
func (l *Load) injected() []Count { return l.Injected }

// countNames returns the names of all counts, in the order in which they come first.
func countNames(loads []Load, of func(*Load) []Count) (names []string) {
	for i := range loads {
		for _, c := range of(&loads[i]) {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// countOf is how many attempts of a load a count of the name has, and which part of them that is.
func countOf(l *Load, of func(*Load) []Count, name string) string {
	n := 0
	for _, c := range of(l) {
		if c.Name == name {
			n += c.N
		}
	}
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", n, percent(n, l.Attempts))
}
