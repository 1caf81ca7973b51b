package redisstore

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
)

// A record's times are the server's. A script reads its clock. A native command can't: it takes times along that this
// process works out from what the server has told a moment before, between two of its own. That is safe for these reasons.
//
// The time of a claim is one that the server's clock has not passed when the claim is sent. Its lease is counted from
// there, and its owner counts it from the sending: so the lease is not over before its owner takes it for over. A lease is
// taken for over by scripts alone.
//
// No time is told before the server's clock has surely reached it. So times that are told, by whomever, never go back.
//
// A claim's fence is that time too, and so above the fence of each record of the key that has gone before: a key stays, as
// a record or as a mark, until the clock is fenceLife past its fence, and nothing is under way for so long.
//
// A process that was suspended after it read its clock does not rely on the reply. It claims again, by the script, which
// knows the claim by its token.
const (
	// clockTrust is for how long after the server was asked its clock is gone on from.
	clockTrust = 100 * time.Millisecond
	// fenceLife is the longest that a request of a guard is under way.
	fenceLife = defaults.MaxRequestLife
	// promptly is how long a native claim may take, but for a tenth of its lease if that is less.
	promptly = 10 * time.Second
	// steady is after how much time two clocks may disagree by one of its unit: by 50 parts in a million. A clock that is
	// being set right slowly is off by more. That is the same part of sampleLife here, and of the whole lease anyway.
	steady     = 20_000
	sampleLife = time.Second
	// narrow is how much longer than its reply a verb may have to wait. A sample that asks for more is not used again.
	narrow = 20 * time.Microsecond
	// brief is for how long a verb waits without sleep, which takes a millisecond at times.
	brief = 200 * time.Microsecond
)

// A clock goes on from what the server has told.
type clock struct{ last atomic.Pointer[sample] }

// A sample is what is known of the server's clock: at one moment it had reached a time, at another not passed a time.
type sample struct {
	reached, notPassed     driver.Time
	reachedAt, notPassedAt time.Time
	asked                  time.Time   // when the server was asked last
	again                  atomic.Bool // somebody asks it, before this is too old
	wide                   atomic.Bool // replies come sooner than it could be told
}

// low returns a time that the server's clock has reached at a moment, high one that it has not passed, if nobody has set
// it since.
func (s *sample) low(at time.Time) driver.Time {
	passed := at.Sub(s.reachedAt)
	return s.reached.Add(passed - passed.Abs()/steady)
}

func (s *sample) high(at time.Time) driver.Time {
	passed := at.Sub(s.notPassedAt)
	return s.notPassed.Add(passed + passed.Abs()/steady + time.Microsecond)
}

// set notes a time that the server told between two moments.
func (c *clock) set(told driver.Time, sent, got time.Time) {
	last := c.last.Load()
	next := &sample{reached: told, reachedAt: got, notPassed: told + 1, notPassedAt: sent, asked: sent}
	if last != nil && told >= last.low(sent) && told <= last.high(got) {
		low := told > last.low(got) || got.Sub(last.reachedAt) > sampleLife
		high := told < last.high(sent) || sent.Sub(last.notPassedAt) > sampleLife
		if sent.Sub(last.asked) < clockTrust/4 && !low && !high {
			return // it says nothing new
		}
		if !low {
			next.reached, next.reachedAt = last.reached, last.reachedAt
		}
		if !high {
			next.notPassed, next.notPassedAt = last.notPassed, last.notPassedAt
		}
		if last.asked.After(sent) {
			next.asked = last.asked
		}
	}
	c.last.Store(next)
}

// tell returns a time that the server's clock has reached, but for what the two have come to disagree about.
func (c *clock) tell() driver.Time {
	if last := c.last.Load(); last != nil {
		return last.low(time.Now())
	}
	return 0
}

// A reading is what the clock shows at a moment: the server's is between low and high.
type reading struct {
	*sample
	at        time.Time
	low, high driver.Time
}

// read reports false if the server was asked too long ago, or what it told says too little. It calls ask, which asks
// again, once before that.
func (c *clock) read(ask func()) (reading, bool) {
	for {
		last := c.last.Load()
		if last == nil || last.wide.Load() {
			return reading{}, false
		}
		now := time.Now()
		age := elapsed(last.asked, now)
		switch {
		case age > clockTrust:
			return reading{}, false
		case age > clockTrust/2 && last.again.CompareAndSwap(false, true):
			ask()
			continue
		}
		r := reading{last, now, last.low(now), last.high(now)}
		return r, r.high.Sub(r.low) <= clockTrust
	}
}

// settled waits until the server's clock has reached the reading's high time, and reports whether no more time than is
// allowed has passed since the reading. A reply has most often taken long enough.
func (r *reading) settled(allowed time.Duration) bool {
	for tries := 0; ; tries++ {
		now := time.Now()
		left := r.high.Sub(r.sample.low(now))
		if left <= 0 {
			return elapsed(r.at, now) <= allowed
		}
		if left > narrow {
			r.wide.Store(true)
		}
		if left > brief || tries > 1000 {
			time.Sleep(left)
		} else {
			runtime.Gosched()
		}
	}
}

// elapsed returns the time between two moments: what the monotonic clock says or the wall clock, whichever is more. While
// a machine is suspended the first stands still, and the second is set when it goes on.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)).Abs())
}
