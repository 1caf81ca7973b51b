package verify

import (
	"fmt"
	"slices"
	"strings"
)

// severities are in the order in which they matter.
var severities = []Severity{Safety, Protocol, Advice}

// A summary counts what a report says.
type summary struct {
	passed, failed, advised, skipped int // checks; advised ones work, and could work better

	findings map[Severity]int
	rules    map[Severity][]string // of the findings, each once
	closed   []string              // gates
	loads    int
	open     int // gates
	doubled  int // effects beyond the first of their operation, in loads
	broken   int // failures that loads show
	violated bool
}

func (r *Report) summary() *summary {
	s := &summary{findings: map[Severity]int{}, rules: map[Severity][]string{}, loads: len(r.Loads), violated: r.Violated()}
	for i := range r.Checks {
		switch c := &r.Checks[i]; {
		case c.Status == Skipped:
			s.skipped++
		case c.Status == Passed:
			s.passed++
		case c.worst() == Advice:
			s.advised++
		default:
			s.failed++
		}
		for _, f := range r.Checks[i].Findings {
			s.findings[f.Severity]++
			if rule := visible(f.Rule); rule != "" && !slices.Contains(s.rules[f.Severity], rule) {
				s.rules[f.Severity] = append(s.rules[f.Severity], rule)
			}
		}
	}
	for i := range r.Loads {
		s.doubled += r.Loads[i].Duplicates
		s.broken += len(r.Loads[i].Failed)
	}
	for i := range r.Gates {
		if r.Gates[i].Open {
			s.open++
		} else {
			s.closed = append(s.closed, visible(r.Gates[i].Name))
		}
	}
	return s
}

// verdict says in a few words what came of the run. What loads have shown is never called safe because gates allow it.
func (s *summary) verdict() string {
	switch {
	case s.violated || s.failed > 0:
		return "violated"
	case s.doubled+s.broken > 0:
		return "within the gates"
	case s.passed+s.failed+s.advised+s.loads == 0:
		return "nothing was checked"
	}
	return "all safe"
}

// mark shows how the run ended, as those of checks do.
func (s *summary) mark() string {
	switch s.verdict() {
	case "violated":
		return "✗"
	case "all safe":
		return "✓"
	}
	return "!"
}

// parts are what is wrong, and what else there is to say.
func (s *summary) parts() (bad, rest []string) {
	for _, severity := range []Severity{Safety, Protocol} {
		if n := s.findings[severity]; n > 0 {
			text := fmt.Sprintf("%d of %s", n, severity)
			if rules := s.rules[severity]; len(rules) > 0 {
				text += " (" + strings.Join(rules, ", ") + ")"
			}
			bad = append(bad, text)
		}
	}
	if s.doubled > 0 {
		bad = append(bad, plural(s.doubled, "duplicate effect")+" under load")
	}
	if s.broken > 0 {
		bad = append(bad, plural(s.broken, "failure")+" under load")
	}
	if n := len(s.closed); n > 0 {
		bad = append(bad, plural(n, "gate")+" closed ("+strings.Join(s.closed, ", ")+")")
	}
	if s.passed > 0 {
		rest = append(rest, plural(s.passed, "check")+" passed")
	}
	if s.failed > 0 {
		rest = append(rest, fmt.Sprintf("%d failed", s.failed))
	}
	if n := s.findings[Advice]; n > 0 {
		rest = append(rest, plural(n, "piece")+" of advice")
	}
	if s.skipped > 0 {
		rest = append(rest, fmt.Sprintf("%d skipped", s.skipped))
	}
	if s.loads > 0 {
		rest = append(rest, plural(s.loads, "load")+" run")
	}
	if s.open > 0 {
		rest = append(rest, plural(s.open, "gate")+" open")
	}
	return bad, rest
}

// String is the summary in a line.
func (s *summary) String() string {
	bad, rest := s.parts()
	text, separator := s.verdict(), ": "
	for _, part := range [][]string{bad, rest} {
		if len(part) > 0 {
			text += separator + strings.Join(part, ", ")
			separator = "; "
		}
	}
	return text
}

// mark shows how a check ended: ✓ is right, ✗ is not, ! could be better, – was skipped.
func (r *Result) mark() string {
	switch {
	case r.Status == Skipped:
		return "–"
	case r.Status == Passed:
		return "✓"
	case r.worst() == Advice:
		return "!"
	}
	return "✗"
}
