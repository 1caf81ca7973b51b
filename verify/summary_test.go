package verify

import "testing"

func TestAReportIsSummedUpInWords(t *testing.T) {
	t.Parallel()
	check := func(status Status, findings ...Finding) Result { return Result{Status: status, Findings: findings} }
	passed, skipped := check(Passed), check(Skipped)
	advice := check(Failed, Finding{Severity: Advice, Rule: "R-35"})
	for _, tt := range []struct {
		name   string
		report Report
		mark   string
		want   string
	}{
		{"nothing", Report{}, "!", "nothing was checked"},
		{"all skipped", Report{Checks: []Result{skipped, skipped}}, "!", "nothing was checked: 2 skipped"},
		{"good", Report{Checks: []Result{passed, passed, skipped}}, "✓", "all safe: 2 checks passed, 1 skipped"},
		{"advice", Report{Checks: []Result{passed, advice}}, "✓", "all safe: 1 check passed, 1 piece of advice"},
		{
			"every finding counts, every rule once",
			Report{Checks: []Result{
				passed, advice, check(Failed, Finding{Severity: Safety, Rule: "R-16"}, Finding{Severity: Protocol, Rule: "R-34"}),
				check(Failed, Finding{Severity: Safety, Rule: "R-26"}, Finding{Severity: Safety, Rule: "R-16"}), skipped,
			}},
			"✗", "violated: 3 of safety (R-16, R-26), 1 of protocol (R-34); 1 check passed, 2 failed, 1 piece of advice, 1 skipped",
		},
		{
			"a closed gate is enough",
			Report{Checks: []Result{passed}, Loads: []Load{{}}, Gates: []Gate{{Name: "--max-p99"}, {Open: true}}},
			"✗", "violated: 1 gate closed (--max-p99); 1 check passed, 1 load run, 1 gate open",
		},
		{"a load alone", Report{Loads: []Load{{}}, Gates: []Gate{{Open: true}}}, "✓", "all safe: 1 load run, 1 gate open"},
		{
			"what gates allow is not safe for that",
			Report{Loads: []Load{{}, {Duplicates: 2, Failed: []FailedKey{{}}}}, Gates: []Gate{{Open: true}}},
			"!", "within the gates: 2 duplicate effects under load, 1 failure under load; 2 loads run, 1 gate open",
		},
		{"failed without a finding", Report{Checks: []Result{passed, check(Failed)}}, "✗", "violated: 1 check passed, 1 failed"},
	} {
		s := tt.report.summary()
		if got := s.String(); got != tt.want || s.mark() != tt.mark {
			t.Errorf("%s: %s %q, want %s %q", tt.name, s.mark(), got, tt.mark, tt.want)
		}
		if violated := s.verdict() == "violated"; violated != tt.report.Violated() && tt.name != "failed without a finding" {
			t.Errorf("%s: the verdict is %q, and the report is violated: %v", tt.name, s.verdict(), tt.report.Violated())
		}
	}
}
