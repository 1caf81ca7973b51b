package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/semelhq/semel/driver"
)

func verb(size int) *call { return &call{do: func(*unit) error { return nil }, size: size} }

func (l *line) mustEnter(t *testing.T, c *call, leads bool) *call {
	t.Helper()
	if got, err := l.enter(c); got != leads || err != nil {
		t.Fatalf("enter: leads is %t, error %v; want %t", got, err, leads)
	}
	return c
}

// gone returns a context that has ended.
func gone() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestTheLeadGoesToTheFirstThatWaits(t *testing.T) {
	t.Parallel()
	var l line
	first := l.mustEnter(t, verb(1), true)
	second := l.mustEnter(t, verb(1), false)
	if calls := l.group(); len(calls) != 2 || calls[0] != first || calls[1] != second {
		t.Fatalf("the group has %d calls", len(calls))
	}
	third, fourth := l.mustEnter(t, verb(1), false), l.mustEnter(t, verb(1), false)
	l.pass()
	l.answer([]*call{second})
	if got, err := l.wait(context.Background(), second); got != turnOver || err != nil {
		t.Errorf("the second: %v, %v", got, err)
	}
	if got, err := l.wait(context.Background(), third); got != turnLead || err != nil {
		t.Errorf("the third: %v, %v", got, err)
	}
	l.resign(third)
	if got, err := l.wait(context.Background(), fourth); got != turnLead || err != nil {
		t.Errorf("the fourth: %v, %v", got, err)
	}
	l.resign(fourth)
	l.mustEnter(t, verb(1), true) // nobody leads any more
}

// Whoever leaves takes its call along, unless that has begun, and hands on a lead that it was given meanwhile.
func TestACallerThatLeavesHandsItsLeadOn(t *testing.T) {
	t.Parallel()
	var l line
	l.mustEnter(t, verb(1), true)
	l.group()
	leaving, led, staying := l.mustEnter(t, verb(1), false), l.mustEnter(t, verb(1), false), l.mustEnter(t, verb(1), false)
	if _, err := l.wait(gone(), leaving); !errors.Is(err, context.Canceled) {
		t.Errorf("leaving: %v", err)
	}
	l.pass()
	for tries := 0; ; tries++ { // either the lead is seen first, or that ctx has ended
		got, err := l.wait(gone(), led)
		if err != nil {
			break
		}
		if got != turnLead || tries == 1000 {
			t.Fatalf("the lead was never handed on: %v", got)
		}
		led.turn <- turnLead
	}
	if got, err := l.wait(context.Background(), staying); got != turnLead || err != nil {
		t.Errorf("staying: %v, %v", got, err)
	}
	if calls := l.group(); len(calls) != 1 || calls[0] != staying {
		t.Errorf("the group has %d calls, want the one that stayed", len(calls))
	}
}

// A renewal stays in a line that is held, and only there; one that is being executed is as good.
func TestR47_ARenewalStaysWhereItIsSureToBeExecuted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		stays, held bool
		executing   bool
		want        bool
	}{
		{"a renewal while the line is held", true, true, false, true},
		{"a renewal that the holder executes", true, true, true, true},
		{"a renewal while a group is executed", true, false, false, false},
		{"a settle while the line is held", false, true, false, false},
	} {
		var l line
		l.mustEnter(t, &call{}, true)
		c := verb(1)
		c.stays = row.stays
		l.mustEnter(t, c, false)
		if row.held {
			l.hold()
		}
		if row.executing {
			l.renewals()
		}
		_, err := l.wait(gone(), c)
		if got := errors.Is(err, driver.ErrHeld); got != row.want || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", row.name, err)
		}
		if row.executing {
			continue
		}
		if got := len(l.renewals()) == 1; got != row.want {
			t.Errorf("%s: it is in the line: %t", row.name, got)
		}
		// From now on nobody would execute it.
		late := verb(1)
		late.stays = true
		l.mustEnter(t, late, false)
		if _, err := l.wait(gone(), late); errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: %v after the renewals were taken", row.name, err)
		}
	}
}

