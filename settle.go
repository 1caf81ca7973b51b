package semel

import (
	"context"
	"errors"
	"time"
)

// settled says how far the settle of a run has come.
type settled uint8

const (
	settledOwn    settled = iota // durable, as this run's outcome
	settledFenced                // refused: the record is no longer this run's
	settledLater                 // not acknowledged yet; settling goes on without the client
)

// settle makes the outcome durable. It runs on a context that the client can't cancel. It sends the settle until it is
// acknowledged: for SettleWait while the client waits, then up to MaxRun after the first try without it. The claim is
// never freed instead, whatever fails. The record is as it stands after the settle.
func (r *run) settle(o Outcome) (Record, settled) {
	first := time.Now()
	ctx := newDeadline(r.base, r.policy.SettleWait)
	defer ctx.end(nil)
	if rec, owned, ok := r.trySettle(ctx, &o); ok {
		return r.ended(rec, owned)
	}
	go func() {
		ctx, cancel := context.WithDeadline(r.base, first.Add(r.policy.MaxRun))
		defer cancel()
		rec, owned, ok := r.trySettle(ctx, &o)
		if !ok {
			r.event(EventSettleAbandoned, ctx.Err())
		}
		r.ended(rec, owned || !ok)
	}()
	return Record{}, settledLater
}

// trySettle sends the settle until it is acknowledged or ctx ends.
func (r *run) trySettle(ctx context.Context, o *Outcome) (rec Record, owned, acknowledged bool) {
	const firstPause, longestPause = 10 * time.Millisecond, time.Second
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		one := newDeadline(ctx, r.core.life)
		rec, owned, err := r.core.store.Settle(one, r.ask.id, r.owner, *o)
		one.end(nil)
		if err == nil {
			return rec, owned, true
		}
		r.core.storeFailed(r.base, "settle", r.ask.id, err)
		if errors.Is(err, ErrFull) && o.Response != nil {
			// The answer can't be stored, but that there was one can: a marker always fits.
			r.event(EventNotReplayable, err)
			o.Response = nil
			continue
		}
		if !pause(ctx, jitter(wait)) {
			return Record{}, false, false
		}
	}
}

// ended ends the run: its lease, its contexts, and what Drain waits for.
func (r *run) ended(rec Record, owned bool) (Record, settled) {
	r.lease.stop()
	r.ctx.end(nil)
	r.core.waiting.wake(r.ask.id)
	if r.resent {
		r.core.owed.add(r.ask.id, Owner{Fence: r.owner.Fence, Token: r.owner.Token, Above: true}, r.sent)
	}
	defer r.core.work.done()
	if !owned {
		r.event(EventFenced, nil)
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
		owned, err := r.core.store.Extend(ctx, r.ask.id, r.owner, Extension{Lease: r.policy.Lease, Begun: true})
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
