package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// kind orders the two families: every rule comes before every case.
type kind int

const (
	rule kind = iota
	failure
)

// id names one rule (R-41a) or one case (case 7). It is comparable, and its
// String form is the one that the lists and the comments use.
type id struct {
	kind   kind
	number int
	suffix string
}

func (i id) String() string {
	if i.kind == failure {
		return fmt.Sprintf("case %d", i.number)
	}
	return fmt.Sprintf("R-%d%s", i.number, i.suffix)
}

func compareIDs(a, b id) int {
	return cmp.Or(
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.number, b.number),
		cmp.Compare(a.suffix, b.suffix),
	)
}

// The suffix of a rule is one lower-case letter. In a function's name it must
// not run into a word, so that TestR26concurrent is not taken for R-26c.
var (
	lineID    = regexp.MustCompile(`^(?:R-([1-9]\d*)([a-z]?)|case ([1-9]\d*))(?:\s+(.*))?$`)
	nameRule  = regexp.MustCompile(`^R0*([1-9]\d*)([a-z]?)(?:[A-Z].*)?$`)
	nameCase  = regexp.MustCompile(`^Case0*([1-9]\d*)(?:[A-Z].*)?$`)
	proseRule = regexp.MustCompile(`\bR-([1-9]\d*)([a-z]?)\b`)
	proseCase = regexp.MustCompile(`(?i)\bcase\s+([1-9]\d*)\b`)
)

// parseLine splits "R-26  some text" or "case 7  some text".
func parseLine(line string) (id, string, error) {
	m := lineID.FindStringSubmatch(line)
	if m == nil {
		return id{}, "", fmt.Errorf("line %q starts with neither a rule (R-26) nor a case (case 7)", line)
	}
	if m[3] != "" {
		return caseID(m[3]), m[4], nil
	}
	return ruleID(m[1], m[2]), m[4], nil
}

// idsInName reads the tokens of a test's name, which underscores part:
// TestR6_R7_KeyMissing, TestR41a_Corrupt, TestCase07_LostReply.
func idsInName(name string) []id {
	var ids []id
	for token := range strings.SplitSeq(name, "_") {
		if m := nameRule.FindStringSubmatch(token); m != nil {
			ids = append(ids, ruleID(m[1], m[2]))
		} else if m := nameCase.FindStringSubmatch(token); m != nil {
			ids = append(ids, caseID(m[1]))
		}
	}
	return ids
}

// idsInProse reads what a test's doc comment names: "R-26", "case 7".
func idsInProse(text string) []id {
	var ids []id
	for _, m := range proseRule.FindAllStringSubmatch(text, -1) {
		ids = append(ids, ruleID(m[1], m[2]))
	}
	for _, m := range proseCase.FindAllStringSubmatch(text, -1) {
		ids = append(ids, caseID(m[1]))
	}
	return ids
}

func ruleID(digits, suffix string) id {
	return id{kind: rule, number: number(digits), suffix: suffix}
}

func caseID(digits string) id {
	return id{kind: failure, number: number(digits)}
}

// number reads digits that a pattern has already checked. A number too big for
// an int comes back as the biggest one, which no list has: it is reported as
// unknown like any other.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
