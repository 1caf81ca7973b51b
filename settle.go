package semel

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
)

// settled says how far the settle of a run has come.
type settled uint8

const (
	settledOwn     settled = iota // durable, as this run's outcome
	settledFenced                 // refused: the record is no longer this run's
	settledLater                  // not acknowledged yet; settling goes on without the client
	settledNothing                // the run's transaction did not commit: nothing has happened
	settledLost                   // it did not commit, but there may be an effect elsewhere
)

// settle makes the outcome durable. It runs on a context that the client can't cancel. It sends the settle until it is
// acknowledged: for SettleWait while the client waits, then up to MaxRun after the first try without it. The claim is
// never freed instead, whatever fails. The record is as it stands after the settle.
//
// What a transaction has committed is the outcome, whatever o is.
func (r *run) settle(o driver.Outcome) (driver.Record, settled) {
	j := &r.joint
	if r.policy.OneCommit && j.state < doubtful {
		switch {
		case j.open == nil: // it was rolled back
		case o.State == driver.Done:
			r.commit(j.open, o) //nolint:errcheck // it has told the observer
		default:
			r.rollback(j.open)
		}
		switch {
		case o.State != driver.Done:
			return r.ended(driver.Record{}, true)
		case j.state < doubtful:
			r.ended(driver.Record{}, true)
			return driver.Record{}, settledNothing
		}
	}
	switch j.state {
	case committed:
		return r.ended(*j.rec, true)
	case doubtful:
		o = r.uncommitted()
	}
	r.stored(&o)
	// Whoever has had an answer does not expect more; without the request nobody could finish it.
	o.Owed = o.State != driver.Done && r.sealed && (o.Owed || r.promised.Load())
	first := time.Now()
	replied := false
	defer func() {
		if !replied { // in time, or the store has ended this goroutine
			go r.settleLater(first.Add(r.policy.MaxRun), o)
		}
	}()
	rec, owned, ok := r.trySettle(first, first.Add(r.policy.SettleWait), &o)
	if replied = ok; ok {
		return r.conclude(rec, owned)
	}
	return driver.Record{}, settledLater
}

// stored makes an outcome what the store gets of it.
func (r *run) stored(o *driver.Outcome) {
	if o.State == driver.Done {
		o.Retention = r.retention()
	}
	o.Response = r.core.keyring.Seal(r.ask.id, r.owner.Token, o.Response)
}

func (r *run) conclude(rec driver.Record, owned bool) (driver.Record, settled) {
	if r.joint.state == doubtful {
		return r.resolve(rec, owned)
	}
	return r.ended(rec, owned)
}

// settleLater goes on without the client. A store that ends its goroutine does not end the settle.
func (r *run) settleLater(until time.Time, o driver.Outcome) {
	returned := false
	defer func() {
		switch {
		case returned:
		case time.Now().Before(until):
			time.AfterFunc(longestSettlePause, func() { r.settleLater(until, o) })
		default:
			r.abandonSettle()
		}
	}()
	rec, owned, ok := r.trySettle(time.Now(), until, &o)
	if returned = true; ok {
		r.conclude(rec, owned)
	} else {
		r.abandonSettle()
	}
}

func (r *run) abandonSettle() {
	r.event(event.SettleAbandoned, context.DeadlineExceeded)
	r.ended(driver.Record{}, true)
}

const longestSettlePause = time.Second

// trySettle sends the settle, from now on, until it is acknowledged or the time has come. No copy of it is under way
// for longer than a request's life.
func (r *run) trySettle(now, until time.Time, o *driver.Outcome) (rec driver.Record, owned, acknowledged bool) {
	const firstPause = 10 * time.Millisecond
	for wait := firstPause; ; wait, now = min(2*wait, longestSettlePause), time.Now() {
		var err error
		if rec, owned, err = r.sendSettle(now, until, o); err == nil {
			return rec, owned, true
		}
		if errors.Is(err, errNoTurn) {
			return driver.Record{}, false, false
		}
		r.core.storeFailed(r.base, "settle", r.ask.id, err)
		if errors.Is(err, driver.ErrFull) && o.Response != nil {
			// The answer can't be stored, but that there was one can: a marker always fits.
			r.event(event.NotReplayable, err)
			o.Response = nil
			continue
		}
		left := time.Until(until)
		if left <= 0 {
			return driver.Record{}, false, false
		}
		time.Sleep(min(jitter(wait), left))
	}
}

// sendSettle sends the settle once. A large answer waits for its turn, until the time has come.
func (r *run) sendSettle(now, until time.Time, o *driver.Outcome) (driver.Record, bool, error) {
	if o.Response != nil && len(o.Response.Body) > smallAnswer && !r.policy.OneCommit {
		p, n := r.ask.id.Scope(), len(o.Response.Body)
		if !r.core.answers.take(r.base, p, n, until.Sub(now)) {
			return driver.Record{}, false, errNoTurn
		}
		defer r.core.answers.give(p, n)
		now = time.Now()
	}
	ctx := newDeadlineAt(r.base, now.Add(r.core.life))
	defer ctx.end(nil)
	if until.Before(ctx.at) {
		ctx.at = until
	}
	if r.policy.OneCommit {
		return r.askCommitted(ctx)
	}
	return r.core.store.Settle(ctx, r.ask.id, r.owner, *o)
}

// errNoTurn means that nothing was sent.
var errNoTurn = errors.New("other answers of the principal are being stored")

// ended ends the run: its lease, its contexts, and what Drain waits for.
func (r *run) ended(rec driver.Record, owned bool) (driver.Record, settled) {
	r.lease.stop()
	r.ctx.end(nil)
	r.letGo()
	r.core.waiting.wake(r.ask.id)
	if r.resent {
		r.core.owed.add(r.ask.id, driver.Owner{Fence: r.owner.Fence, Token: r.owner.Token, Above: true}, r.began)
	}
	defer r.core.work.end(r)
	if !owned {
		r.event(event.Fenced, nil)
		return rec, settledFenced
	}
	return rec, settledOwn
}

// markBegun makes it durable that the first byte of a streamed answer may leave. Only if that is acknowledged may it.
func (r *run) markBegun() error {
	ctx := newDeadline(r.base, min(r.policy.SettleWait, r.core.life))
	defer ctx.end(nil)
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		sent := time.Now()
		owned, err := r.core.store.Extend(ctx, r.ask.id, r.owner, driver.Extension{Lease: r.policy.Lease, Begun: true})
		switch {
		case err == nil && owned:
			r.lease.renewed(sent)
			return nil
		case err == nil:
			r.lease.fenced()
			return ErrFenced
		}
		r.core.storeFailed(r.base, "extend", r.ask.id, err)
		if !pause(ctx, jitter(wait)) {
			return err
		}
	}
}
