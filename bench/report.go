package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A row is one line of the table. A ratio ends in "×"; what it has to reach begins with "≥" where more is faster, with
// "≤" where less is.
type row struct {
	name, what, semel, floor, ratio, reach string
}

// A report is what one run has measured.
type report struct {
	at      time.Time
	machine string
	rounds  int
	rows    []row
	doubted bool // some rows are marked
}

// measure runs the suites whose names contain a text.
func (r *report) measure(ctx context.Context, span time.Duration, suites []suite, only string) error {
	for _, s := range suites {
		if !strings.Contains(s.name, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", s.name)
		var doubts []doubt
		rows, err := s.run(ctx, &meter{rounds: r.rounds, span: span, doubts: &doubts})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for _, d := range doubts {
			fmt.Fprintf(os.Stderr, "  not steady: quartiles %.0f %% apart\n", 100*d.spread)
			mark(rows, d)
			r.doubted = true
		}
		r.rows = append(r.rows, rows...)
	}
	return nil
}

const doubtful = " (?)"

// mark marks the row that shows a measurement, or all if none shows it as it is.
func mark(rows []row, d doubt) {
	a, b, found := perOp(d.a), perOp(d.b), false
	for i, r := range rows {
		if r.semel == a && r.floor == b || r.semel == b && r.floor == a {
			rows[i].ratio, found = strings.TrimSuffix(r.ratio, doubtful)+doubtful, true
		}
	}
	for i, r := range rows {
		if !found && strings.HasSuffix(r.ratio, "×") {
			rows[i].ratio += doubtful
		}
	}
}

// machine names the computer: its name, its processor, and what runs on it.
func machine() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	cores := fmt.Sprintf("%d cores", runtime.NumCPU())
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			model, _, _ := strings.Cut(strings.TrimLeft(after, "\t :"), "\n")
			cores += " of " + model
		}
	}
	return fmt.Sprintf("%s, %s, %s/%s, %s", host, cores, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

func (r *report) headline() string {
	return fmt.Sprintf("%s, %s; medians of %d interleaved rounds", r.at.Format(time.DateOnly), r.machine, r.rounds)
}

// table is the table in Markdown, its columns in line.
func (r *report) table() string {
	head := row{"#", "work", "semel", "floor or peer", "ratio", "to reach"}
	cells := func(r row) []string { return []string{r.name, r.what, r.semel, r.floor, r.ratio, r.reach} }
	widths := make([]int, len(cells(head)))
	for _, r := range append([]row{head}, r.rows...) {
		for i, c := range cells(r) {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	line := func(r row) {
		for i, c := range cells(r) {
			b.WriteString("| " + c + strings.Repeat(" ", widths[i]-len([]rune(c))+1))
		}
		b.WriteString("|\n")
	}
	line(head)
	for _, w := range widths {
		b.WriteString("| " + strings.Repeat("-", w) + " ")
	}
	b.WriteString("|\n")
	for _, r := range r.rows {
		line(r)
	}
	if r.doubted {
		fmt.Fprintf(&b, "\n(?) Not to be believed: the quartiles of a side were more than %.0f %% of its median apart, each time it was measured.\n", 100*spreadAllowed)
	}
	return b.String()
}

// write makes a page of the report, and the picture beside it.
func (r *report) write(path string) error {
	picture := strings.TrimSuffix(path, filepath.Ext(path)) + ".svg"
	page := fmt.Sprintf(`# What it costs

`+"`make bench`"+` has written this page: semel beside the least that the same work must cost, or beside others that do such work.
%s.

![How fast semel is beside each](%s)

%s`, r.headline(), filepath.Base(picture), r.table())
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := os.WriteFile(picture, r.picture(), 0o644); err != nil {
		return fmt.Errorf("write their picture: %w", err)
	}
	return nil
}
