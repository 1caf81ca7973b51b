package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
)

// Results of reconcile in the audit trail. A reason for a refusal may be there too.
const (
	auditActor = "reconcile"
	auditAsked = "asked"
	auditLater = "later"
	auditDone  = "done"
	auditNever = "never"
)

// A Finding is what an inquiry has found out about an operation whose outcome is unknown.
type Finding struct {
	Found  bool             // else the operation stays unknown
	Answer *driver.Response // if the operation has happened: its answer, if that is to be stored
	Never  bool             // the operation has not happened, and never will
	Reason string           // for operators
}

// Reconcile settles an operation that reads as unknown on this route, by asking what became of it (R-75a). The store
// must be a [driver.Seizer]. ask gets the record as it was seized, with its names in the clear.
func (r *Route) Reconcile(ctx context.Context, id driver.ID, ask func(context.Context, *driver.Record) (Finding, error)) (driver.Reading, error) {
	c := reconciliation{Route: r, id: id, token: driver.NewToken()}
	if mine, err := c.seize(ctx); err != nil {
		return driver.ReadsUnknown, err
	} else if !mine {
		return c.reads(), nil
	}
	// Nothing is decided before the trail shows that the operation was asked about. An entry from before the seize would
	// often have no result after it. Requests can't see what the seize itself changes.
	if err := c.begin(ctx); err != nil {
		return driver.ReadsUnknown, err
	}
	f, err := ask(ctx, &c.named)
	switch {
	case err != nil:
		return driver.ReadsUnknown, errors.Join(err, c.later(ctx, err.Error()))
	case f.Never:
		return c.settle(ctx, driver.Outcome{State: driver.Free, Error: "reconcile: it never happened"}, auditNever, f.Reason)
	case f.Found:
		return c.settle(ctx, driver.Outcome{State: driver.Done, Response: f.Answer}, auditDone, f.Reason)
	}
	return driver.ReadsUnknown, c.later(ctx, f.Reason)
}

// A reconciliation is one call of Reconcile.
type reconciliation struct {
	*Route
	id    driver.ID
	token driver.Token
	rec   driver.Record
	named driver.Record // rec with its names in the clear
	last  string        // result of the trail's newest entry, if reconcile wrote that entry
}

// seize takes the record for this call, if it reads as unknown. It reports whether it did.
func (c *reconciliation) seize(ctx context.Context) (mine bool, err error) {
	if err := c.few(ctx, "load", func(ctx context.Context) (err error) {
		c.rec, err = c.store.Load(ctx, c.id)
		return err
	}); err != nil {
		return false, fmt.Errorf("load the record: %w", err)
	}
	if c.reads() != driver.ReadsUnknown || c.work.settles(c.rec.Owner()) {
		return false, nil
	}
	if err := c.open(ctx); err != nil {
		return false, err
	}
	read := c.rec
	// Since the record was read, a late renewal by its owner may have been executed. The run is cancelled then, and its
	// effect has to be asked about like that of any other run.
	if err := c.few(ctx, "seize", func(ctx context.Context) (err error) {
		c.rec, err = c.store.(driver.Seizer).Seize(ctx, c.id, c.token)
		return err
	}); err != nil {
		return false, fmt.Errorf("seize the record: %w", err)
	}
	if c.rec.Operation != read.Operation || c.rec.Correlation != read.Correlation {
		err = c.open(ctx) // another run has started meanwhile
	}
	operation, correlation := c.named.Operation, c.named.Correlation
	c.named = c.rec
	c.named.Operation, c.named.Correlation = operation, correlation
	return c.rec.Token == c.token, err
}

// open decrypts the names of the operation. Without them nobody is asked.
func (c *reconciliation) open(ctx context.Context) error {
	c.named = c.rec
	if err := c.OpenNames(ctx, c.id, &c.named); err != nil {
		return fmt.Errorf("read what is to be asked about: %w", err)
	}
	return nil
}

// settle writes what was found.
func (c *reconciliation) settle(ctx context.Context, o driver.Outcome, result, reason string) (driver.Reading, error) {
	by := driver.Owner{Fence: c.rec.Fence, Token: c.token}
	o.Response = c.keyring.Seal(c.id, c.token, o.Response)
	owned := false
	send := func(ctx context.Context) (err error) {
		c.rec, owned, err = c.store.Settle(ctx, c.id, by, o)
		return err
	}
	q := request{verb: "settle", id: c.id}
	err := c.repeat(ctx, tries{}, q, send)
	if errors.Is(err, driver.ErrFull) && o.Response != nil {
		a := Ask{ID: c.id, Operation: c.named.Operation, Correlation: c.named.Correlation}
		c.Tell(ctx, &a, &c.named, event.NotReplayable, err)
		o.Response = nil // a marker always fits
		err = c.repeat(ctx, tries{}, q, send)
	}
	if err != nil {
		return driver.ReadsUnknown, fmt.Errorf("settle the record: %w", errors.Join(err, context.Cause(ctx)))
	}
	if !owned {
		result = "refused: it was decided elsewhere, and reads as " + c.reads().String()
	}
	c.waiting.wake(c.id)
	return c.reads(), c.audit(context.WithoutCancel(ctx), result, reason) // the result is noted, even if the caller left
}

func (c *reconciliation) reads() driver.Reading { return c.rec.Reads(c.Policy.OnLost) }

// begin notes in the trail that the operation is asked about, unless the newest entry already says so.
func (c *reconciliation) begin(ctx context.Context) error {
	auditor, ok := c.store.(driver.Auditor)
	if !ok {
		return nil
	}
	if err := c.few(ctx, "audit", func(ctx context.Context) error {
		return auditor.AuditTrail(ctx, &c.id, 1, func(e driver.AuditEntry) bool {
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

// later notes only the first time that nothing was found, because an operation may be asked about for days.
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
	auditor, ok := c.store.(driver.Auditor)
	if !ok {
		return nil
	}
	e := driver.AuditEntry{
		ID: c.id, Operation: c.rec.Operation, Actor: auditActor, Action: auditActor, Reason: reason, Result: result,
	}
	if err := c.few(ctx, "audit", func(ctx context.Context) error { return auditor.Audit(ctx, e) }); err != nil {
		return fmt.Errorf("audit the decision %q: %w", result, err)
	}
	return nil
}

// few asks the store a bounded number of times.
func (c *reconciliation) few(ctx context.Context, verb string, f func(context.Context) error) error {
	return c.repeat(ctx, c.Engine.few(), request{verb: verb, id: c.id}, f)
}

// End claims an operation and settles it at once, if continues says that its record has not changed. It returns the
// record after that, and whether it did both. If a settle gets no reply, it goes on in the background and counts as
// done: nobody else would report it.
func (r *Route) End(ctx context.Context, a *Ask, o driver.Outcome, continues func(*driver.Record) bool) (driver.Record, bool, error) {
	var rec driver.Record
	run, refused := r.Claim(ctx, a, &rec)
	switch {
	case refused != nil:
		return rec, false, refused
	case run == nil:
		return rec, false, nil
	case !continues(&rec):
		run.Unstarted()
		return rec, false, nil
	}
	run.HandlerEnded()
	now, how := run.Settle(o)
	if how == SettlePending {
		now = rec
	}
	return now, how == SettleAcknowledged || how == SettlePending, nil
}
