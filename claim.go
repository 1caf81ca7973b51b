package semel

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/refusal"
)

// An ask is one request for an operation, as both faces of the guard bring it.
type ask struct {
	kind        Kind
	scope, key  string
	id          driver.ID
	fingerprint driver.Fingerprint
	operation   string
	correlation string
	wait        time.Duration // how long to wait for another run
	sealed      []byte        // the request, for a completer; nil where none is stored
	minted      bool          // the key was made of the request, not sent
	credentials credentials   // that an answer is stored with
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

// enter asks for the operation until there is an answer: a run to execute, or a refusal, or, with neither, the answer
// of the record, which is left in rec.
func (g *Guard) enter(ctx context.Context, a *ask, rec *driver.Record) (*run, *Problem) {
	now := time.Now()
	if p := g.withinCaps(ctx, a, now); p != nil {
		return nil, p
	}
	r, p := g.claim(ctx, a, rec)
	return g.follow(ctx, a, now.Add(a.wait), rec, r, p)
}

// follow is enter from what came of the first claim on; it waits for another run until the deadline.
func (g *Guard) follow(ctx context.Context, a *ask, deadline time.Time, rec *driver.Record, r *run, p *Problem) (*run, *Problem) {
	var ticket *ticket
	defer func() { g.waiting.leave(ticket) }()
	waits := a.wait > 0
	raced := 0
	for ; ; r, p = g.claim(ctx, a, rec) {
		switch {
		case p != nil:
			return nil, p
		case r != nil:
			g.keys.add(a.id.Scope(), rec)
			return r, nil
		case !rec.Fingerprint.Equal(a.fingerprint):
			return nil, g.mismatch(rec, a)
		}
		switch rec.Reads(g.policy.OnLost) {
		case driver.ReadsDone:
			return nil, nil
		case driver.ReadsExpired:
			return nil, g.problem(refusal.KeyExpired, "")
		case driver.ReadsUnknown:
			if rec.State == driver.Running {
				g.observe(ctx, a, rec, event.Lapsed, nil)
			}
			return nil, g.problem(refusal.OutcomeUnknown, "ask for the operation's status, or for its operator's decision")
		case driver.ReadsRunning:
			if !waits {
				return nil, g.inProgress(rec)
			}
			if ticket == nil {
				if ticket = g.waiting.join(a.id, g.policy.MaxWaiters); ticket == nil {
					return nil, g.inProgress(rec)
				}
				continue // the owner may have settled before this request joined
			}
			waits = g.waiting.wait(ctx, ticket, g.core, rec, deadline)
			if ctx.Err() != nil {
				return nil, g.inProgress(rec)
			}
		case driver.ReadsAbsent, driver.ReadsFree:
			// This claim's own token was spent meanwhile, by a release that overtook it. Nothing was run.
			if raced++; raced == claimTries {
				p := g.problem(refusal.StoreUnavailable, "")
				p.shut = true
				return nil, p
			}
		}
	}
}

func (g *Guard) mismatch(rec *driver.Record, a *ask) *Problem {
	if rec.Fingerprint.Settings != a.fingerprint.Settings {
		return g.problem(refusal.ReplayUnavailable, "the way requests are compared has changed since")
	}
	if a.minted {
		return g.problem(refusal.KeyReused, "no key was sent, and the one made of the request stands for another: send that one again, or, for a new operation, a key of your own")
	}
	return g.problem(refusal.KeyReused, "")
}

func (g *Guard) inProgress(rec *driver.Record) *Problem {
	p := g.problem(refusal.InProgress, "")
	p.RetryAfter, p.stored = retryAfterRunning(rec), len(rec.Sealed) > 0
	return p
}

// claim sends a claim until it is acknowledged, a bounded number of times. The record as it stands then is left in rec.
// It ends within its window, not with ctx: the store's reply decides what is to be done. If the client has gone by
// then, nothing is run.
func (g *Guard) claim(ctx context.Context, a *ask, rec *driver.Record) (*run, *Problem) {
	if p := g.mayClaim(ctx, a); p != nil {
		return nil, p
	}
	if p := g.knowsSecret(ctx); p != nil {
		return nil, p
	}
	if g.policy.OneCommit {
		return g.claimTx(ctx, a, rec) // it may wait for another one's commit, and is bounded by the store's connections
	}
	if p := g.myTurn(ctx, a); p != nil {
		return nil, p
	}
	defer g.claims.give(a.id.Scope(), 1)
	one := [1]claiming{{ask: a, rec: rec, claim: g.claimOf(a)}}
	s := g.newSending(ctx)
	defer s.window.end(nil)
	defer s.abandon(one[:]) // where the store has ended this goroutine
	s.send(one[:])
	s.rest(one[:])
	one[0].giveBack(ctx, g)
	return one[0].run, one[0].problem
}

// mayClaim refuses what is asked for a client that has gone, or while too many releases are owed.
func (g *Guard) mayClaim(ctx context.Context, a *ask) *Problem {
	if ctx.Err() != nil {
		return g.unavailable(ctx, ctx.Err())
	}
	switch g.owed.full(a.id.Scope()) {
	case budget.HasRoom:
		return nil
	case budget.AllFull:
		// Releases are left over for a while when a store works again, and clients choose when they ask.
		return g.crowded(ctx, a, g.policy.FailOpen, "too many claims got no reply")
	}
	return g.crowded(ctx, a, false, "too many claims got no reply")
}

// crowded refuses what there is no room for. Policy.FailOpen opens only if the store does not reply: it is asked, in a
// way that leaves nothing to be owed, if that may be the reason.
func (g *Guard) crowded(ctx context.Context, a *ask, look bool, why string) *Problem {
	if look {
		if _, err := g.load(ctx, a.id); err != nil && !errors.Is(err, driver.ErrUnreadable) {
			return g.unavailable(ctx, err)
		}
	}
	p := g.problem(refusal.StoreUnavailable, why+"; ask again after the time in Retry-After")
	p.shut = true
	return p
}

// A claiming is a claim on its way. Each copy of it has the same token, so that a claim whose reply was lost is
// recognised.
type claiming struct {
	ask   *ask
	claim driver.Claim
	rec   *driver.Record // the last reply, with owned and err

	copies   int       // that were sent
	sent     time.Time // the last of them
	owned    bool
	err      error
	answered bool // that was an answer of the store: any but a failure

	// What came of it; without a run and a problem, the record as it stands.
	judged  bool
	run     *run
	problem *Problem
	spare   bool // it was won for a client that has gone: to be given back
}

// giveBack releases the claim if it was won for nobody.
func (c *claiming) giveBack(ctx context.Context, g *Guard) {
	if c.spare {
		g.owed.giveBack(ctx, c.ask.id, c.claim.Token, c.copies, c.sent)
	}
}

// A sending sends a list of claims, and again those that got no answer: a bounded number of times, and not for long. The
// list is not a part of it, so that a single claim takes no memory.
type sending struct {
	g       *Guard
	ctx     context.Context // the client's
	window  *deadline       // for all tries; it does not end with the client
	began   time.Time
	tries   int
	left    int         // not judged after the last try
	refused bool        // by the breaker
	then    func(i int) // called when a claim is judged; nil for none
}

// newSending begins a sending, which ends with its window.
func (g *Guard) newSending(ctx context.Context) sending {
	now := time.Now()
	window := newDeadlineAt(context.WithoutCancel(ctx), now.Add(min(claimWindow, g.life)))
	return sending{g: g, ctx: ctx, began: now, window: window}
}

// send sends a copy of each claim that is not judged, and judges those that are answered.
func (s *sending) send(list []claiming) {
	sent := s.began // the first copy is sent at once
	if s.tries > 0 {
		sent = time.Now()
	}
	s.tries++
	s.left = 0
	asked, err := s.g.through(func() error { return s.trip(list, sent) })
	s.refused = !asked
	for i := range list {
		c := &list[i]
		switch {
		case c.judged:
			continue
		case asked && c.answered:
			s.judge(list, i)
			continue
		case !asked:
			c.err = err
		default:
			s.g.storeFailed(s.ctx, "claim", c.ask.id, c.err)
		}
		s.left++
	}
}

// trip is one round trip to the store. It returns an error if nothing was answered.
func (s *sending) trip(list []claiming, sent time.Time) (failed error) {
	for i := range list {
		if c := &list[i]; !c.judged {
			c.copies++
			c.sent = sent
		}
	}
	for i := range list {
		if c := &list[i]; !c.judged {
			*c.rec, c.owned, c.err = s.g.store.Claim(s.window, c.ask.id, c.claim)
		}
	}
	some := false
	for i := range list {
		c := &list[i]
		if c.judged {
			continue
		}
		c.answered = c.err == nil || errors.Is(c.err, driver.ErrFull) || errors.Is(c.err, driver.ErrUnreadable)
		some = some || c.answered
		failed = c.err
	}
	if some {
		return nil
	}
	return failed
}

// rest sends again what is left, as often as that goes and while there is a client for it, and gives up what is left
// then.
func (s *sending) rest(list []claiming) {
	for s.left > 0 && !s.refused && s.tries < claimTries && pause(s.window, jitter(10*time.Millisecond<<s.tries)) && s.ctx.Err() == nil {
		s.send(list)
	}
	for i := range list {
		if !list[i].judged {
			s.judge(list, i)
		}
	}
}

// abandon releases what is not judged, and won't be.
func (s *sending) abandon(list []claiming) {
	for i := range list {
		if c := &list[i]; !c.judged && c.copies > 0 {
			s.g.owed.add(c.ask.id, driver.Owner{Token: c.claim.Token, Above: true}, c.sent)
		}
	}
}

// judge says what came of a claim that was answered, or is given up. A claim that may have been executed without this
// guard running it is released.
func (s *sending) judge(list []claiming, i int) {
	g, c := s.g, &list[i]
	c.judged = true
	late := c.owned && time.Since(c.sent) > marginOf(g.policy.Lease)
	switch won := c.err == nil && c.owned && !late; {
	case won && s.ctx.Err() != nil:
		c.spare, c.problem = true, g.unavailable(s.ctx, s.ctx.Err())
	case won:
		c.run = g.newRun(s.ctx, c.ask, c.rec, c.claim.Token, c.sent)
		c.run.resent = c.copies > 1
	default:
		if late || c.copies > 0 && (!c.answered || c.copies > 1) {
			g.owed.add(c.ask.id, driver.Owner{Token: c.claim.Token, Above: true}, c.sent)
			g.observe(s.ctx, c.ask, c.rec, event.GaveUp, c.err)
		}
		switch {
		case errors.Is(c.err, driver.ErrUnreadable):
			g.storeFailed(s.ctx, "claim", c.ask.id, c.err)
			c.problem = g.problem(refusal.ReplayUnavailable, "").because(c.err)
		case c.err != nil, late:
			c.problem = g.unavailable(s.ctx, c.err)
		}
	}
	if s.then != nil {
		s.then(i)
	}
}

// claimOf returns what the guard asks the store for, with a token of its own.
func (g *Guard) claimOf(a *ask) driver.Claim {
	c := driver.Claim{
		Fingerprint: a.fingerprint, Token: driver.NewToken(), Lease: g.policy.Lease, Retention: g.policy.Retention,
		Tombstone: g.policy.Tombstone, OnLost: g.policy.OnLost, Operation: a.operation, Correlation: a.correlation,
		Sealed: a.sealed,
	}
	g.keyring.SealNames(a.id, &c)
	return c
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
func (c *core) observe(ctx context.Context, a *ask, rec *driver.Record, kind event.Kind, err error) {
	c.observer.Observe(ctx, event.Event{
		Kind: kind, ID: a.id, Operation: a.operation, Correlation: a.correlation,
		Attempt: rec.Attempt, Fence: rec.Fence, Err: err,
	})
}
