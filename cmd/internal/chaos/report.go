package chaos

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/history"
)

// A Report is what came of a run.
type Report struct {
	Mode Mode
	Seed uint64
	Took time.Duration

	Operations   int
	Requests     int // attempts of clients
	Kills        map[Point]int
	Missed       []Point // the mode's points at which nobody was killed
	Effects      int     // lines of the ledger, or rows of the table
	Takeovers    int     // effects of runs that followed one that may have had its own
	Unknown      int     // operations that ended so, each explained by a kill
	Unreplayable int     // streams that were cut off, each explained by a kill

	Violations []history.Violation
}

// killed returns the number of kills.
func (r *Report) killed() (n int) {
	for _, k := range r.Kills {
		n += k
	}
	return n
}

func (r *Report) add(other *Report) {
	r.Took += other.Took
	r.Operations += other.Operations
	r.Requests += other.Requests
	r.Effects += other.Effects
	r.Takeovers += other.Takeovers
	r.Unknown += other.Unknown
	r.Unreplayable += other.Unreplayable
	r.Violations = append(r.Violations, other.Violations...)
	for p, n := range other.Kills {
		r.Kills[p] += n
	}
}

// Table returns the reports side by side, in Markdown.
func Table(reports []*Report) string {
	head := []string{""}
	sum := &Report{Kills: map[Point]int{}}
	for _, r := range reports {
		head = append(head, string(r.Mode))
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
	row("effects", func(r *Report) int { return r.Effects })
	row("… of a run after the first", func(r *Report) int { return r.Takeovers })
	row("ended unknown, by a kill", func(r *Report) int { return r.Unknown })
	row("streams cut off, by a kill", func(r *Report) int { return r.Unreplayable })
	row("violations", func(r *Report) int { return len(r.Violations) })
	return markdown(rows)
}

var allPoints = []Point{
	Random, AfterClaim, InHandler, AfterEffect, InTransaction, BeforeCommit, AfterCommit,
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
