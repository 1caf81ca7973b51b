package docs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// cells returns the cells of the lines of a table, by the first one.
func cells(page string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(page) {
		if parts := strings.Split(strings.TrimSpace(line), "|"); len(parts) > 2 {
			var row []string
			for _, p := range parts[2 : len(parts)-1] {
				row = append(row, strings.TrimSpace(p))
			}
			rows[strings.TrimSpace(parts[1])] = row
		}
	}
	return rows
}

// The machines of the sizing table follow from the costs of an operation, by the page's own assumptions.
func TestTheSizingTableFollowsFromTheCosts(t *testing.T) {
	t.Parallel()
	const (
		repeats = 1.0 / 20
		cores   = 8    // that a machine gives
		mean    = 0.25 // of the peak
		day     = 86_400
		memory  = 128e9
	)
	page := pages(t)["docs/scale.md"]
	rows := cells(page)
	number := func(cell string) float64 {
		n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ReplaceAll(cell, " ", ""), "µs"), 64)
		if err != nil {
			t.Fatalf("%q is no number", cell)
		}
		return n
	}
	rates := rows["payments a second"]
	check := func(name string, of func(rate float64) float64) {
		t.Helper()
		var want []string
		for _, r := range rates {
			want = append(want, fmt.Sprintf("%.0f", of(number(r))))
		}
		if got := strings.Join(rows[name], " | "); got != strings.Join(want, " | ") {
			t.Errorf("docs/scale.md has %q, want\n| %s | %s |", got, name, strings.Join(want, " | "))
		}
	}
	for _, store := range []string{"PostgreSQL", "Redis"} {
		c := rows[store]
		machines := func(first, repeat string) func(float64) float64 {
			each := number(first) + repeats*number(repeat)
			return func(rate float64) float64 { return math.Ceil(rate * each / 1e6 / cores) }
		}
		records := func(rate float64) float64 { return rate * mean * day * number(c[4]) }
		check(store+": machines for processes", machines(c[0], c[2]))
		check(store+": GB of records, all together", func(rate float64) float64 { return records(rate) / 1e9 })
		if store == "Redis" {
			check(store+": servers, for the CPU", machines(c[1], c[3]))
			check(store+": servers, for the memory", func(rate float64) float64 { return math.Ceil(records(rate) / memory) })
			continue
		}
		check(store+": servers", machines(c[1], c[3]))
		check(store+": MB of log a second, all together", func(rate float64) float64 { return rate * number(c[5]) / 1e6 })
	}
}
