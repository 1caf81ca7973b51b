package status

import (
	"context"
	"fmt"
	"time"
)

// Check says what is wrong with State, or nil.
func Check(_ context.Context, solution bool) error {
	state := State
	if solution {
		state = solved
	}
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	later, earlier := now.Add(time.Second), now.Add(-time.Second)
	for _, c := range []struct {
		record    Record
		want, why string
	}{
		{Record{Lease: later}, "running", "it runs"},
		{Record{Done: true, Status: 201, Lease: earlier}, "succeeded", "it has answered 201"},
		{Record{Done: true, Status: 303, Lease: later}, "succeeded", "it has answered 303, which tells where the result is"},
		{Record{Done: true, Status: 402, Lease: later}, "failed", "it has answered 402: the card was declined"},
		{Record{Lease: earlier}, "unknown", "its process has died, perhaps after the effect: a client that is told otherwise pays twice"},
	} {
		if got := state(c.record, now); got != c.want {
			return fmt.Errorf("%s. The client was told: %s. It should be told: %s", c.why, got, c.want)
		}
	}
	return nil
}
