package verify

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func exposed(t *testing.T, r *Report) string {
	t.Helper()
	var out strings.Builder
	if err := r.Prometheus(&out); err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(strings.NewReader(out.String())).Lint() // it parses before it judges
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v in\n%s", err, problems, out.String())
	}
	return out.String()
}

func TestR89a_FiguresForPrometheus(t *testing.T) {
	t.Parallel()
	matchGolden(t, "report.prom", exposed(t, sampleReport(120)))
}

func TestR89a_PrometheusGetsNoFigureThatIsNone(t *testing.T) {
	t.Parallel()
	got := exposed(t, &Report{Target: `C:\temp "quoted"` + hostile, Loads: []Load{
		{Effects: -1, DuplicateRate: math.NaN(), ReplayRate: math.NaN(), SuccessRate: math.NaN(), ConflictRate: math.NaN()},
		{Faults: 0.2, Requests: 1, SuccessRate: math.Inf(1), Kinds: []Count{{"a\nb\\", 1}}},
	}})
	for _, want := range []string{
		`semel_verify_attempts{faults="0"} 0` + "\n", `semel_verify_effects{faults="0.2"} 0` + "\n",
		`semel_verify_checks{status="passed"} 0` + "\n",
		`semel_verify_answers{faults="0.2",kind="a\\nb\\"} 1` + "\n",
		`semel_verify_info{target="C:\\temp \"quoted\"</script><script>alert(1)</script>\"'&\\x1b[2J\\u202e\\x00\\r\\n",` +
			`profile=""} 1` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	for _, none := range []string{"NaN", "Inf", "_rate", `semel_verify_effects{faults="0"}`, "latency", "gate_open", "began"} {
		if strings.Contains(got, none) {
			t.Errorf("%s is in\n%s", none, got)
		}
	}
}
