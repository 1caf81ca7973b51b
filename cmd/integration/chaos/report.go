package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/history"
)

// A Report is what came of a run.
type Report struct {
	Storage Storage
	Mode    Mode
	Seed    uint64
	Took    time.Duration

	Operations   int
	Requests     int // attempts of clients
	Kills        map[Point]int
	Missed       []Point // the mode's points at which no process has ended
	Faults       map[Fault]int
	MissedFaults []Fault          // the storage's that have not come
	LeftOut      map[Fault]string // the storage's that could not be brought about here, and why
	Unavailable  int              // answers that said that the store can't be asked, and nothing was run
	Stalls       int              // of the machine: explain further runs
	Effects      int              // lines of the ledger, or rows of the table
	Takeovers    int              // effects of runs that followed one that may have had its own
	Unknown      int              // operations that ended so, each explained by a kill or a fault
	Unreplayable int              // operations whose answer can't be given again: streams cut off, answers that a full disk did not take

	Violations []history.Violation
}

// killed returns the number of kills.
func (r *Report) killed() (n int) {
	for p, k := range r.Kills {
		if p != Drained {
			n += k
		}
	}
	return n
}

func (r *Report) add(other *Report) {
	r.Took += other.Took
	r.Operations += other.Operations
	r.Requests += other.Requests
	r.Effects += other.Effects
	r.Takeovers += other.Takeovers
	r.Stalls += other.Stalls
	r.Unavailable += other.Unavailable
	r.Unknown += other.Unknown
	r.Unreplayable += other.Unreplayable
	r.Violations = append(r.Violations, other.Violations...)
	for p, n := range other.Kills {
		r.Kills[p] += n
	}
	for f, n := range other.Faults {
		r.Faults[f] += n
	}
}

// faults returns the number of faults.
func (r *Report) faults() (n int) {
	for _, k := range r.Faults {
		n += k
	}
	return n
}

// Sums adds up the reports of each storage in each mode. What each of them has missed, their sum has; what one left
// out, too.
func Sums(reports []*Report) (sums []*Report) {
	for _, r := range reports {
		i := slices.IndexFunc(sums, func(s *Report) bool { return s.Storage == r.Storage && s.Mode == r.Mode })
		if i < 0 {
			sum := newSum(r.Storage)
			sum.Mode, sum.Missed, sum.MissedFaults = r.Mode, r.Missed, r.MissedFaults
			sums, i = append(sums, sum), len(sums)
		}
		sum := sums[i]
		sum.add(r)
		sum.Missed = slices.DeleteFunc(slices.Clone(sum.Missed), func(p Point) bool { return !slices.Contains(r.Missed, p) })
		sum.MissedFaults = slices.DeleteFunc(slices.Clone(sum.MissedFaults), func(f Fault) bool { return !slices.Contains(r.MissedFaults, f) })
		maps.Copy(sum.LeftOut, r.LeftOut)
	}
	return sums
}

// Tables returns the reports in Markdown: a table for each storage, and one of them all if there are several.
func Tables(reports []*Report) string {
	var b strings.Builder
	of := map[Storage][]*Report{}
	for _, r := range reports {
		of[r.Storage] = append(of[r.Storage], r)
	}
	var sums []*Report
	for _, s := range Storages() {
		if len(of[s]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n\n%s\n", s, table(of[s], func(r *Report) string { return string(r.Mode) }))
		sum := newSum(s)
		for _, r := range of[s] {
			sum.add(r)
		}
		sums = append(sums, sum)
	}
	if len(sums) > 1 {
		fmt.Fprintf(&b, "all:\n\n%s\n", table(sums, func(r *Report) string { return string(r.Storage) }))
	}
	return b.String()
}

func newSum(s Storage) *Report {
	return &Report{Storage: s, Kills: map[Point]int{}, Faults: map[Fault]int{}, LeftOut: map[Fault]string{}}
}

// table returns reports side by side, and their sum.
func table(reports []*Report, name func(*Report) string) string {
	head := []string{""}
	sum := newSum("")
	for _, r := range reports {
		head = append(head, name(r))
		sum.add(r)
	}
	columns := reports
	if len(reports) > 1 {
		head = append(head, "all")
		columns = append(columns[:len(columns):len(columns)], sum)
	}
	rows := [][]string{head, nil}
	row := func(name string, of func(*Report) int) {
		cells := []string{name}
		for _, r := range columns {
			cells = append(cells, fmt.Sprint(of(r)))
		}
		rows = append(rows, cells)
	}
	row("seconds", func(r *Report) int { return int(r.Took.Round(time.Second) / time.Second) })
	row("operations", func(r *Report) int { return r.Operations })
	row("requests", func(r *Report) int { return r.Requests })
	row("processes killed and restarted", (*Report).killed)
	for _, p := range allPoints {
		if sum.Kills[p] > 0 {
			row("… "+string(p), func(r *Report) int { return r.Kills[p] })
		}
	}
	row("processes drained and restarted", func(r *Report) int { return r.Kills[Drained] })
	if sum.faults() > 0 {
		row("faults of disks, servers and the ways to them", (*Report).faults)
	}
	for _, f := range allFaults {
		if sum.Faults[f] > 0 {
			row("… "+string(f), func(r *Report) int { return r.Faults[f] })
		}
	}
	if sum.Stalls > 0 {
		row("stalls of this machine", func(r *Report) int { return r.Stalls })
	}
	if sum.Unavailable > 0 {
		row("answers that the store can't be asked", func(r *Report) int { return r.Unavailable })
	}
	row("effects", func(r *Report) int { return r.Effects })
	row("… of a run after the first", func(r *Report) int { return r.Takeovers })
	row("ended unknown, explained", func(r *Report) int { return r.Unknown })
	row("answers not to be had again, explained", func(r *Report) int { return r.Unreplayable })
	row("violations", func(r *Report) int { return len(r.Violations) })
	return markdown(rows)
}

var allPoints = []Point{
	Random, AfterClaim, InHandler, AfterEffect, InTransaction, BeforeCommit, Unanswered, AfterCommit,
	BeforeSettle, AfterSettle, BeforeFirstByte, MidAnswer, MidStream,
}

// markdown aligns the cells of rows; the second row is the line under the head.
func markdown(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c), len("--:"))
		}
	}
	var b strings.Builder
	for _, cells := range rows {
		b.WriteByte('|')
		for i, w := range widths {
			switch {
			case cells == nil && i == 0:
				fmt.Fprintf(&b, " %s |", strings.Repeat("-", w))
			case cells == nil:
				fmt.Fprintf(&b, " %s: |", strings.Repeat("-", w-1))
			case i == 0:
				fmt.Fprintf(&b, " %-*s |", w, cells[i])
			default:
				fmt.Fprintf(&b, " %*s |", w, cells[i])
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
