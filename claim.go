package semel

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// An ask is one request for an operation, as both faces of the guard bring it.
type ask struct {
	kind        Kind
	scope, key  string
	id          ID
	fingerprint Fingerprint
	operation   string
	correlation string
	wait        time.Duration // how long to wait for another run
	sealed      []byte        // the request, for a completer; nil where none is stored
}

const (
	claimTries  = 3
	claimWindow = 2 * time.Second // for all tries
	// A reply that took longer than this part of the lease is too old to start a handler on.
	leaseMargin = 0.8
)

// marginOf returns 80 % of a lease: what an owner allows itself between sending the last acknowledged claim or extend
// and having stopped.
func marginOf(lease time.Duration) time.Duration { return time.Duration(float64(lease) * leaseMargin) }

// enter asks for the operation until there is an answer: a run to execute, or the record as it stands, or a refusal.
// Exactly one of the three is set.
func (g *Guard) enter(ctx context.Context, a *ask) (*run, *Record, *Problem) {
	now := time.Now()
	if p := g.withinCaps(ctx, a, now); p != nil {
		return nil, nil, p
	}
	var ticket *ticket
	defer func() { g.waiting.leave(ticket) }()
	deadline := now.Add(a.wait)
	waits := a.wait > 0
	raced := 0
	for {
		rec, r, p := g.claim(ctx, a)
		switch {
		case p != nil:
			return nil, nil, p
		case r != nil:
			g.keys.add(a.id.Scope(), &rec)
			return r, nil, nil
		case !rec.Fingerprint.Equal(a.fingerprint):
			return nil, nil, g.mismatch(&rec, a)
		}
		switch rec.Reads(g.policy.OnLost) {
		case ReadsDone:
			return nil, &rec, nil
		case ReadsExpired:
			return nil, nil, g.problem(CodeKeyExpired, "")
		case ReadsUnknown:
			if rec.State == Running {
				g.observe(ctx, a, &rec, EventLapsed, nil)
			}
			return nil, nil, g.problem(CodeOutcomeUnknown, "ask for the operation's status, or for its operator's decision")
		case ReadsRunning:
			if !waits {
				return nil, nil, g.inProgress(&rec)
			}
			if ticket == nil {
				if ticket = g.waiting.join(a.id, g.policy.MaxWaiters); ticket == nil {
					return nil, nil, g.inProgress(&rec)
				}
				continue // the owner may have settled before this request joined
			}
			waits = g.waiting.wait(ctx, ticket, g.core, &rec, deadline)
			if ctx.Err() != nil {
				return nil, nil, g.inProgress(&rec)
			}
		case ReadsAbsent, ReadsFree:
			// This claim's own token was spent meanwhile, by a release that overtook it. Nothing was run.
			if raced++; raced == claimTries {
				return nil, nil, g.problem(CodeStoreUnavailable, "")
			}
		}
	}
}

func (g *Guard) mismatch(rec *Record, a *ask) *Problem {
	if rec.Fingerprint.Settings != a.fingerprint.Settings {
		return g.problem(CodeReplayUnavailable, "the way requests are compared has changed since")
	}
	return g.problem(CodeKeyReused, "a key stands for one request: send the first one again, or choose a new key")
}

func (g *Guard) inProgress(rec *Record) *Problem {
	p := g.problem(CodeInProgress, "")
	p.RetryAfter = retryAfterRunning(rec)
	return p
}

// claim sends a claim until it is acknowledged, a bounded number of times. Each copy has the same token, so that a claim
// whose reply was lost is recognised. A claim that may have been executed without this guard running it is released.
func (g *Guard) claim(ctx context.Context, a *ask) (Record, *run, *Problem) {
	if err := ctx.Err(); err != nil {
		return Record{}, nil, g.problem(CodeStoreUnavailable, "").because(err)
	}
	if g.owed.full() {
		return Record{}, nil, g.problem(CodeStoreUnavailable, "")
	}
	if g.policy.OneCommit {
		return g.claimTx(ctx, a)
	}
	c := g.claimOf(a)
	var (
		rec   Record
		owned bool
		err   error
		asked bool // some copy of it was sent
		sent  = time.Now()
		try   int
	)
	window := newDeadlineAt(ctx, sent.Add(min(claimWindow, g.life)))
	defer window.end(nil)
	for try = 1; ; try++ {
		if try > 1 {
			sent = time.Now()
		}
		var let bool
		let, err = g.through(ctx, func() (err error) {
			rec, owned, err = g.store.Claim(window, a.id, c)
			return err
		})
		asked = asked || let
		if !let {
			break
		}
		if err == nil || errors.Is(err, ErrFull) || errors.Is(err, ErrUnreadable) {
			break
		}
		if ctx.Err() == nil { // else the client has gone, which is no failure of the store
			g.storeFailed(ctx, "claim", a.id, err)
		}
		if try == claimTries || !pause(window, jitter(10*time.Millisecond<<try)) {
			break
		}
	}
	late := owned && time.Since(sent) > marginOf(g.policy.Lease)
	acknowledged := err == nil || errors.Is(err, ErrFull) || errors.Is(err, ErrUnreadable)
	if err == nil && owned && !late {
		r := g.newRun(ctx, a, rec, c.Token, sent)
		r.resent = try > 1
		return rec, r, nil
	}
	if late || asked && (!acknowledged || try > 1) {
		g.observe(ctx, a, &rec, EventGaveUp, err)
		g.owed.add(a.id, Owner{Token: c.Token, Above: true}, sent)
	}
	switch {
	case errors.Is(err, ErrUnreadable):
		g.storeFailed(ctx, "claim", a.id, err)
		return Record{}, nil, g.problem(CodeReplayUnavailable, "").because(err)
	case err != nil, late:
		return Record{}, nil, g.problem(CodeStoreUnavailable, "").because(err)
	}
	return rec, nil, nil
}

// claimOf returns what the guard asks the store for, with a token of its own.
func (g *Guard) claimOf(a *ask) Claim {
	return Claim{
		Fingerprint: a.fingerprint, Token: NewToken(), Lease: g.policy.Lease, Retention: g.policy.Retention,
		Tombstone: g.policy.Tombstone, OnLost: g.policy.OnLost, Operation: a.operation, Correlation: a.correlation,
		Sealed: a.sealed,
	}
}

// jitter returns a random duration in [d/2, d).
func jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// pause waits for d and reports whether it did; false means that ctx has ended before.
func pause(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// observe reports an event about an operation.
func (c *core) observe(ctx context.Context, a *ask, rec *Record, kind EventKind, err error) {
	c.observer.Observe(ctx, Event{
		Kind: kind, ID: a.id, Operation: a.operation, Correlation: a.correlation,
		Attempt: rec.Attempt, Fence: rec.Fence, Err: err,
	})
}
