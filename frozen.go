package semel

import (
	"errors"
	"maps"
	"net/http"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// A point is the state of an answer when a transaction began.
type point struct {
	header  http.Header
	verdict uint32
	fresh   bool // nothing was written
	left    bool // the transaction was rolled back, and left an error in the answer
}

// Mark sets the state to which Rewind returns. From then on the answer is held, on streaming routes too: after a
// rollback a success must not leave. An error that another transaction has left is not the answer of this one.
func (x *execution) Mark() error {
	c := &x.capture
	if c.begun {
		return errors.New("begin a transaction: the answer has left in part, so it can't be part of one")
	}
	if c.point.left {
		x.Rewind(true)
	}
	c.point = point{fresh: c.status == 0, header: c.header.Clone(), verdict: x.op.verdict.Load()}
	c.holds = true
	return nil
}

// Rewind drops what was written since Mark: everything if all is set, else only if it says that something was done. An
// answer that was written before Mark stays; it is overruled if it says that something was done.
func (x *execution) Rewind(all bool) {
	c := &x.capture
	c.frozen, c.trailers = false, nil
	if c.status >= 400 && !all {
		c.point.left = true
		return
	}
	x.op.verdict.Store(c.point.verdict)
	if !c.point.fresh {
		return
	}
	c.discard()
	clear(c.header)
	maps.Copy(c.header, c.point.header)
	c.status, c.sent, c.shared = 0, nil, false
	c.body.Reset()
	c.unkept = nil
}

// Freeze ends the answer: what the handler writes later is refused.
func (x *execution) Freeze(err error) (o driver.Outcome, keep bool, failed error) {
	c := &x.capture
	switch {
	case c.unkept != nil:
		return o, false, c.unkept
	case x.run.IsLost(), c.status == 0 && err != nil:
		return driver.Outcome{State: driver.Free}, false, nil //nolint:nilerr // the error is the caller's decision
	case c.status == 0:
		return o, false, refusal.NoAnswer
	}
	o = x.decideAnswer(false).Outcome
	keep = o.State == driver.Done && (err == nil || c.status >= 400 && c.status < 500)
	if keep {
		c.trailers = c.trailer()
		c.frozen = true
	}
	return o, keep, nil
}
