package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// coverage says, for every rule and case, which tests name it.
type coverage struct {
	rules []entry
	open  map[id]bool
	tests map[id][]namedTest
}

// newCoverage files each test under what it names. A name that the list of
// rules doesn't have is an error: a typing mistake would otherwise leave a rule
// unproven without a word.
func newCoverage(rules, open []entry, tests []namedTest) (coverage, error) {
	var (
		c     = coverage{rules: rules, open: idSet(open), tests: map[id][]namedTest{}}
		known = idSet(rules)
		bad   []error
	)
	for _, t := range tests {
		for _, i := range t.ids {
			if !known[i] {
				bad = append(bad, fmt.Errorf("%s: %s names %s, which is not in the list of rules", t.pos, t.name, i))
				continue
			}
			c.tests[i] = append(c.tests[i], t)
		}
	}
	return c, errors.Join(bad...)
}

// missing has the entries that no test names and that are not open.
func (c coverage) missing() []id {
	var ids []id
	for _, e := range c.rules {
		if len(c.tests[e.id]) == 0 && !c.open[e.id] {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// print writes one line an entry; all names every test, else the first ones
// stand for the rest.
func (c coverage) print(w io.Writer, all bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tTITLE\tTESTS")
	for _, e := range c.rules {
		fmt.Fprintf(table, "%s\t%s\t%s\n", e.id, e.text, c.state(e.id, all))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", c.summary())
	if err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return nil
}

// shown is how many tests of a rule the table names before it only counts.
const shown = 2

func (c coverage) state(i id, all bool) string {
	tests := c.tests[i]
	if len(tests) == 0 {
		if c.open[i] {
			return "open"
		}
		return "MISSING"
	}
	names := make([]string, 0, len(tests))
	for _, t := range tests {
		names = append(names, t.name)
	}
	more := ""
	if !all && len(names) > shown {
		names, more = names[:shown], ", …"
	}
	text := fmt.Sprintf("%d  %s%s", len(tests), strings.Join(names, ", "), more)
	if c.open[i] {
		return "open, built in part: " + text
	}
	return text
}

func (c coverage) summary() string {
	var rules, cases, named, open int
	for _, e := range c.rules {
		if e.id.kind == failure {
			cases++
		} else {
			rules++
		}
		switch {
		case c.open[e.id]:
			open++
		case len(c.tests[e.id]) > 0:
			named++
		}
	}
	return fmt.Sprintf("%d rules and %d cases: %d named by tests, %d open, %d missing",
		rules, cases, named, open, len(c.missing()))
}
