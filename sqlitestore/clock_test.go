package sqlitestore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

func TestR50_TheClockCountsWhatPasses(t *testing.T) {
	t.Parallel()
	machine := time.UnixMicro(1_900_000_000_000_000)
	c := newClock(func() time.Time { return machine })
	start := c.tell()
	if start != driver.TimeOf(machine) {
		t.Fatalf("it begins at %s", start.Time())
	}
	for _, row := range []struct {
		moved time.Duration // of the machine's clock
		want  time.Duration // since the beginning
		why   string
	}{
		{0, 0, "nothing has passed"},
		{time.Second, time.Second, "a second has passed"},
		{-time.Hour, time.Second, "set back: it does not go back"},
		{time.Second, 2 * time.Second, "and goes on from where it was"},
		{time.Hour, time.Hour + 2*time.Second, "forward"},
	} {
		machine = machine.Add(row.moved)
		if got := c.tell().Sub(start); got != row.want {
			t.Errorf("%s: it shows %s after the beginning, want %s", row.why, got, row.want)
		}
	}
	c.reach(start.Add(time.Minute))
	if got := c.tell().Sub(start); got != time.Hour+2*time.Second {
		t.Errorf("a time that is over moved it to %s", got)
	}
	c.reach(start.Add(2 * time.Hour))
	machine = machine.Add(time.Second)
	if got := c.tell().Sub(start); got != 2*time.Hour+time.Second {
		t.Errorf("another process's time moved it to %s, want that and the second since", got)
	}
}

func TestR50_ByDefaultTheClockIsTheMonotonicOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		start := c.tell()
		if start != driver.TimeOf(time.Now()) {
			t.Errorf("it begins at %s", start.Time())
		}
		time.Sleep(time.Minute)
		if got := c.tell().Sub(start); got != time.Minute {
			t.Errorf("after a minute it shows %s more", got)
		}
	})
}
