package verify

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestJSONGivesTheReportBack(t *testing.T) {
	t.Parallel()
	r := sampleReport(60)
	var out, again strings.Builder
	if err := errors.Join(r.JSON(&out), r.JSON(&again)); err != nil {
		t.Fatal(err)
	}
	if out.String() != again.String() {
		t.Error("the same report is written in two ways")
	}
	for i := range r.Loads {
		r.Loads[i].Samples = r.Loads[i].Samples[:3]
	}
	var short strings.Builder
	if err := r.JSON(&short); err != nil {
		t.Fatal(err)
	}
	matchGolden(t, "report.json", short.String())

	var got Report
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := sampleReport(60)
	for i := range want.Loads { // lists are never null
		want.Loads[i].Injected = append([]Count{}, want.Loads[i].Injected...)
	}
	if !reflect.DeepEqual(&got, want) {
		t.Errorf("read back it is\n%+v\nwant\n%+v", got, *want)
	}
}

func TestJSONHasANumberForEveryFigure(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	r := &Report{
		Checks: []Result{{Name: "repeat"}},
		Loads:  []Load{{DuplicateRate: nan, ReplayRate: nan, SuccessRate: math.Inf(1), ConflictRate: math.Inf(-1)}},
		Gates:  []Gate{{Bound: math.Inf(1), Got: nan}},
	}
	var out strings.Builder
	if err := r.JSON(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"duplicate_side_effect_rate": 0,`, `"idempotent_replay_rate": 0,`, `"success_rate": 0,`, `"conflict_rate": 0,`,
		`"bound": 0,`, `"got": 0,`, `"rules": [],`, `"answers": [],`, `"injected": []`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in\n%s", want, out.String())
		}
	}
	if !math.IsNaN(r.Loads[0].ReplayRate) || !math.IsNaN(r.Gates[0].Got) || r.Checks[0].Rules != nil {
		t.Error("writing the report has changed it")
	}
	var empty strings.Builder
	if err := (&Report{}).JSON(&empty); err != nil || !strings.Contains(empty.String(), `"checks": []`) {
		t.Errorf("an empty report is %s, %v", empty.String(), err)
	}
}

// full is a disk without room.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestReportsSayThatTheyWereNotWritten(t *testing.T) {
	t.Parallel()
	r := sampleReport(10)
	for name, write := range map[string]func(io.Writer) error{
		"JSON": r.JSON, "JUnit": r.JUnit, "Prometheus": r.Prometheus, "HTML": r.HTML,
	} {
		if err := write(full{}); !errors.Is(err, errFull) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want one that wraps %v and names the format", name, err, errFull)
		}
	}
}
