package engine

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/refusal"
)

// A reply that took longer than this part of the lease is too late to start a handler.
const leaseMargin = 0.8

// marginOf returns 80 % of a lease. Within this time after it has sent the last acknowledged claim or extend, an owner
// has to stop.
func marginOf(lease time.Duration) time.Duration { return time.Duration(float64(lease) * leaseMargin) }

// Enter asks for the operation until there is an answer: a run to execute, or a refusal. If there is neither, the
// operation is done, and rec holds its record.
func (r *Route) Enter(ctx context.Context, a *Ask, rec *driver.Record) (*Run, *Refusal) {
	now := time.Now()
	if refused := r.withinCaps(ctx, a, now); refused != nil {
		return nil, refused
	}
	deadline := now.Add(a.Wait)
	var ticket *ticket
	defer func() { r.waiting.leave(ticket) }()
	waits := a.Wait > 0
	for raced := 0; ; {
		run, refused := r.Claim(ctx, a, rec)
		switch {
		case refused != nil:
			return nil, refused
		case run != nil:
			r.keys.add(a.ID.Scope(), rec)
			return run, nil
		}
		refused = r.recorded(a, rec)
		switch {
		case refused == nil:
			return nil, nil
		case refused.Code == refusal.OutcomeUnknown && rec.State == driver.Running:
			r.Tell(ctx, a, rec, event.Lapsed, nil)
			return nil, refused
		case refused.Code != refusal.InProgress:
			return nil, refused
		case rec.Reads(r.Policy.OnLost) != driver.ReadsRunning:
			// A release that overtook this claim has spent the claim's own token. Nothing was run.
			if raced++; raced == claimTries {
				return nil, &Refusal{Code: refusal.StoreUnavailable, Shut: true}
			}
			continue
		case !waits:
			return nil, refused
		case ticket == nil:
			if ticket = r.waiting.join(a.ID, r.Policy.MaxWaiters); ticket == nil {
				return nil, refused
			}
			continue // the owner may have settled before this request joined
		}
		waits = r.waiting.wait(ctx, ticket, r.Engine, rec, deadline)
		if ctx.Err() != nil {
			return nil, refused
		}
	}
}

// recorded says what an operation's record means for a request that is not to run it; nil if the request gets the
// stored answer.
func (r *Route) recorded(a *Ask, rec *driver.Record) *Refusal {
	reads := rec.Reads(r.Policy.OnLost)
	switch {
	case reads == driver.ReadsAbsent:
		return InProgress(rec)
	case rec.Fingerprint.Settings != a.Fingerprint.Settings && !rec.Fingerprint.Equal(a.Fingerprint):
		return &Refusal{Code: refusal.ReplayUnavailable, Detail: "the way requests are compared has changed since"}
	case !rec.Fingerprint.Equal(a.Fingerprint):
		return &Refusal{Code: refusal.KeyReused}
	}
	switch reads {
	case driver.ReadsDone:
		return nil
	case driver.ReadsExpired:
		return &Refusal{Code: refusal.KeyExpired}
	case driver.ReadsUnknown:
		return &Refusal{Code: refusal.OutcomeUnknown}
	}
	return InProgress(rec)
}

// Overtaken says what the record means for the client of a run that no longer owns it, or whose answer could not be
// kept; nil if the client gets the stored answer.
func (r *Route) Overtaken(a *Ask, rec *driver.Record) *Refusal {
	refused := r.recorded(a, rec)
	if refused == nil || refused.Code == refusal.InProgress && rec.Reads(r.Policy.OnLost) != driver.ReadsAbsent {
		return refused
	}
	return &Refusal{Code: refusal.OutcomeUnknown}
}

// Claim sends a claim until it is acknowledged, a bounded number of times. It leaves the resulting record in rec. It
// ends within its window, not with ctx: the store's reply decides what has to be done. If the client has gone by then,
// nothing is run.
func (r *Route) Claim(ctx context.Context, a *Ask, rec *driver.Record) (*Run, *Refusal) {
	if refused := r.mayClaim(ctx, a); refused != nil {
		return nil, refused
	}
	if refused := r.KnowsSecret(ctx); refused != nil {
		return nil, refused
	}
	if r.Policy.OneCommit {
		return r.claimTx(ctx, a, rec) // it may wait for the commit of another, and the store's connections bound it
	}
	if !r.claims.take(ctx, a.ID.Scope(), 1, min(claimWindow, r.life)) {
		if ctx.Err() != nil {
			return nil, unavailable(ctx, ctx.Err())
		}
		return nil, r.crowded(ctx, a, r.Policy.FailOpen, "too many claims are under way")
	}
	defer r.claims.give(a.ID.Scope(), 1)
	c := claiming{ask: a, claim: r.claimOf(a)}
	returned := false
	defer func() {
		if !returned && c.copies > 0 { // the store has ended this goroutine
			r.releases.add(a.ID, c.claim.Token, c.sent)
		}
	}()
	r.send(ctx, &c, rec)
	returned = true
	return r.judge(ctx, &c, rec)
}

