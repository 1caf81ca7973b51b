package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

// How a handler has ended, what became of its transaction and what it has touched decide together what a run is settled
// with, and what its client may be told.
func TestR31_R32_HowARunEndedDecidesWhatItIsSettledWith(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	const (
		silent  = "silent"  // neither returned
		success = "success" // returned, and said so
		failure = "failure" // returned an error
	)
	owed, free, unknown := driver.Outcome{State: driver.Free, Owed: true}, driver.Outcome{State: driver.Free}, driver.Outcome{State: driver.Unknown}
	kept := driver.Outcome{State: driver.Done}
	for _, tc := range []struct {
		name      string
		onLost    driver.LostPolicy
		oneCommit bool
		state     jointState
		stepped   bool // by an earlier run
		touched   bool
		lost      bool
		ends      string
		want      Decision
		asked     bool // it was decided by what the handler says
		nothing   bool // of which an error says that nothing has happened
	}{
		{name: "an answer", ends: success, want: Decision{Outcome: kept}, asked: true},
		{name: "an error", ends: failure, want: Decision{Outcome: kept}, asked: true},
		{name: "no return", ends: silent, want: Decision{Outcome: unknown}},
		{name: "no return, rerun", onLost: driver.Rerun, ends: silent, want: Decision{Outcome: owed}},
		{name: "lost", lost: true, ends: success, want: Decision{Outcome: unknown, Lost: true}},
		{name: "lost, rerun", onLost: driver.Rerun, lost: true, ends: failure, want: Decision{Outcome: owed, Lost: true}},
		{name: "lost, and no return", lost: true, ends: silent, want: Decision{Outcome: unknown}},

		{name: "rolled back, an answer", state: rolledBack, ends: success, want: Decision{Outcome: free, Nothing: true}},
		{name: "rolled back, an error", state: rolledBack, ends: failure, want: Decision{Outcome: kept}, asked: true, nothing: true},
		{name: "rolled back, no return", state: rolledBack, ends: silent, want: Decision{Outcome: owed}},
		{name: "rolled back, lost", state: rolledBack, lost: true, ends: success, want: Decision{Outcome: unknown, Lost: true}},
		{name: "rolled back, lost, no return", state: rolledBack, lost: true, ends: silent, want: Decision{Outcome: unknown}},
		{name: "rolled back, touched, an answer", state: rolledBack, touched: true, ends: success, want: Decision{Outcome: unknown, Lost: true}},
		{name: "rolled back, touched, an error", state: rolledBack, touched: true, ends: failure, want: Decision{Outcome: kept}, asked: true},
		{name: "rolled back, touched, no return", state: rolledBack, touched: true, ends: silent, want: Decision{Outcome: unknown}},
		{name: "rolled back, steps of an earlier run", onLost: driver.Rerun, state: rolledBack, stepped: true, ends: success, want: Decision{Outcome: owed, Lost: true}},

		{name: "committed, an answer", state: committed, ends: success, want: Decision{Outcome: kept}},
		{name: "committed, lost", state: committed, lost: true, ends: success, want: Decision{Outcome: kept}},
		{name: "committed, no return", state: committed, ends: silent, want: Decision{Outcome: kept}},
		{name: "in doubt, an error", state: doubtful, ends: failure, want: Decision{Outcome: kept}},
		{name: "in doubt, no return", state: doubtful, touched: true, ends: silent, want: Decision{Outcome: kept}},

		{name: "one commit, an answer", oneCommit: true, ends: success, want: Decision{Outcome: kept}, asked: true},
		{name: "one commit, lost", oneCommit: true, lost: true, ends: success, want: Decision{Outcome: unknown, Nothing: true}},
		{name: "one commit, no return", oneCommit: true, ends: silent, want: Decision{Outcome: unknown}},
		{name: "one commit, touched and rolled back", oneCommit: true, state: rolledBack, touched: true, ends: success, want: Decision{Outcome: unknown, Nothing: true}},
	} {
		p := testPolicy(tc.onLost)
		p.OneCommit = tc.oneCommit
		run := &Run{Route: &Route{Policy: p}, stepped: tc.stepped}
		run.joint.state, run.joint.outcome = tc.state, kept
		if tc.touched {
			run.Touch()
		}
		if tc.lost {
			run.Lose(boom)
		}
		asked, nothing := false, false
		got := run.Decide(Ending{Returned: tc.ends != silent, Success: tc.ends == success, Decide: func(n bool) Decision {
			asked, nothing = true, n
			return Decision{Outcome: kept}
		}})
		if got.Outcome.Error == "" && got.Outcome.State != driver.Done || tc.lost && got.Lost && got.Outcome.Error != "boom" {
			t.Errorf("%s: it is said to be so because of %q", tc.name, got.Outcome.Error)
		}
		got.Outcome.Error = ""
		if got != tc.want || asked != tc.asked || nothing != tc.nothing {
			t.Errorf("%s: decided %+v, asked %t, nothing %t; want %+v, %t, %t", tc.name, got, asked, nothing, tc.want, tc.asked, tc.nothing)
		}
	}
}

// What is settled tells of a debt only where there is one: an end was promised, or the run was lost, and there is a
// request to finish it with.
func TestR52_OnlyWhatCanBeFinishedIsOwed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		state            driver.State
		lost             bool
		sealed, promised bool
		want             bool
	}{
		{"lost", driver.Free, true, true, false, true},
		{"lost, and no request", driver.Free, true, false, false, false},
		{"released", driver.Free, false, true, false, false},
		{"released, and promised", driver.Free, false, true, true, true},
		{"unknown, and promised", driver.Unknown, false, true, true, true},
		{"done, and promised", driver.Done, false, true, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := newRoute(newScript(), testPolicy(driver.Rerun), nil)
			a := askFor(1)
			if tc.sealed {
				a.Sealed = []byte("request")
			}
			var rec driver.Record
			run, _ := r.Enter(t.Context(), a, &rec)
			if tc.promised {
				run.Promise()
			}
			run.HandlerEnded()
			got, how := run.Settle(driver.Outcome{State: tc.state, Owed: tc.lost})
			if got.Owed != tc.want || how != SettleAcknowledged {
				t.Errorf("%s: owed %t, settled %d; want %t", tc.name, got.Owed, how, tc.want)
			}
		})
	}
}

// A kept outcome is kept as long as was asked, within the policy's bounds.
func TestR53_RetentionIsBounded(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: time.Minute, 30 * time.Minute: 30 * time.Minute, 48 * time.Hour: time.Hour,
	} {
		run := &Run{Route: &Route{Policy: testPolicy(driver.Hold)}}
		run.Retain(asked)
		if got := run.retention(); got != want {
			t.Errorf("asked for %v: kept %v, want %v", asked, got, want)
		}
	}
}
