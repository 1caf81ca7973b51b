package chaos

import (
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/history"
)

// A Mode is a way in which effects are protected.
type Mode string

// The modes.
const (
	// Rerun is a gateway that runs a lost request again. The service does not deduplicate, so that each run shows: there
	// may be one effect a run, and each further run has to be explained by a kill.
	Rerun Mode = "rerun"
	// Hold is a gateway that never does: at most one effect.
	Hold Mode = "hold"
	// Tx is the library, with the settle joined to the handler's transaction: at most one effect, none unknown.
	Tx Mode = "tx"
	// OneCommit is the library with nothing but the handler's transaction: the same.
	OneCommit Mode = "one-commit"
)

// library reports whether the front has its effects itself, instead of a service behind it.
func (m Mode) library() bool { return m == Tx || m == OneCommit }

func (m Mode) onLost() semel.LostPolicy {
	if m == Hold {
		return semel.Hold
	}
	return semel.Rerun
}

func (m Mode) promise() history.Promise {
	if m == Rerun {
		return history.AtLeastOnce
	}
	return history.AtMostOnce
}

// A role is a part in the cast.
type role string

const (
	gatewayRole role = "gateway"
	libraryRole role = "library"
	serviceRole role = "service"
)

func (m Mode) front() role {
	if m.library() {
		return libraryRole
	}
	return gatewayRole
}

// A Point is a moment at which a process kills itself when it is told to, or another way in which it ends.
type Point string

// The points. Random is killed from outside, at any instruction; Drained is told to end, which it does in order, all
// fronts one after another.
const (
	Random          Point = "random"
	Drained         Point = "drained"
	AfterClaim      Point = "after-claim"       // the claim is durable, the handler has not begun
	InHandler       Point = "in-handler"        // in the service, before the effect
	AfterEffect     Point = "after-effect"      // in the service, before its answer
	InTransaction   Point = "in-transaction"    // the effect is written, the commit has not begun
	BeforeCommit    Point = "before-commit"     // within the database's COMMIT, before it is durable
	AfterCommit     Point = "after-commit"      // before the handler returns
	BeforeSettle    Point = "before-settle"     // the service has answered
	Unanswered      Point = "unanswered"        // a verb or COMMIT was sent to the store's server, its reply is not there
	AfterSettle     Point = "after-settle"      // the outcome is durable, no byte has left
	BeforeFirstByte Point = "before-first-byte" // the answer is on its way to the connection
	MidAnswer       Point = "mid-answer"        // the client has got the status line
	MidStream       Point = "mid-stream"        // the client has got the first events of a stream
)

// points returns those that a process of the given part comes by, and Drained if it is a front.
func (m Mode) points(r role, s Storage) []Point {
	committing := BeforeCommit
	if s.server() {
		committing = Unanswered
	}
	switch {
	case r == serviceRole:
		return []Point{InHandler, AfterEffect, MidStream}
	case m == Tx:
		return []Point{AfterClaim, InTransaction, committing, AfterCommit, BeforeFirstByte, MidAnswer, Drained}
	case m == OneCommit:
		return []Point{InTransaction, committing, AfterCommit, BeforeFirstByte, MidAnswer, Drained}
	}
	return []Point{AfterClaim, committing, BeforeSettle, AfterSettle, BeforeFirstByte, MidAnswer, MidStream, Drained}
}

// allPoints returns those at which processes of a run in this mode end, without Random.
func (m Mode) allPoints(s Storage) []Point {
	points := m.points(m.front(), s)
	if m.library() {
		return points
	}
	return append(m.points(serviceRole, s)[:2:2], points...)
}

// A lease is short, so that what a kill has left behind is taken over within the run, and not so short that a machine
// with other work on it loses leases by itself. With a server there is more work.
const (
	defaultLease       = 400 * time.Millisecond
	defaultServerLease = time.Second
)
