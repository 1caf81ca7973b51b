package semel

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/storedrequest"
	"github.com/semelhq/semel/internal/thrown"
	"github.com/semelhq/semel/refusal"
)

// StoredRequest returns the request that was stored when the operation of ctx began (Policy.Complete), in the form that
// its [Fingerprinter] gave it then. In a later run that can be another form than the one of this run's own call. Of a
// request over HTTP it is the body. It is nil if none is stored, as outside of an operation. An error wraps
// [driver.ErrUnreadable].
func StoredRequest(ctx context.Context) ([]byte, error) {
	op := FromContext(ctx)
	if op == nil || len(op.run.Sealed()) == 0 {
		return nil, nil
	}
	s, err := storedrequest.Open(op.core.keyring, op.run.ID(), &driver.Record{Sealed: op.run.Sealed()})
	if err != nil {
		return nil, fmt.Errorf("semel: stored request: %w", err)
	}
	return s.Body, nil
}

// serves reports whether a stored request is one that the completer can finish.
func (c *Completer) serves(s *storedrequest.Request) bool {
	if s.Kind == "" {
		return c.handler != nil
	}
	return c.o.Do[Kind(s.Kind)] != nil
}

// call has the function of its kind make a stored call of Do again.
func (c *Completer) call(ctx context.Context, id driver.ID, rec *driver.Record, s *storedrequest.Request) (err error) {
	defer thrown.Catch(&err)
	r := &resumption{core: c.guard.core, id: id, rec: *rec, request: s}
	bounded, cancel := context.WithTimeout(ctx, c.reader.policy.MaxRun)
	defer cancel()
	key := Key{Kind: Kind(s.Kind), Scope: s.Scope, Operation: s.Operation, Value: s.Key}
	err = c.o.Do[key.Kind](context.WithValue(bounded, resumptionKey{}, r), key, s.Body)
	if r.taken.Load() {
		return r.failure() // what became of the run shows in the record
	}
	if err == nil {
		err = errors.New("the function has not called Do with the key and the context that it was given")
	}
	return err
}

// obtain asks for the operation: as any call does, or for a completer.
func (c *call) obtain(rec *driver.Record) *Problem {
	s, _ := c.ctx.Value(resumptionKey{}).(*resumption)
	if s == nil || s.request.Kind == "" || s.id != c.ask.ID || s.taken.Swap(true) {
		return c.enter(c.ctx, rec)
	}
	p := c.resume(s, rec)
	if p != nil && p.Code != refusal.InProgress {
		s.fail(p)
	}
	return p
}

// resume claims the operation of a stored call that is due.
func (c *call) resume(s *resumption, rec *driver.Record) *Problem {
	policy, err := s.mayResume(c.g)
	if err != nil {
		return c.g.problem(refusal.StoreUnavailable, "").because(err)
	}
	c.g = &Guard{core: c.g.core, policy: &policy, route: c.g.route.With(policy.engine())}
	c.ask.Fingerprint = s.rec.Fingerprint
	run, refused := c.g.route.Claim(c.ctx, &c.ask.Ask, rec)
	switch {
	case refused != nil:
		return c.g.refusedBy(refused)
	case run != nil && s.continues(rec):
		c.run, c.ctx = run, context.WithoutCancel(c.ctx) // whoever ends the completer waits for the runs that it has started
		return nil
	case run != nil:
		run.Unstarted()
	}
	return c.g.refusedBy(engine.InProgress(rec)) // another claimant was faster
}
