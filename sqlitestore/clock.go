package sqlitestore

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// A clock is the store's. It begins where the machine's clock stands when the store is opened, or at the latest time in
// the database if that is ahead, and moves on by what passes: a machine's clock that is set, forward or back, ends no
// lease and no retention early, and holds none up.
type clock struct {
	read func() time.Time

	mu   sync.Mutex
	seen int64 // what read told last, in microseconds
	now  driver.Time
}

func newClock(read func() time.Time) *clock {
	if read == nil {
		start := startTime()
		read = func() time.Time { return start.Add(time.Since(start)) } // on the monotonic clock
	}
	t := read()
	return &clock{read: read, seen: t.UnixMicro(), now: driver.TimeOf(t)}
}

// startTime returns the machine's time. A time has two readings, of the clock on the wall and of the monotonic one, and
// a process that was held up between the two would go on with a clock that is off by as much: of several the middle one
// counts.
func startTime() time.Time {
	var tries [7]time.Time
	for i := range tries {
		tries[i] = time.Now()
	}
	first := tries[0]
	skew := func(t time.Time) time.Duration { return t.Round(0).Sub(first.Round(0)) - t.Sub(first) }
	slices.SortFunc(tries[:], func(a, b time.Time) int { return cmp.Compare(skew(a), skew(b)) })
	return tries[len(tries)/2]
}

// tell returns the time. It never goes back.
func (c *clock) tell() driver.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.read().UnixMicro()
	if t > c.seen {
		c.now += driver.Time(t - c.seen)
	}
	c.seen = t
	return c.now
}

// reach moves the clock to a time that somebody has written.
func (c *clock) reach(t driver.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, t)
}