func TestAGroupIsBounded(t *testing.T) {
	t.Parallel()
	var l line
	l.mustEnter(t, verb(2*groupBytes), true) // the first is never left behind
	l.mustEnter(t, &call{}, false)           // a transaction has no part in a group
	l.mustEnter(t, verb(1), false)
	if calls := l.group(); len(calls) != 1 {
		t.Errorf("a group of %d calls, want the large one alone", len(calls))
	}
	for range groupCalls + 10 {
		l.mustEnter(t, verb(1), false)
	}
	if calls := l.group(); len(calls) != groupCalls {
		t.Errorf("a group of %d calls, want %d", len(calls), groupCalls)
	}
}

// One that does not fit is not overtaken: it may be an earlier claim of the same operation. It is the first of the next
// group.
func TestNoVerbOvertakesOneThatDoesNotFit(t *testing.T) {
	t.Parallel()
	var l line
	small := l.mustEnter(t, verb(1), true)
	l.mustEnter(t, &call{}, false) // asks for the lead alone
	large, huge := l.mustEnter(t, verb(groupBytes), false), l.mustEnter(t, verb(2*groupBytes), false)
	last, behind := l.mustEnter(t, verb(1), false), l.mustEnter(t, verb(1), false)
	for i, want := range [][]*call{{small}, {large}, {huge}, {last, behind}, nil} {
		if got := l.group(); !slices.Equal(got, want) {
			t.Errorf("group %d has %d calls, want %d", i, len(got), len(want))
		}
	}
}

func TestNobodyEntersBehindTheLast(t *testing.T) {
	t.Parallel()
	var l line
	l.mustEnter(t, verb(1), true)
	l.mustEnter(t, &call{last: true}, false)
	if _, err := l.enter(verb(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("enter: %v, want ErrClosed", err)
	}
}

func blind() *call {
	c := verb(1)
	c.blind = true
	return c
}

// A blind call may be one that has nothing to write. It is executed with those that wait for a group, and looks instead
// of waiting for a transaction.
func TestABlindCallWaitsForNoTransaction(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		slow func(*line)
		lead bool // whoever makes it slow has to wait for the lead
	}{
		{"a transaction that comes", func(l *line) { l.mustEnter(t, &call{}, false) }, true},
		{"another process", func(l *line) { l.slows() }, false},
	} {
		var l line
		leader := l.mustEnter(t, blind(), true) // decides by itself
		waits, other := l.mustEnter(t, blind(), false), l.mustEnter(t, verb(1), false)
		row.slow(&l)
		if got, err := l.wait(gone(), waits); got != turnOver || err != nil || !errors.Is(waits.err, errLook) {
			t.Errorf("%s: the one that waits: %v, %v, %v; want it to look", row.name, got, err, waits.err)
		}
		if _, err := l.enter(blind()); !errors.Is(err, errLook) {
			t.Errorf("%s: one that comes later: %v; want it to look", row.name, err)
		}
		if calls := l.group(); !slices.Equal(calls, []*call{leader, other}) {
			t.Errorf("%s: the group has %d calls, want the leader's and the one that is not blind", row.name, len(calls))
		}
		l.pass()
		if row.lead { // the transaction has it now
			if _, err := l.enter(blind()); !errors.Is(err, errLook) {
				t.Errorf("%s: one that comes while it lasts: %v; want it to look", row.name, err)
			}
			l.pass()
		}
		l.mustEnter(t, blind(), true)
	}
}

// One that has been given the lead, and does not know it yet, decides by itself too.
func TestABlindCallThatWasGivenTheLeadKeepsIt(t *testing.T) {
	t.Parallel()
	var l line
	l.mustEnter(t, verb(1), true)
	l.group()
	next := l.mustEnter(t, blind(), false)
	l.pass()
	l.mustEnter(t, &call{}, false)
	if got, err := l.wait(context.Background(), next); got != turnLead || err != nil || next.err != nil {
		t.Errorf("%v, %v, %v; want the lead", got, err, next.err)
	}
	if calls := l.group(); len(calls) != 1 || calls[0] != next {
		t.Errorf("the group has %d calls", len(calls))
	}
}

// A sweep goes on to its next step only while nobody waits behind the group that it is part of.
func TestR55_TheLineTellsWhoeverSweepsThatSomebodyWaits(t *testing.T) {
	t.Parallel()
	var l line
	l.mustEnter(t, verb(1), true)
	l.mustEnter(t, verb(1), false)
	if l.group(); l.waits() {
		t.Error("somebody waits, though all are executed")
	}
	l.mustEnter(t, verb(1), false)
	if !l.waits() {
		t.Error("nobody waits behind the group")
	}
}
