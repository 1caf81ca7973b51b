package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
)

// An Inquiry is the question what became of an operation.
type Inquiry struct {
	ID driver.ID
	// Fence is above that of every run so far. Who answers [FoundNever] promises to refuse the operation, should it still
	// come, with a fence up to this one.
	Fence       uint64
	Attempt     int // runs started
	Operation   string
	Correlation string
	Started     time.Time // of the last run, on the store's clock
}

// A Finding answers an [Inquiry]. The zero value says nothing: the operation stays unknown.
type Finding struct {
	Found Found
	// Answer is given with FoundDone, as it would have been sent: status (0 for a result of [Do], whose Body is its JSON),
	// header, trailer and body, with no Codec. What must not be stored of it is left out, and all of it if the body
	// is above Policy.MaxResponseBody. It must not be changed any more. Nil if the answer can't be told.
	Answer *driver.Response
	Reason string // for operators
}

// Found is what an inquiry has brought to light.
type Found uint8

const (
	// FoundNothing means that it can't be told yet.
	FoundNothing Found = iota
	// FoundDone means that the operation took effect.
	FoundDone
	// FoundNever means that it did not, and that it never will under a fence up to that of the inquiry.
	FoundNever
)

// Results of reconcile in the audit trail, besides why it was refused.
const (
	auditActor = "reconcile"
	auditAsked = "asked"
	auditLater = "later"
	auditDone  = "done"
	auditNever = "never"
)

// Reconcile settles an operation that reads as unknown to this guard by asking what became of it (R-75a). It does
// nothing to any other. The store must be a [driver.Seizer].
//
// It raises the fence before it asks, so that what it learns is not overtaken by the lost run: from then on that run's
// owner changes nothing. An operation that was done ends done, with the answer that was found; one that never happened
// is free, and its next request runs. If nothing is found, ask fails or ctx ends it stays unknown, and can be asked
// about again. Of several that decide at once, operators included, one wins and the others change nothing.
//
// It returns what the operation reads as now, together with the error that kept it from being decided, or from being
// audited where the store is an [driver.Auditor]; as long as that is not known, ReadsUnknown. A settle whose reply is
// lost is repeated until it is acknowledged or ctx ends.
func (g *Guard) Reconcile(ctx context.Context, id driver.ID, ask func(context.Context, Inquiry) (Finding, error)) (driver.Reading, error) {
	if _, ok := g.store.own.(driver.Seizer); !ok {
		return driver.ReadsUnknown, fmt.Errorf("semel: reconcile: the store, a %T, can't be seized: %w", g.store.own, errors.ErrUnsupported)
	}
	c := reconciliation{g: g, id: id, token: driver.NewToken()}
	reads, err := c.decide(ctx, ask)
	if err != nil {
		err = fmt.Errorf("semel: reconcile %s: %w", id, err)
	}
	return reads, err
}

// A reconciliation is one call of Reconcile.
type reconciliation struct {
	g     *Guard
	id    driver.ID
	token driver.Token
	rec   driver.Record
	named driver.Record // rec with its names in the clear
	last  string        // result of the trail's newest entry, if that is reconcile's
}

func (c *reconciliation) decide(ctx context.Context, ask func(context.Context, Inquiry) (Finding, error)) (driver.Reading, error) {
	if mine, err := c.seize(ctx); err != nil {
		return driver.ReadsUnknown, err
	} else if !mine {
		return c.reads(), nil
	}
	// Nothing is decided that the trail does not show to have been asked. Before the seize an entry would often have no
	// sequel; what the seize itself changes, no request can see.
	if err := c.begin(ctx); err != nil {
		return driver.ReadsUnknown, err
	}
	f, err := ask(ctx, Inquiry{
		ID: c.id, Fence: c.rec.Fence, Attempt: int(c.rec.Attempt), Operation: c.named.Operation,
		Correlation: c.named.Correlation, Started: c.rec.Started.Time(),
	})
	if err == nil && f.Found == FoundDone {
		f.Answer, err = c.storedAnswer(ctx, f.Answer)
	}
	switch {
	case err != nil:
		return driver.ReadsUnknown, errors.Join(err, c.later(ctx, err.Error()))
	case f.Found == FoundDone:
		return c.settle(ctx, driver.Outcome{State: driver.Done, Response: f.Answer}, auditDone, f.Reason)
	case f.Found == FoundNever:
		return c.settle(ctx, driver.Outcome{State: driver.Free, Error: "reconcile: it never happened"}, auditNever, f.Reason)
	}
	return driver.ReadsUnknown, c.later(ctx, f.Reason)
}

