package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// The picture shows costs and shares alike as speeds, with the goal on the same scale.
func TestThePictureShowsSpeeds(t *testing.T) {
	t.Parallel()
	r := report{at: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), machine: "a <machine>", rounds: 7, rows: []row{
		{"P-1", "a cost", "4 ns", "2 ns", "2.00×", "≤ 4×"},
		{"P-4", "a share", "4 ns", "2 ns", "0.50× (?)", "≥ 0.75×"},
		{"P-6", "a share without a goal", "4 ns", "2 ns", "8.00×", "shown"},
		{"P-1", "its allocations", "21", "", "", "≤ 22"},
		{"P-11", "what it adds", "1 ms", "1 ms", "+0.10 ms", "≤ +0.15 ms"},
	}}
	want := []struct{ speed, goal float64 }{{0.5, 0.25}, {0.5, 0.75}, {8, 0}}
	bars := r.bars()
	if len(bars) != len(want) {
		t.Fatalf("bars %v", bars)
	}
	for i, w := range want {
		if bars[i].speed != w.speed || bars[i].goal != w.goal {
			t.Errorf("%s: %v beside a goal of %v, want %v", bars[i].what, bars[i].speed, bars[i].goal, w)
		}
	}
	picture := string(r.picture())
	d := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for class, n := range map[string]int{"reached": 2, "missed": 2, "shown": 2} { // one of them in the key
		if got := strings.Count(picture, `<rect class="`+class+`"`); got != n {
			t.Errorf("%d bars are %s, want %d", got-1, class, n-1)
		}
	}
}

// A row whose sides did not settle is marked, and the other rows of its suite are not.
func TestARowThatDidNotSettleIsMarked(t *testing.T) {
	t.Parallel()
	r := report{rounds: 3}
	steady, shaky := measurement{2 * time.Microsecond, time.Microsecond, 2}, measurement{3 * time.Microsecond, time.Microsecond, 3}
	suites := []suite{{"some", func(_ context.Context, m *meter) ([]row, error) {
		*m.doubts = append(*m.doubts, doubt{shaky, 0.5})
		return []row{
			{"P-1", "steady", perOp(steady.a), perOp(steady.b), times(steady.ratio), "≤ 2×"},
			{"P-1", "shaky", perOp(shaky.b), perOp(shaky.a), times(shaky.ratio), "≤ 2×"},
		}, nil
	}}, {"all", func(_ context.Context, m *meter) ([]row, error) {
		m.settled([]float64{1, 2, 3})
		return []row{{"P-11", "a", "1/s", "2/s", "0.50×", "≥ 1×"}, {"P-11", "b", "1 ms", "1 ms", "+0.1 ms", ""}}, nil
	}}}
	if err := r.measure(context.Background(), time.Millisecond, suites, ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range r.rows {
		got = append(got, row.ratio)
	}
	if want := "2.00×|3.00× (?)|0.50× (?)|+0.1 ms"; strings.Join(got, "|") != want {
		t.Errorf("ratios %q, want %s", got, want)
	}
	if !strings.Contains(r.table(), "Not to be believed") {
		t.Error("the table does not say what the mark means")
	}
}
