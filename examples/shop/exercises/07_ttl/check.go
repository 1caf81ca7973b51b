package ttl

import (
	"context"
	"fmt"
	"time"
)

// Check says what is wrong with Expired, or nil.
func Check(_ context.Context, solution bool) error {
	expired := Expired
	if solution {
		expired = solved
	}
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	for _, c := range []struct {
		record Record
		want   bool
		why    string
	}{
		{Record{ago(1), ago(1)}, false, "a record that ended an hour ago was forgotten: a retry would run again"},
		{Record{ago(30), time.Time{}}, false, "an operation that has run for 30 hours was forgotten while it runs: a retry would run beside it"},
		{Record{ago(30), ago(1)}, false, "an operation that ended an hour ago was forgotten, because it had begun 30 hours ago: the client's retry would run again"},
		{Record{ago(30), ago(25)}, true, "a record that ended 25 hours ago is still there: the table would grow without end"},
	} {
		if expired(c.record, now) != c.want {
			return fmt.Errorf("%s", c.why)
		}
	}
	return nil
}
