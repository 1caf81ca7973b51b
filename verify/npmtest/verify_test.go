package npmtest

import (
	"slices"
	"testing"

	"github.com/semelhq/semel/verify"
)

// The report has every fault of the table that a check looks for, and no other.
func TestR89_TheReportTellsTheFaultsOfAPackageFromNpm(t *testing.T) {
	t.Parallel()
	want := map[string][]string{}
	for _, f := range facts {
		if f.check != "" {
			want[f.check] = append(want[f.check], tale(f.fault, f.rule)...)
		}
	}
	r := verified(t)
	for tries := 1; differs(r, want) && tries < 3; tries++ {
		r = verified(t)
	}
	for _, c := range r.Checks {
		var got []string
		for _, f := range c.Findings {
			got = append(got, tale(f.Severity, f.Rule)...)
		}
		if got, want := unique(got), unique(want[c.Name]); !slices.Equal(got, want) {
			t.Errorf("%s (%s) tells %q, want %q: %+v", c.Name, c.Title, got, want, c.Findings)
		}
		if _, known := want[c.Name]; known && c.Status == verify.Skipped {
			t.Errorf("%s was skipped: %s", c.Name, c.Why)
		}
		delete(want, c.Name)
	}
	for name := range want {
		t.Errorf("there is no check %q", name)
	}
	if !r.Violated() {
		t.Error("the report is content")
	}
}

// differs reports whether a check was not made, or told of other faults than are wanted: many a check has to come at the
// right moment, which a machine that stands still for a second can let pass.
func differs(r *verify.Report, want map[string][]string) bool {
	return slices.ContainsFunc(r.Checks, func(c verify.Result) bool {
		var told []string
		for _, f := range c.Findings {
			told = append(told, tale(f.Severity, f.Rule)...)
		}
		wanted, known := want[c.Name]
		return known && c.Status == verify.Skipped || !slices.Equal(unique(told), unique(slices.Clone(wanted)))
	})
}

// tale is a fault as a word, or no word.
func tale(s verify.Severity, rule string) []string {
	if s == "" {
		return nil
	}
	return []string{string(s) + " " + rule}
}

func unique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// verified runs every check of verify, by the scenario, on an API of its own.
func verified(t *testing.T) *verify.Report {
	t.Helper()
	s, err := verify.ReadScenario(start(t).scenario)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	r, err := verify.Run(t.Context(), s, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