// mayClaim refuses a request whose client has gone, or that comes while too many releases are owed.
func (r *Route) mayClaim(ctx context.Context, a *Ask) *Refusal {
	if ctx.Err() != nil {
		return unavailable(ctx, ctx.Err())
	}
	switch r.releases.full(a.ID.Scope()) {
	case budget.HasRoom:
		return nil
	case budget.AllFull:
		// When a store works again, some releases are still left for a while, and clients choose when they ask.
		return r.crowded(ctx, a, r.Policy.FailOpen, "too many claims got no reply")
	}
	return r.crowded(ctx, a, false, "too many claims got no reply")
}

// crowded refuses a request for which there is no room. A request fails open only if the store does not reply. If that
// may be the reason, crowded asks the store in a way that leaves nothing to be owed.
func (r *Route) crowded(ctx context.Context, a *Ask, look bool, why string) *Refusal {
	if look {
		if _, err := r.Load(ctx, a.ID); err != nil && !errors.Is(err, driver.ErrUnreadable) {
			return unavailable(ctx, err)
		}
	}
	return &Refusal{Code: refusal.StoreUnavailable, Detail: why + "; ask again after the time in Retry-After", Shut: true}
}

// A claiming is a claim on its way. All its copies have the same token, so that a claim whose reply was lost is
// recognised.
type claiming struct {
	ask    *Ask
	claim  driver.Claim
	base   context.Context // the values of the caller's context, without its cancellation
	copies int             // copies that were sent
	sent   time.Time       // when the last copy was sent
	owned  bool
	err    error
}

// send sends copies of the claim until there is an answer, or the client has gone.
func (r *Route) send(ctx context.Context, c *claiming, rec *driver.Record) {
	var full error
	t, detached := r.few(), context.WithoutCancel(ctx)
	c.base = detached
	for try := 1; ; try++ {
		c.err = r.askUntil(detached, t.until, request{verb: "claim", id: c.ask.ID, refusable: true}, func(ctx context.Context) (err error) {
			c.copies++
			c.sent = time.Now()
			*rec, c.owned, err = r.store.Claim(ctx, c.ask.ID, c.claim)
			switch {
			case errors.Is(err, driver.ErrFull):
				full, err = err, nil // the store works
			case errors.Is(err, driver.ErrNotExecuted):
				c.copies-- // this one leaves nothing to release
			}
			return err
		})
		if full != nil {
			c.err = full
		}
		if c.err == nil || isAnswer(c.err) || !wasAsked(c.err) || try == t.most || !t.wait(detached, try) || ctx.Err() != nil {
			return
		}
	}
}

// judge says what came of a claim that was answered or given up. If the claim may have been executed, but this process
// does not run the operation, judge releases it.
func (r *Route) judge(ctx context.Context, c *claiming, rec *driver.Record) (*Run, *Refusal) {
	late := c.owned && time.Since(c.sent) > marginOf(r.Policy.Lease)
	switch won := c.err == nil && c.owned && !late; {
	case won && ctx.Err() != nil:
		r.releases.giveBack(ctx, c.ask.ID, c.claim.Token, c.copies, c.sent)
		return nil, unavailable(ctx, ctx.Err())
	case won:
		run := r.newRun(c.base, c.ask, rec, c.claim.Token, c.sent)
		run.resent = c.copies > 1
		return run, nil
	}
	unanswered := c.err != nil && !isAnswer(c.err)
	if late || c.copies > 0 && (unanswered || c.copies > 1) {
		r.releases.add(c.ask.ID, c.claim.Token, c.sent)
		r.Tell(ctx, c.ask, rec, event.GaveUp, c.err)
	}
	switch {
	case wasAsked(c.err) && errors.Is(c.err, driver.ErrUnreadable):
		return nil, &Refusal{Code: refusal.ReplayUnavailable, Cause: c.err}
	case c.err != nil, late:
		return nil, unavailable(ctx, c.err)
	}
	return nil, nil
}

// claimOf returns the claim to send to the store, with a token of its own.
func (r *Route) claimOf(a *Ask) driver.Claim {
	p := &r.Policy
	c := driver.Claim{
		Fingerprint: a.Fingerprint, Token: driver.NewToken(), Lease: p.Lease, Retention: p.Retention,
		Tombstone: p.Tombstone, OnLost: p.OnLost, Operation: a.Operation, Correlation: a.Correlation,
		Sealed: a.Sealed,
	}
	r.keyring.SealNames(a.ID, &c)
	return c
}
