package verify

import (
	"testing"
	"time"
)

func TestR89a_GatesCloseOnTheWorstLoad(t *testing.T) {
	t.Parallel()
	good := Load{SuccessRate: 1, P99: 10 * time.Millisecond, Effects: 10}
	bad := Load{Faults: 0.3, SuccessRate: 0.9, P99: time.Second, Effects: 12, Duplicates: 2}
	blind := Load{SuccessRate: 1, Effects: -1}
	for _, c := range []struct {
		why   string
		gates Gates
		loads []Load
		want  []Gate
	}{
		{"no load, no gate", Gates{MinSuccess: 1, MaxP99: 1}, nil, nil},
		{"duplicates are bounded by default", Gates{}, []Load{good}, []Gate{{"--max-duplicates", 0, 0, "", true}}},
		{"one load has duplicates", Gates{}, []Load{good, bad}, []Gate{{"--max-duplicates", 0, 2, "", false}}},
		{"as many as are allowed", Gates{MaxDuplicates: 2}, []Load{bad}, []Gate{{"--max-duplicates", 2, 2, "", true}}},
		{"an operation broke a promise", Gates{}, []Load{good, {Broken: 2}, {Broken: 1}}, []Gate{
			{"--max-duplicates", 0, 0, "", true}, {"broken promises", 0, 3, "", false},
		}},
		{"duplicates that are allowed contradict each other", Gates{MaxDuplicates: 2}, []Load{{Broken: 1, Duplicates: 1}}, []Gate{
			{"--max-duplicates", 2, 1, "", true},
		}},
		{"duplicates are not known", Gates{MaxDuplicates: 2}, []Load{good, blind}, []Gate{{"--max-duplicates", 2, -1, "", false}}},
		{"duplicates are known to be too many", Gates{}, []Load{bad, blind}, []Gate{{"--max-duplicates", 0, 2, "", false}}},
		{"the worst success rate counts", Gates{MinSuccess: 0.95, MaxDuplicates: 2}, []Load{good, bad}, []Gate{
			{"--min-success", 0.95, 0.9, "", false},
			{"--max-duplicates", 2, 2, "", true},
		}},
		{"a rate at the bound", Gates{MinSuccess: 0.9, MaxDuplicates: 2}, []Load{bad}, []Gate{
			{"--min-success", 0.9, 0.9, "", true},
			{"--max-duplicates", 2, 2, "", true},
		}},
		{"faults take their own time", Gates{MaxP99: 20 * time.Millisecond, MaxDuplicates: 2}, []Load{good, bad}, []Gate{
			{"--max-p99", 20, 10, "ms", true},
			{"--max-duplicates", 2, 2, "", true},
		}},
		{"there is no load without faults", Gates{MaxP99: 20 * time.Millisecond, MaxDuplicates: 2}, []Load{bad}, []Gate{
			{"--max-p99", 20, 1000, "ms", false},
			{"--max-duplicates", 2, 2, "", true},
		}},
		{"nothing was answered", Gates{MaxP99: 20 * time.Millisecond}, []Load{{Effects: 0}}, []Gate{
			{"--max-p99", 20, 0, "ms", false},
			{"--max-duplicates", 0, 0, "", true},
		}},
	} {
		got := c.gates.check(c.loads)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", c.why, got[i], c.want[i])
			}
		}
	}
}
