package verify

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func printed(r *Report, color bool) string {
	var out strings.Builder
	r.Print(&out, color)
	return out.String()
}

func TestAReportIsPrintedAsEver(t *testing.T) {
	t.Parallel()
	matchGolden(t, "report.txt", printed(sampleReport(120), false))
}

// Whatever a target sends, a printed report keeps its width, and gives a terminal nothing to obey but its own colours.
func TestPrintIsForTerminals(t *testing.T) {
	t.Parallel()
	r := sampleReport(120)
	long := strings.Repeat(hostile+" "+strings.Repeat("x", 150), 5)
	r.Target = long
	r.Checks = append(r.Checks, Result{Name: long, Title: long, Rules: []string{long}, Status: Failed, Findings: []Finding{
		{Severity: Protocol, Rule: hostile, What: long, Right: long, Exchanges: []Exchange{{Sent: long, Came: long}}},
	}}, Result{Name: hostile, Title: long, Why: long, Status: Skipped})
	r.Loads[0].Kinds = append(r.Loads[0].Kinds, Count{long, 1})
	r.Loads[1].Failed = []FailedKey{{long, long, []Moment{{What: long}}}}
	r.Gates = nil
	plain, colored := printed(r, false), printed(r, true)
	sequences := regexp.MustCompile("\x1b\\[[0-9;]+m")
	if stripped := sequences.ReplaceAllString(colored, ""); stripped != plain {
		at := 0
		for at < min(len(stripped), len(plain)) && stripped[at] == plain[at] {
			at++
		}
		t.Errorf("without its colours it differs after\n%s", plain[:at])
	}
	if n := len(sequences.FindAllString(colored, -1)); n < 50 {
		t.Errorf("%d colours, want many", n)
	}
	for i, line := range strings.Split(plain, "\n") {
		if n := utf8.RuneCountInString(line); n > 100 && i > 0 { // the target stands on the first line as it is, to be copied
			t.Errorf("line %d has %d columns: %s", i+1, n, line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.HasSuffix(line, " ") {
			t.Errorf("line %d: %q", i+1, line)
		}
	}
}

func TestAReportOfLittleIsPrinted(t *testing.T) {
	t.Parallel()
	nothing := "semel-verify\nprofile draft07, seed 0, took 0 ms\n\nnothing was checked\n"
	if got, want := printed(&Report{Profile: "draft07"}, false), nothing; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got := printed(&Report{
		Target: "http://localhost:8080", Profile: "stripe",
		Checks: []Result{
			{Name: "repeat", Title: "a repeat has no effect", Rules: []string{"R-34"}, Status: Passed}, {Name: "slow", Status: Skipped},
		},
		Loads: []Load{{Effects: -1}},
	}, false)
	want := `semel-verify  http://localhost:8080
profile stripe, seed 0, took 0 ms

Checks
  ✓  repeat  a repeat has no effect                                                     R-34
  –  slow

Loads                           without faults
  rate                          0 a second
  duration                      0 ms
  operations                    0
  requests                      0
  attempts                      0
  effects                       not counted
  duplicate_side_effect_rate    not counted
  idempotent_replay_rate        –
  success_rate                  –
  conflict_rate                 –
  p50                           –
  p95                           –
  p99                           –

all safe: 1 check passed, 1 skipped, 1 load run
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWrapBreaksWhereItCan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 5, ""},
		{"short", 5, "short"},
		{"two words", 5, "two|words"},
		{"a  b   c", 3, "a|b|c"},
		{"withoutanyspace", 6, "withou|tanysp|ace"},
		{"é è ê ë", 3, "é è|ê ë"},
		{"to no width", 0, "t|o|n|o|w|i|d|t|h"},
	} {
		if got := strings.Join(wrap(tt.text, tt.width), "|"); got != tt.want {
			t.Errorf("wrap(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}
