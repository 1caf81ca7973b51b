package httpdate

import (
	"testing"
	"time"
)

func TestDatesOfOneSecondAndOfOthers(t *testing.T) {
	t.Parallel()
	var w Writer
	at := time.Date(2026, 11, 29, 23, 59, 59, 0, time.FixedZone("", 3600))
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{at, "Sun, 29 Nov 2026 22:59:59 GMT"},
		{at.Add(999 * time.Millisecond), "Sun, 29 Nov 2026 22:59:59 GMT"},
		{at.Add(time.Second), "Sun, 29 Nov 2026 23:00:00 GMT"},
		{at, "Sun, 29 Nov 2026 22:59:59 GMT"},
	} {
		if got := w.Format(c.at); got != c.want {
			t.Errorf("%v is %q, want %q", c.at, got, c.want)
		}
	}
}
