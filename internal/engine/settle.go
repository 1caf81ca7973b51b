package engine

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
)

// Settlement says what came of the settle of a run.
type Settlement uint8

// What came of a settle.
const (
	SettleAcknowledged Settlement = iota // durable, as this run's outcome
	SettleFenced                         // refused: the record is no longer this run's
	SettlePending                        // not acknowledged yet; settling goes on without the client
	SettleRolledBack                     // the run's transaction did not commit: nothing has happened
	SettleLost                           // the transaction did not commit, but there may be an effect elsewhere
)

// Settle makes the outcome durable. It runs on a context that the client can't cancel. It sends the settle until it is
// acknowledged: first for SettleWait, while the client waits; then without the client, up to MaxRun after the first
// try. Whatever fails, the claim is never freed instead. The returned record is the one after the settle.
//
// If a transaction has committed, its outcome counts, whatever o is.
func (r *Run) Settle(o driver.Outcome) (driver.Record, Settlement) {
	first := time.Now()
	replied := false
	defer func() {
		if !replied { // no reply in time, or the store has ended this goroutine
			go r.settleLater(first.Add(r.Policy.MaxRun), o)
		}
	}()
	j := &r.joint
	if r.Policy.OneCommit && j.state < doubtful {
		switch {
		case j.open == nil: // the transaction was rolled back
		case o.State == driver.Done:
			r.commit(j.open, o) //nolint:errcheck // commit has told the observer
		default:
			r.rollback(j.open)
		}
		switch {
		case o.State != driver.Done:
			replied = true
			return r.ended(driver.Record{}, true)
		case j.state < doubtful:
			replied = true
			r.ended(driver.Record{}, true)
			return driver.Record{}, SettleRolledBack
		}
	}
	switch j.state {
	case committed:
		replied = true
		return r.ended(*j.rec, true)
	case doubtful:
		o = r.uncommitted()
	}
	r.stored(&o)
	// A client that has had an answer does not expect more. Without the stored request nobody could finish the operation.
	o.Owed = o.State != driver.Done && len(r.sealed) > 0 && (o.Owed || r.promised.Load())
	rec, owned, ok := r.trySettle(first.Add(r.Policy.SettleWait), &o)
	if replied = ok; ok {
		return r.conclude(rec, owned)
	}
	return driver.Record{}, SettlePending
}

// stored changes an outcome into the one that the store gets.
func (r *Run) stored(o *driver.Outcome) {
	if o.State == driver.Done {
		o.Retention = r.retention()
	}
	o.Response = r.keyring.Seal(r.ask.ID, r.owner.Token, o.Response)
}

func (r *Run) conclude(rec driver.Record, owned bool) (driver.Record, Settlement) {
	if r.joint.state == doubtful {
		return r.resolve(rec, owned)
	}
	return r.ended(rec, owned)
}

// settleLater goes on without the client. If the store ends its goroutine, the settle does not end.
func (r *Run) settleLater(until time.Time, o driver.Outcome) {
	returned := false
	defer func() {
		switch {
		case returned:
		case time.Now().Before(until):
			time.AfterFunc(time.Second, func() { r.settleLater(until, o) })
		default:
			r.abandonSettle()
		}
	}()
	rec, owned, ok := r.trySettle(until, &o)
	if returned = true; ok {
		r.conclude(rec, owned)
	} else {
		r.abandonSettle()
	}
}

func (r *Run) abandonSettle() {
	defer r.ended(driver.Record{}, true)
	r.Tell(event.SettleAbandoned, context.DeadlineExceeded)
}

// trySettle sends the settle until it is acknowledged or the time is over. No copy of it is under way for longer than a
// request's life.
func (r *Run) trySettle(until time.Time, o *driver.Outcome) (rec driver.Record, owned, acknowledged bool) {
	t := tries{until: until}
	for try := 1; ; try++ {
		var err error
		rec, owned, err = r.sendSettle(t, o)
		switch {
		case err == nil:
			return rec, owned, true
		case errors.Is(err, driver.ErrFull) && o.Response != nil:
			// The answer can't be stored. The fact that there was one can: a marker always fits.
			r.Tell(event.NotReplayable, err)
			o.Response = nil
		case err == errNoTurn || !t.wait(r.base, try): //nolint:errorlint // it is not wrapped
			return driver.Record{}, false, false
		}
	}
}

// sendSettle sends the settle once. A large answer waits for its turn.
func (r *Run) sendSettle(t tries, o *driver.Outcome) (rec driver.Record, owned bool, err error) {
	if n := r.large(o); n > 0 {
		if !r.answers.take(r.base, r.ask.ID.Scope(), n, time.Until(t.until)) {
			return driver.Record{}, false, errNoTurn
		}
		defer r.answers.give(r.ask.ID.Scope(), n) // also if the store ends this goroutine
	}
	q := request{verb: "settle", id: r.ask.ID}
	if r.settling.Parent == nil { // else the store may still hold it
		q.room = &r.settling
	}
	err = r.askUntil(r.base, t.cut(r.life), q, func(ctx context.Context) (err error) {
		if r.Policy.OneCommit {
			rec, owned, err = r.askCommitted(ctx)
		} else {
			rec, owned, err = r.store.Settle(ctx, r.ask.ID, r.owner, *o)
		}
		return err
	})
	return rec, owned, err
}

// errNoTurn means that nothing was sent.
var errNoTurn = errors.New("other answers of the principal are being stored")

// ended ends the run: its lease and its contexts. Drain no longer waits for it.
func (r *Run) ended(rec driver.Record, owned bool) (driver.Record, Settlement) {
	r.lease.stop()
	r.ctx.End(nil)
	if r.face != nil {
		r.face.Ended()
	}
	r.waiting.wake(r.ask.ID)
	if r.resent {
		r.releases.addAbove(r.ask.ID, r.owner, r.began)
	}
	defer r.work.end(r)
	if !owned {
		r.Tell(event.Fenced, nil)
		return rec, SettleFenced
	}
	return rec, SettleAcknowledged
}
