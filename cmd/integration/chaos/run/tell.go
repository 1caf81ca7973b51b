package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel/cmd/integration/chaos"
)

// shown is how many violations of a run are printed. What is wrong once is mostly wrong a thousand times.
const shown = 10

// tell prints what came of the courses that were played.
func (p *program) tell(all []played) {
	var reports []*chaos.Report
	for _, c := range all {
		reports = append(reports, c.report)
	}
	sums := chaos.Sums(reports)
	fmt.Fprintf(p.stdout, "\n%s", chaos.Tables(sums))
	for _, c := range all {
		if len(c.report.Violations) > 0 {
			p.tellBroken(c)
		}
	}
	var leftOut []string
	for _, r := range sums {
		at := course{r.Storage, r.Mode}
		if len(r.Missed) > 0 || len(r.MissedFaults) > 0 {
			fmt.Fprintf(p.stdout, "\n%v: the run was too short for %v %v\n", at, r.Missed, r.MissedFaults)
		}
		for f, why := range r.LeftOut {
			leftOut = append(leftOut, fmt.Sprintf("%s: %s was left out: %s", r.Storage, f, why))
		}
	}
	slices.Sort(leftOut)
	for _, what := range slices.Compact(leftOut) {
		fmt.Fprintf(p.stdout, "\n%s\n", what)
	}
}

func (p *program) tellBroken(c played) {
	at, violations := course{c.cfg.Storage, c.cfg.Mode}, c.report.Violations
	for i, v := range violations {
		if i == shown {
			fmt.Fprintf(p.stdout, "\n%v: and %d more\n", at, len(violations)-i)
			break
		}
		fmt.Fprintf(p.stdout, "\n%v: %v\n", at, v)
	}
	what := strings.Join(strings.Fields(violations[0].What), " ")
	fmt.Fprintf(p.stdout, "\nAgain:\n\n    %s\n\nTo keep it as a test, add to cmd/integration/chaos/testdata/seeds.txt:\n\n    %v %d %s\n",
		again(c.cfg), at, c.cfg.Seed, what)
}

// again returns the command that plays a run again.
func again(c chaos.Config) string {
	s := fmt.Sprintf("go run ./cmd/integration/chaos/run --store %s --mode %s --seed %d --for %v --clients %d --fronts %d",
		c.Storage, c.Mode, c.Seed, c.For, c.Clients, c.Fronts)
	if c.Operations > 0 {
		s += fmt.Sprintf(" --operations %d", c.Operations)
	}
	return s
}
