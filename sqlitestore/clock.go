package sqlitestore

import (
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// A clock is the store's. It begins where the machine's clock stands when the store is opened, or at the latest time in
// the database if that is ahead, and moves on by what passes: a machine's clock that is set, forward or back, ends no
// lease and no retention early, and holds none up.
type clock struct {
	read func() time.Time

	mu   sync.Mutex
	seen int64 // what read told last, in microseconds
	now  semel.Time
}

func newClock(read func() time.Time) *clock {
	if read == nil {
		start := time.Now()
		read = func() time.Time { return start.Add(time.Since(start)) } // on the monotonic clock
	}
	t := read()
	return &clock{read: read, seen: t.UnixMicro(), now: semel.TimeOf(t)}
}

// tell returns the time. It never goes back.
func (c *clock) tell() semel.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.read().UnixMicro()
	if t > c.seen {
		c.now += semel.Time(t - c.seen)
	}
	c.seen = t
	return c.now
}

// reach moves the clock to a time that somebody has written.
func (c *clock) reach(t semel.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, t)
}
