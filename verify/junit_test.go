package verify

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"
)

func TestAReportIsReadAsJUnit(t *testing.T) {
	t.Parallel()
	r := sampleReport(10)
	var out strings.Builder
	if err := r.JUnit(&out); err != nil {
		t.Fatal(err)
	}
	matchGolden(t, "report.xml", out.String())

	var got junitReport
	if err := xml.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Tests != 18 || got.Failures != 4 || got.Skipped != 4 || got.Errors != 0 || len(got.Suites) != 2 || got.Time != "131.000" {
		t.Errorf("in all %+v", got)
	}
	checks, gates := got.Suites[0], got.Suites[1]
	if checks.Tests != 15 || checks.Failures != 2 || checks.Skipped != 4 ||
		gates.Tests != 3 || gates.Failures != 2 || gates.Skipped != 0 {
		t.Errorf("the checks' suite is %+v, that of the gates %+v", checks, gates)
	}
	for i, c := range checks.Cases {
		want := r.Checks[i]
		worst := want.worst()
		failed := worst == Safety || worst == Protocol
		if c.Name != want.Name || (c.Failure != nil) != failed || (c.Skipped != nil) != (want.Status == Skipped) ||
			(c.Out != nil) != (worst == Advice) {
			t.Errorf("%s is %+v, want it as in %+v", want.Name, c, want)
		}
		if c.Skipped != nil && c.Skipped.Message != want.Why {
			t.Errorf("%s: skipped, %q, want %q", c.Name, c.Skipped.Message, want.Why)
		}
	}
	failure := checks.Cases[3].Failure
	if failure.Type != "safety" || failure.Message != "safety, R-16: another body under the key got the first answer" ||
		!strings.Contains(failure.Text, "protocol, R-57: the refusal is no problem document\n") {
		t.Errorf("a check with two findings: %+v", failure)
	}
	if got := gates.Cases[0].Failure.Message; got != "got: 0.9975; the bound is at least 0.999" {
		t.Errorf("the closed gate says %q", got)
	}
}

func TestJUnitNamesTheWorstFinding(t *testing.T) {
	t.Parallel()
	r := Result{Status: Failed, Findings: []Finding{
		{Severity: Advice, What: "first"},
		{Severity: Protocol, What: "second"},
		{Severity: Safety, Rule: "R-1", What: "third"},
		{Severity: Safety, What: "fourth"},
	}}
	if got := r.junit().Failure; got.Type != "safety" || got.Message != "safety, R-1: third" {
		t.Errorf("the failure is %+v", got)
	}
}

// XML has no form for most control characters, nor has it any for text that is not UTF-8.
func TestJUnitIsXMLWhateverTheTargetSends(t *testing.T) {
	t.Parallel()
	bad := hostile + "]]>\xff\ufffe\v"
	r := &Report{
		Target: bad, Profile: bad,
		Checks: []Result{
			{Name: bad, Title: bad, Rules: []string{bad}, Status: Failed, Findings: []Finding{
				{Safety, bad, bad, bad, []Exchange{{0, bad, bad}}}, {Advice, bad, bad, bad, nil},
			}},
			{Name: bad, Why: bad, Status: Skipped},
			{Name: "no finding", Status: Failed},
		},
		Gates: []Gate{{Name: bad, Unit: bad}},
	}
	var out strings.Builder
	if err := r.JUnit(&out); err != nil {
		t.Fatal(err)
	}
	var read junitReport
	if err := xml.Unmarshal([]byte(out.String()), &read); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	texts := 0
	for _, c := range slices.Concat(read.Suites[0].Cases, read.Suites[1].Cases) {
		if c.Failure != nil {
			texts += strings.Count(c.Failure.Text, visible(bad))
		}
		if c.Out != nil {
			texts += strings.Count(c.Out.Text, visible(bad))
		}
	}
	if strings.ContainsAny(out.String(), "\r\x1b\u202e\ufffd") {
		t.Errorf("there are characters that have no place in XML, or none in a log:\n%s", out.String())
	}
	if texts != 14 {
		t.Errorf("the text of the target is there %d times, want 14", texts)
	}
	if !strings.Contains(out.String(), `<failure message="failed" type="failed">`) {
		t.Error("a check that failed without a finding is no failure")
	}

	out.Reset()
	if err := (&Report{}).JUnit(&out); err != nil {
		t.Fatal(err)
	}
	var got junitReport
	if err := xml.Unmarshal([]byte(out.String()), &got); err != nil || got.Tests != 0 || len(got.Suites) != 1 {
		t.Errorf("an empty report is %+v, %v", got, err)
	}
}
