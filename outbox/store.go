package outbox

import (
	"context"
	"time"

	"github.com/semelhq/semel/driver"
)

// A Store keeps an outbox, for any number of relays and operators in any number of processes. Its methods are called
// concurrently. Times are those of the store's clock. An error means that the system failed; what was asked for may have
// been done all the same, and can be asked for again. Package outboxtest proves a store.
//
// A message is pending, dead or sent. A pending one is blocked while the outbox has an older one of its lane and key
// that is pending, or that is dead and holds the key. Older means added earlier, not committed earlier: a message that
// is committed late is found by its state.
type Store interface {
	// Lease leases pending messages: until the lease is over no other call leases them. They are due, not leased, and not
	// blocked, unless only by messages that the same call leases. Those of one lane are returned in the order in which they
	// were added. It takes no lock that lasts beyond the call, and waits for none. What is unreadable is leased too, with
	// Entry.Err set.
	//
	// Another call that looks at the same time may keep this one from what could be leased. If nothing is leased for that
	// reason, the store may return [ErrBusy]. The relay then leaves the work to the other one for a while.
	Lease(ctx context.Context, r LeaseRequest) ([]Entry, error)

	// Settle says what became of leased messages. It changes nothing about those that the token has no lease of any more,
	// whether or not somebody else has: their results are dropped.
	Settle(ctx context.Context, t driver.Token, results []Result) error

	// Clean deletes at most limit sent messages whose time to be kept is over, and returns how many; fewer than limit means
	// that none is left for now.
	Clean(ctx context.Context, limit int) (int, error)

	// List calls yield for messages that match q, in the order of their ids, until yield returns false or q.Limit were
	// given. It is not a snapshot.
	List(ctx context.Context, q Query, yield func(Entry) bool) error

	// Requeue makes dead messages pending again, without an attempt, and pending ones due at once. It returns how many. It
	// leaves those alone that are sent or leased.
	Requeue(ctx context.Context, ids ...string) (int, error)

	// Drop deletes messages in any state, and returns how many. It leaves those alone that are leased.
	Drop(ctx context.Context, ids ...string) (int, error)

	// Stats counts. It may read every message that is not sent.
	Stats(ctx context.Context) (Stats, error)

	// Changed returns a channel that is closed when messages may have become due in another way than by time, as far as
	// this process knows. Who takes it before a call of Lease misses nothing that is known here.
	Changed() <-chan struct{}
}

// A Listener is a [Store] that can be told by other processes that there are messages.
type Listener interface {
	Store

	// Listen closes the channels of Changed when another process has added messages. It returns when ctx ends, with an
	// error when its connection has failed, or at once with one that wraps [errors.ErrUnsupported] if the store was opened
	// without that.
	Listen(ctx context.Context) error
}

// A Lane is what relays take turns between: one tenant's messages to one topic.
type Lane struct {
	Topic, Tenant string
}

// A LeaseRequest says which messages to lease.
type LeaseRequest struct {
	Token driver.Token  // a new one for each call; a call that is repeated may leave messages leased until the lease is over
	Lease time.Duration // how long, by the store's clock

	After Lane // the lanes behind this one, in the order of their topics' and tenants' bytes, come first, then the others
	Lanes int  // from so many lanes at most
	Limit int  // so many messages of one lane at most
	Max   int  // so many messages at most
	Bytes int  // of payloads of one lane at most, except that one message may be larger

	Skip   []string     // topics of which nothing is leased
	Limits map[Lane]int // lanes that have another Limit; 0 means nothing
}

// State is the state of a message in an outbox.
type State uint8

// The states. The numbers are what stores keep.
const (
	Pending State = 1 // to be sent
	Dead    State = 2 // given up: a dead letter
	Sent    State = 3 // acknowledged by the broker, and kept for a while
)

func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Dead:
		return "dead"
	case Sent:
		return "sent"
	}
	return "unknown"
}

// An Entry is a message in an outbox.
type Entry struct {
	Message // without Delay

	State    State
	Attempts int       // so often was sending it tried in vain
	Error    string    // of the last attempt; empty if there was none, or it is sent
	Since    time.Time // from when on it could be sent: when it was added, and its delay
	Due      time.Time // when it is to be sent, or sent again, at the earliest; not set if it is due, leased or not pending
	Ended    time.Time // when it was sent or died
	Leased   bool      // a relay is about to send it
	Holds    bool      // it is dead, and keeps later messages of its key back

	// Err says why payload and headers can't be read; they are then empty. It wraps driver.ErrUnreadable.
	Err error
}

// Lane returns the message's lane.
func (e *Entry) Lane() Lane { return Lane{Topic: e.Topic, Tenant: e.Tenant} }

// Outcome is what became of a leased message.
type Outcome uint8

// The outcomes.
const (
	// Acknowledged: the broker has it. It is sent.
	Acknowledged Outcome = 1
	// Failed: sending it failed; it is pending again, due after Result.Delay. The attempt counts.
	Failed Outcome = 2
	// GivenUp: sending it failed for the last time; it is dead. The attempt counts.
	GivenUp Outcome = 3
	// PutBack: it was not sent, or the attempt does not count; it is pending as before the lease.
	PutBack Outcome = 4
)

// A Result is what became of a leased message.
type Result struct {
	ID      string
	Outcome Outcome
	Delay   time.Duration // after Failed
	Error   string        // after Failed and GivenUp
	Hold    bool          // after GivenUp: it keeps later messages of its key back
}

// A Query selects messages. Fields at their zero value select all.
type Query struct {
	State              State
	Topic, Key, Tenant string
	IDs                []string
	After              string // only ids after this one
	Limit              int    // at most so many; 0 means all
}

// Stats say how an outbox does. Ages are by the store's clock.
type Stats struct {
	Pending int64         // messages to be sent, those with a delay included
	Dead    int64         // dead letters
	Lag     time.Duration // since when the message could have been sent that waits longest; 0 if none waits
	Topics  map[string]TopicStats
}

// TopicStats are those of one topic that has pending or dead messages.
type TopicStats struct {
	Pending, Dead int64
	Lag           time.Duration
}
