package settings

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	f := Faults{Where: "options: "}
	if err := f.Err(); err != nil {
		t.Fatalf("no fault: %v", err)
	}
	cause := errors.New("a cause")
	f.If(false, "never said")
	f.If(true, "first %d", 1)
	f.Add("second: %w", cause)
	f.Join(nil)
	f.Join(errors.New("as it is"))
	err := f.Err()
	if want := "options: first 1\noptions: second: a cause\nas it is"; err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if !errors.Is(err, cause) {
		t.Error("the cause is not wrapped")
	}
}

func TestZeroAndNegativeSettingsGetTheDefault(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		is, want time.Duration
		said     string
	}{
		{0, time.Minute, ""},
		{time.Second, time.Second, ""},
		{-time.Second, time.Minute, "Wait is negative: -1s"},
		{time.Hour, time.Hour, ""},
		{2 * time.Hour, time.Hour, "Wait is 2h0m0s, want at most 1h0m0s"},
	} {
		f, got := Faults{}, tc.is
		FillUpTo(&f, "Wait", &got, time.Minute, time.Hour)
		said := ""
		if err := f.Err(); err != nil {
			said = err.Error()
		}
		if got != tc.want || said != tc.said {
			t.Errorf("%v: filled with %v, said %q; want %v, %q", tc.is, got, said, tc.want, tc.said)
		}
	}
	var f Faults
	n := int64(-3)
	if Fill(&f, "MaxBody", &n, 5); n != 5 || !strings.Contains(f.Err().Error(), "MaxBody is negative: -3") {
		t.Errorf("filled with %d, said %v", n, f.Err())
	}
}