// seize makes the record this call's own, if it reads as unknown; it reports whether it is.
func (c *reconciliation) seize(ctx context.Context) (mine bool, err error) {
	if err := c.try(ctx, "load", func(ctx context.Context) (err error) {
		c.rec, err = c.g.store.Load(ctx, c.id)
		return err
	}); err != nil {
		return false, fmt.Errorf("load the record: %w", err)
	}
	if c.reads() != driver.ReadsUnknown || c.g.work.settles(c.rec.Owner()) {
		return false, nil
	}
	if err := c.open(ctx); err != nil {
		return false, err
	}
	read := c.rec
	// Since it was read a renewal of its owner's may have come through after all. Then that run is cancelled, and what it
	// did has to be asked about like that of any other.
	if err := c.try(ctx, "seize", func(ctx context.Context) (err error) {
		c.rec, err = c.g.store.Seize(ctx, c.id, c.token)
		return err
	}); err != nil {
		return false, fmt.Errorf("seize the record: %w", err)
	}
	if c.rec.Operation != read.Operation || c.rec.Correlation != read.Correlation {
		err = c.open(ctx) // another run has come meanwhile
	}
	return c.rec.Token == c.token, err
}

// open reads the names of what is to be asked about. Without them nobody is asked.
func (c *reconciliation) open(ctx context.Context) error {
	c.named = c.rec
	if err := c.g.openNames(ctx, c.id, &c.named); err != nil {
		return fmt.Errorf("read what is to be asked about: %w", err)
	}
	return nil
}

// settles reports whether a run of this process may still come to settle the record that by owns. It knows better than
// whoever could be asked. After twice MaxRun its handler has not obeyed its deadline, or its settle was abandoned.
func (w *work) settles(by driver.Owner) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := w.oldest; r != nil; r = r.after {
		if r.owner == by {
			return time.Since(r.began)/2 < r.policy.MaxRun
		}
	}
	return false
}

