package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/semelhq/semel/driver"
)

// The most that one group holds: so many verbs are executed in some milliseconds, and so many bytes written.
const (
	groupCalls = 512
	groupBytes = 8 << 20
)

// A line is where the writers of this process wait for each other. One of them has the lead: it executes the verbs of
// all that wait, in one transaction, and then hands the lead to the first of those that have come meanwhile. A
// transaction of a handler has the lead from its beginning to its end. There is no goroutine of the line's own, so that
// nothing is left behind, and nobody waits for a lead that is free.
type line struct {
	mu      sync.Mutex
	waiting []*call // those that came first are first
	led     bool
	held    bool // by a transaction that has the database's write lock, and will execute the renewals before it lets go
	slow    bool // somebody's transaction has the database, or will have it before the lead is passed on
	closed  bool
}

// errLook says that a blind call has to look first, for it would wait for somebody's transaction. It was not executed.
var errLook = errors.New("the line is slow: look first")

// A call is a verb in the line.
type call struct {
	do    func(*unit) error // may be executed again, if what it did was rolled back; nil asks for the lead alone
	size  int               // about so many bytes will be written
	last  bool              // the line is closed behind it
	blind bool              // its caller has not looked whether there is anything to write
	leads bool              // its caller has been told to lead
	err   error             // what became of it

	turn  chan turn // gets one
	stays bool      // a renewal: it stays in the line if its caller leaves while that is held
	taken bool      // it is being executed
	kept  bool      // by the transaction that held the line
}

type turn uint8

const (
	turnLead turn = iota // the lead is yours
	turnOver             // executed: see call.err
)

// enter puts a call in the line, and reports whether it leads, since nobody else does. With errLook a blind call is not
// in the line.
func (l *line) enter(c *call) (leads bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, ErrClosed
	}
	if c.blind && l.slow {
		return false, errLook
	}
	l.closed = c.last
	c.turn = make(chan turn, 1)
	if c.do == nil {
		l.slowLocked()
	}
	leads = !l.led
	l.led, c.leads = true, leads
	if !leads || c.do != nil {
		l.waiting = append(l.waiting, c)
	}
	return leads, nil
}

// wait waits for the call's turn, until ctx ends. With an error the caller has left: its call may be executed all the
// same if that had begun.
func (l *line) wait(ctx context.Context, c *call) (turn, error) {
	select {
	case t := <-c.turn:
		return t, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case t := <-c.turn:
		if t == turnOver {
			return t, nil
		}
		l.remove(c)
		l.passLocked()
		return 0, ctx.Err()
	default:
	}
	switch {
	case c.stays && (l.held || c.kept):
		return 0, fmt.Errorf("%w: %w", driver.ErrHeld, ctx.Err())
	case !c.taken:
		l.remove(c)
	}
	return 0, ctx.Err()
}

func (l *line) remove(c *call) {
	if i := slices.Index(l.waiting, c); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// group takes the calls out of the line that the leader executes: those that came first, up to one that does not fit,
// which no later one may overtake; one that is larger than a group is one alone. It is called with the write lock held,
// so that whoever has left while the leader waited for it is not among them.
func (l *line) group() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, n, full := 0, 0, false
	return l.take(func(c *call) bool {
		if c.do == nil { // a transaction has no part in a group
			return false
		}
		if full = full || n > 0 && (n >= groupCalls || size+c.size > groupBytes); full {
			return false
		}
		size, n = size+c.size, n+1
		return true
	})
}

// renewals takes the calls out of the line that must be executed before the write lock is let go. The line is not held
// any more.
func (l *line) renewals() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	return l.take(func(c *call) bool {
		c.kept = c.stays
		return c.stays
	})
}

// slows notes that somebody else has the database.
func (l *line) slows() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowLocked()
}

// slowLocked has the callers of blind calls look, instead of waiting for a transaction's end. It lasts until the lead is
// passed on.
func (l *line) slowLocked() {
	l.slow = true
	l.waiting = slices.DeleteFunc(l.waiting, func(c *call) bool {
		looks := c.blind && !c.leads
		if looks {
			c.err = errLook
			c.turn <- turnOver
		}
		return looks
	})
}

// take takes those calls out of the line that want says.
func (l *line) take(want func(*call) bool) (calls []*call) {
	var rest []*call
	for _, c := range l.waiting {
		if c.taken = want(c); c.taken {
			calls = append(calls, c)
		} else {
			rest = append(rest, c)
		}
	}
	l.waiting = rest
	return calls
}

// waits reports whether somebody waits behind those that the leader executes.
func (l *line) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) > 0
}

// hold notes that the leader has the database's write lock, and will execute the renewals before it lets go.
func (l *line) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

// answer tells the callers that their calls have been executed.
func (l *line) answer(calls []*call) {
	for _, c := range calls {
		c.turn <- turnOver
	}
}

// pass hands the lead to the first that waits, if any does.
func (l *line) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passLocked()
}

func (l *line) passLocked() {
	l.slow = slices.ContainsFunc(l.waiting, func(c *call) bool { return c.do == nil })
	if l.led = len(l.waiting) > 0; !l.led {
		return
	}
	c := l.waiting[0]
	c.leads = true
	if c.do == nil {
		l.waiting = l.waiting[1:]
	}
	c.turn <- turnLead
}

// resign gives the lead up for a call that is not executed. The call leaves the line.
func (l *line) resign(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
	l.passLocked()
}
