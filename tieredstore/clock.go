package tieredstore

import (
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
)

// A clock tells the time of the durable store between its replies. What it tells is not behind, as long as both clocks
// run equally fast, and ahead by no more than the last reply took.
type clock struct {
	tell func() time.Time // this process's
	last atomic.Pointer[reply]
}

// A reply showed the durable store's clock, not before it was asked for at the given time.
type reply struct {
	sent time.Time
	now  driver.Time
}

// clockLife is how long a reply tells the time. Clocks that differ by 100 ppm are then 0.4 s apart.
const clockLife = time.Hour

func (c *clock) learn(sent time.Time, now driver.Time) { c.last.Store(&reply{sent, now}) }

// at returns the durable store's time at a time of this process, or false if that can't be told.
func (c *clock) at(t time.Time) (driver.Time, bool) {
	r := c.last.Load()
	if r == nil {
		return 0, false
	}
	since := elapsed(r.sent, t)
	return r.now.Add(since), since < clockLife
}

// A moment is a time of this process by both of its clocks, as the time since another one. It holds no pointer.
type moment struct{ monotonic, wall time.Duration }

func momentOf(start, t time.Time) moment { return moment{t.Sub(start), t.Round(0).Sub(start.Round(0))} }

// until returns the time from one moment to a later one. The monotonic clock stands still while the machine sleeps, the
// wall clock may be set back: it is the longer of the two.
func (m moment) until(later moment) time.Duration {
	return max(later.monotonic-m.monotonic, later.wall-m.wall)
}

// elapsed returns the time from one time of this process to a later one.
func elapsed(from, to time.Time) time.Duration { return moment{}.until(momentOf(from, to)) }
