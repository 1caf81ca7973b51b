package outbox

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/thrown"
)

// EventKind says what an [Event] is about.
type EventKind string

// The kinds of events.
const (
	MessageFailed EventKind = "message_failed" // an attempt that counts has failed; Delay is that until the next one
	MessageDead   EventKind = "message_dead"   // a message was given up
	LanePaused    EventKind = "lane_paused"    // everything has failed in a lane, which is paused for Delay
	LaneResumed   EventKind = "lane_resumed"   // the broker answers again for a lane that was paused
	StoreFailed   EventKind = "store_failed"   // a call of the store failed; the relay tries again
)

// An Event is something that an operator may want to know of a relay.
type Event struct {
	Kind     EventKind
	Lane     Lane
	ID, Key  string // of a message
	Attempts int    // of a message, with this one
	Delay    time.Duration
	Call     string // of the store
	Err      error
}

// LogTo returns an observer that writes one line for each event. The lines have level Warn, or Info for LaneResumed.
func LogTo(log *slog.Logger) func(Event) {
	return func(e Event) {
		attrs := []any{slog.String("event", "outbox_"+string(e.Kind))}
		add := func(name, value string) {
			if value != "" {
				attrs = append(attrs, slog.String(name, value))
			}
		}
		add("topic", e.Lane.Topic)
		add("tenant", e.Lane.Tenant)
		add("message", e.ID)
		add("key", e.Key)
		add("call", e.Call)
		if e.Attempts > 0 {
			attrs = append(attrs, slog.Int("attempts", e.Attempts))
		}
		if e.Delay > 0 {
			attrs = append(attrs, slog.Duration("delay", e.Delay))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.String("error", e.Err.Error()))
		}
		if e.Kind == LaneResumed {
			log.Info("outbox", attrs...)
		} else {
			log.Warn("outbox", attrs...)
		}
	}
}

// Counts are what a relay has counted since it was made.
type Counts struct {
	Sent        uint64 // messages that were acknowledged
	Failed      uint64 // attempts that failed and count, except for the last ones of messages that died
	Dead        uint64 // messages that were given up
	PutBack     uint64 // messages that were leased and not sent, or whose attempt does not count
	Pauses      uint64 // of lanes
	StoreErrors uint64
}

type counters struct {
	sent, failed, dead, putBack, pauses, storeErrors atomic.Uint64
}

// Counts returns what the relay has counted.
func (r *Relay) Counts() Counts {
	c := &r.counts
	return Counts{c.sent.Load(), c.failed.Load(), c.dead.Load(), c.putBack.Load(), c.pauses.Load(), c.storeErrors.Load()}
}

func (r *Relay) storeFailed(call string, err error) {
	r.counts.storeErrors.Add(1)
	r.observe(Event{Kind: StoreFailed, Call: call, Err: err})
}

// observe tells the observer. A panic in it changes nothing for the messages.
func (r *Relay) observe(e Event) {
	var err error
	func() {
		defer thrown.Catch(&err)
		r.o.Observe(e)
	}()
	if err != nil {
		slog.Default().Error("outbox: an observer has failed", "event", string(e.Kind), "error", err)
	}
}
