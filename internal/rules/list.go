package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// entry is one line of a list: a rule or a case, and the text after it (the
// title in the list of rules, an optional reason in the list of open ones).
type entry struct {
	id   id
	text string
	line int
}

// readList reads a list file: one entry a line, blank lines and lines that
// start with # left out. An entry may stand once. All bad lines are reported
// together, each as file:line.
func readList(file string, textRequired bool) ([]entry, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the list: %w", err)
	}
	var (
		entries []entry
		bad     []error
		seen    = map[id]int{}
		n       int
	)
	for line := range strings.Lines(string(content)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i, text, err := parseLine(line)
		switch first := seen[i]; {
		case err != nil:
			bad = append(bad, fmt.Errorf("%s:%d: %w", file, n, err))
			continue
		case first > 0:
			bad = append(bad, fmt.Errorf("%s:%d: %s stands in line %d already", file, n, i, first))
			continue
		case text == "" && textRequired:
			bad = append(bad, fmt.Errorf("%s:%d: %s has no title", file, n, i))
			continue
		}
		seen[i] = n
		entries = append(entries, entry{id: i, text: text, line: n})
	}
	return entries, errors.Join(bad...)
}

// checkKnown reports the open entries that the list of rules doesn't have.
func checkKnown(open, rules []entry, openFile string) error {
	known := idSet(rules)
	var bad []error
	for _, e := range open {
		if !known[e.id] {
			bad = append(bad, fmt.Errorf("%s:%d: %s is not in the list of rules", openFile, e.line, e.id))
		}
	}
	return errors.Join(bad...)
}

func idSet(entries []entry) map[id]bool {
	set := make(map[id]bool, len(entries))
	for _, e := range entries {
		set[e.id] = true
	}
	return set
}