// settle writes what was found.
func (c *reconciliation) settle(ctx context.Context, o driver.Outcome, result, reason string) (driver.Reading, error) {
	by := driver.Owner{Fence: c.rec.Fence, Token: c.token}
	o.Response = c.g.keyring.Seal(c.id, c.token, o.Response)
	const firstPause, longestPause = 10 * time.Millisecond, time.Second
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		one := newDeadline(ctx, c.g.life)
		rec, owned, err := c.g.store.Settle(one, c.id, by, o)
		one.end(nil)
		if err == nil {
			c.rec = rec
			if !owned {
				result = "refused: it was decided elsewhere, and reads as " + c.reads().String()
			}
			break
		}
		c.failed(ctx, "settle", err)
		switch {
		case errors.Is(err, driver.ErrUnreadable):
			return driver.ReadsUnknown, fmt.Errorf("settle the record: %w", err)
		case errors.Is(err, driver.ErrFull) && o.Response != nil:
			c.notReplayable(ctx, err)
			o.Response = nil // a marker always fits
			continue
		}
		if !pause(ctx, jitter(wait)) {
			return driver.ReadsUnknown, fmt.Errorf("settle the record: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
	c.g.waiting.wake(c.id)
	return c.reads(), c.audit(context.WithoutCancel(ctx), result, reason) // what is done is noted, whoever has left
}

func (c *reconciliation) reads() driver.Reading { return c.rec.Reads(c.g.policy.OnLost) }

func (c *reconciliation) notReplayable(ctx context.Context, err error) {
	c.g.observer.Observe(ctx, event.Event{
		Kind: event.NotReplayable, ID: c.id, Operation: c.named.Operation, Correlation: c.named.Correlation,
		Attempt: c.rec.Attempt, Fence: c.rec.Fence, Err: err,
	})
}

// storedAnswer returns the stored form of an answer that was found, or nil if it can't be replayed.
func (c *reconciliation) storedAnswer(ctx context.Context, a *driver.Response) (*driver.Response, error) {
	g := c.g
	switch {
	case a == nil:
		return nil, nil
	case a.Codec != "":
		return nil, fmt.Errorf("the answer that was found is encoded in %q, want it as it was sent", a.Codec)
	case a.Status != 0 && (a.Status < 200 || a.Status > 999):
		return nil, fmt.Errorf("the answer that was found has status %d, want a final one", a.Status)
	}
	body := a.Body
	if a.Status == 0 {
		var err error
		if body, err = storedResult(json.RawMessage(body), nil); err != nil {
			return nil, fmt.Errorf("the result that was found: %w", err)
		}
	} else if !bodyAllowed(a.Status) {
		body = nil
	}
	if int64(len(body)) > g.policy.MaxResponseBody {
		c.notReplayable(ctx, errors.New("the answer is larger than Policy.MaxResponseBody"))
		return nil, nil
	}
	x := exchange{g: g}
	named := append(elements(a.Header["Connection"]), g.policy.KeyHeaders...)
	threshold := g.policy.CompressAbove
	if a.Header.Get("Content-Encoding") != "" {
		threshold = -1
	}
	stored := &driver.Response{Status: a.Status, Header: x.storedFields(a.Header, named), Trailer: x.storedFields(a.Trailer, named)}
	stored.Body, stored.Codec = g.codecs.pack(body, threshold)
	return stored, nil
}

// begin notes in the trail that the operation is asked about, unless that is what stands there last.
func (c *reconciliation) begin(ctx context.Context) error {
	if _, ok := c.g.store.own.(driver.Auditor); !ok {
		return nil
	}
	if err := c.try(ctx, "audit", func(ctx context.Context) error {
		return c.g.store.AuditTrail(ctx, &c.id, 1, func(e driver.AuditEntry) bool {
			if e.Actor == auditActor {
				c.last = e.Result
			}
			return false
		})
	}); err != nil {
		return fmt.Errorf("read the audit trail: %w", err)
	}
	if c.last == auditAsked || c.last == auditLater {
		return nil
	}
	return c.audit(ctx, auditAsked, "its outcome is unknown")
}

// later notes the first time that nothing was found; an operation may be asked about for days.
func (c *reconciliation) later(ctx context.Context, reason string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.last == auditLater {
		return nil
	}
	return c.audit(ctx, auditLater, reason)
}

// audit adds an entry to the trail, if the store has one.
func (c *reconciliation) audit(ctx context.Context, result, reason string) error {
	if _, ok := c.g.store.own.(driver.Auditor); !ok {
		return nil
	}
	e := driver.AuditEntry{
		ID: c.id, Operation: c.rec.Operation, Actor: auditActor, Action: auditActor, Reason: reason, Result: result,
	}
	if err := c.try(ctx, "audit", func(ctx context.Context) error { return c.g.store.Audit(ctx, e) }); err != nil {
		return fmt.Errorf("audit the decision %q: %w", result, err)
	}
	return nil
}

// try asks the store, a bounded number of times.
func (c *reconciliation) try(ctx context.Context, verb string, f func(context.Context) error) error {
	for try := 1; ; try++ {
		one := newDeadline(ctx, min(claimWindow, c.g.life))
		err := f(one)
		one.end(nil)
		if err == nil {
			return nil
		}
		c.failed(ctx, verb, err)
		if errors.Is(err, driver.ErrUnreadable) || try == claimTries || !pause(ctx, jitter(10*time.Millisecond<<try)) {
			return err
		}
	}
}

// failed reports a failed verb, unless it was given up by the caller.
func (c *reconciliation) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() == nil {
		c.g.storeFailed(ctx, verb, c.id, err)
	}
}
