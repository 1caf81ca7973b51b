package outbox

import (
	"time"

	"github.com/semelhq/semel/internal/pause"
)

// A laneEnd says how a batch of a lane went.
type laneEnd int

const (
	nothingSaid laneEnd = iota // nothing was given to the publisher
	answered                   // the broker has acknowledged or refused a message last
	allFailed                  // it has not, and something failed
)

// A laneState is that of a lane in which everything has failed last.
type laneState struct {
	failures int
	until    time.Time // it is paused until then, and probed afterwards
	probing  bool      // a batch is under way
}

// laneForgotten is how long after its pause a lane without messages is remembered.
const laneForgotten = 10 * time.Minute

// note learns from the end of a batch.
func (s *shift) note(lane Lane, end laneEnd) {
	l := s.lanes[lane]
	switch {
	case end == allFailed && l != nil && time.Until(l.until) > 0: // it was sent before the pause
	case end == allFailed:
		if l == nil {
			l = &laneState{}
			s.lanes[lane] = l
		}
		l.failures++
		d := pause.Jitter(pause.Backoff(lanePause, laneLongest, l.failures))
		l.until, l.probing = time.Now().Add(d), false
		s.relay.counts.pauses.Add(1)
		s.relay.observe(Event{Kind: LanePaused, Lane: lane, Delay: d})
	case l == nil:
	case end == answered:
		delete(s.lanes, lane)
		s.relay.observe(Event{Kind: LaneResumed, Lane: lane})
	default:
		l.probing = false
	}
}

// limits are those of the lanes in which everything has failed last.
func (s *shift) limits() map[Lane]int {
	var limits map[Lane]int
	for lane, l := range s.lanes {
		left := time.Until(l.until)
		if left < -laneForgotten && !l.probing {
			delete(s.lanes, lane)
			continue
		}
		if limits == nil {
			limits = make(map[Lane]int, len(s.lanes))
		}
		if limits[lane] = 1; l.probing || left > 0 {
			limits[lane] = 0
		}
	}
	return limits
}

// A throttle limits how many messages are leased in a second. A rate of 0 is no limit.
type throttle struct {
	rate  float64
	have  float64 // messages that may be leased
	since time.Time
}

// burst is what may be leased at once: what a tenth of a second allows.
func (t *throttle) burst() float64 { return max(1, t.rate/10) }

// allows returns how many messages may be leased, at most n.
func (t *throttle) allows(n int) int {
	if t.rate == 0 {
		return n
	}
	now := time.Now()
	if t.since.IsZero() {
		t.have = t.burst()
	} else {
		t.have = min(t.burst(), t.have+now.Sub(t.since).Seconds()*t.rate)
	}
	t.since = now
	return min(n, int(t.have))
}

func (t *throttle) took(n int) { t.have -= float64(n) }

// wait returns how long it takes until a message may be leased.
func (t *throttle) wait() time.Duration {
	if t.rate == 0 || t.have >= 1 {
		return 0
	}
	return time.Duration(min((1-t.have)/t.rate*float64(time.Second), float64(maxDelay))) + time.Microsecond
}
