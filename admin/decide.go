package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/driver"
)

// A Decision says who settles an operation, and why.
type Decision struct {
	Actor  string // who decides, 1 to 1000 bytes
	Reason string // why, 1 to 1000 bytes
	// Force also allows a decision about an operation that a run owns. The run's handler may still be at work: its outcome
	// no longer counts, but its effects may come after the decision. Defaults to refusing such a decision.
	Force bool
	// Confirm is called before anything is changed or written, with the operation as it is. An error refuses the decision,
	// and is returned as it is. Confirm may wait for a person: if the operation changes meanwhile, the decision ends with
	// [ErrChanged]. Defaults to no question.
	Confirm func(ctx context.Context, before driver.Record) error
}

// A Change is an operation as it was and as it is now. If it was forgotten, the State of After is Absent.
type Change struct{ Before, After driver.Record }

// Complete settles an operation as done with the given answer. Every repeat gets this answer from now on; with a nil
// answer repeats are told that there is none (replay-unavailable). The answer's body is stored as it is, without a
// codec.
//
// The operation must be unknown, or lost under Rerun. If the change fails after the old run was fenced, the operation
// stays unknown, and can be decided about again.
func (d *Desk) Complete(ctx context.Context, id driver.ID, answer *driver.Response, by Decision) (Change, error) {
	if err := checkAnswer(answer); err != nil {
		return Change{}, fmt.Errorf("complete: %w: %w", ErrInvalid, err)
	}
	return d.decide(ctx, id, "complete", by, func(before driver.Record) (driver.Record, error) {
		return d.settle(ctx, id, before, driver.Outcome{State: driver.Done, Response: answer}, by.Force)
	})
}

// Release sets an operation free, so that the next attempt runs it. With it the operator promises that nothing
// happened, and that nothing will: if the lost run has had its effect, the next run repeats the effect. If the
// operation was released already, nothing changes.
//
// What [Desk.Complete] says about a change that fails is true here too.
func (d *Desk) Release(ctx context.Context, id driver.ID, by Decision) (Change, error) {
	return d.decide(ctx, id, "release", by, func(before driver.Record) (driver.Record, error) {
		return d.settle(ctx, id, before, driver.Outcome{State: driver.Free, Error: "released by an operator"}, by.Force)
	})
}

// Forget deletes an operation's record, so that its key is new. A repeat then runs, whatever has happened before, and
// any request may use the key.
//
// What [Desk.Complete] says about a change that fails is true here too.
func (d *Desk) Forget(ctx context.Context, id driver.ID, by Decision) (Change, error) {
	return d.decide(ctx, id, "forget", by, func(before driver.Record) (driver.Record, error) {
		return d.forget(ctx, id, before, by.Force)
	})
}

// decide makes a change between two entries of the audit trail. Nothing is changed before the first one is durable.
func (d *Desk) decide(ctx context.Context, id driver.ID, action string, by Decision, change func(before driver.Record) (driver.Record, error)) (c Change, err error) {
	if err := by.check(); err != nil {
		return c, fmt.Errorf("%s: %w: %w", action, ErrInvalid, err)
	}
	if c.Before, err = d.load(ctx, id); err != nil {
		return Change{}, fmt.Errorf("%s: %w", action, err)
	}
	if c.Before.State == driver.Absent {
		return Change{}, fmt.Errorf("%s %s: %w", action, id, ErrNotFound)
	}
	if by.Confirm != nil {
		asked := c.Before
		d.openNames(id, &c.Before)
		if err := by.Confirm(ctx, c.Before); err != nil {
			return Change{}, err
		}
		if c.Before, err = d.load(ctx, id); err != nil {
			return Change{}, fmt.Errorf("%s: %w", action, err)
		}
		if asked.State != c.Before.State || asked.Owner() != c.Before.Owner() || asked.LeaseEnd != c.Before.LeaseEnd {
			return Change{}, fmt.Errorf("%s %s: %w", action, id, ErrChanged)
		}
	}
	entry := driver.AuditEntry{
		ID: id, Operation: c.Before.Operation, Actor: by.Actor, Action: action, Reason: by.Reason, Result: "asked",
	}
	if err := d.audit(ctx, entry); err != nil {
		return Change{}, fmt.Errorf("%s %s: nothing was changed: %w", action, id, err)
	}
	defer func() {
		d.openNames(id, &c.Before)
		d.openNames(id, &c.After)
	}()
	c.After, err = change(c.Before)
	entry.Result = resultOf(err)
	// The caller may have gone; the entry with the result is written all the same.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditWait)
	defer cancel()
	unaudited := d.audit(ending, entry)
	switch {
	case err != nil:
		return Change{}, fmt.Errorf("%s %s: %w", action, id, errors.Join(err, unaudited))
	case unaudited != nil:
		return c, fmt.Errorf("%s %s: the change is made, but the audit trail has only that it was asked for: %w", action, id, unaudited)
	}
	return c, nil
}

// resultOf is what the audit trail says about the result of a change.
func resultOf(err error) string {
	switch {
	case err == nil:
		return "done"
	case slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return "refused: " + err.Error()
	}
	return "failed: " + err.Error()
}

const auditWait = 10 * time.Second

// audit adds an entry. If its acknowledgement was lost, the entry may be there twice.
func (d *Desk) audit(ctx context.Context, e driver.AuditEntry) error {
	if err := untilAcknowledged(ctx, func() error { return d.auditor.Audit(ctx, e) }); err != nil {
		return fmt.Errorf("write the audit trail: %w", err)
	}
	return nil
}

// settle settles an operation that nobody owns.
func (d *Desk) settle(ctx context.Context, id driver.ID, before driver.Record, o driver.Outcome, force bool) (driver.Record, error) {
	switch before.Reads(before.OnLost) {
	case driver.ReadsAbsent:
		return before, fmt.Errorf("%w: its retention is over", ErrNotFound)
	case driver.ReadsDone, driver.ReadsExpired:
		return before, ErrEnded
	case driver.ReadsRunning:
		if !force {
			return before, ErrAtWork
		}
	}
	if before.State == driver.Free && !before.Maybe {
		if o.State == driver.Free {
			return before, nil
		}
		return before, ErrReleased
	}
	if o.State == driver.Free && before.Begun {
		return before, ErrBegun
	}
	seized, err := d.seize(ctx, id, before, force)
	if err != nil {
		return before, err
	}
	if o.State == driver.Free && seized.Begun {
		return before, fmt.Errorf("%w; it is held as unknown now", ErrBegun)
	}
	o.Response = d.keyring.Seal(id, seized.Token, o.Response)
	var after driver.Record
	var owned bool
	err = untilAcknowledged(ctx, func() error {
		after, owned, err = d.store.Settle(ctx, id, seized.Owner(), o)
		return err
	})
	switch {
	case err != nil:
		return before, fmt.Errorf("settle: %w; unless that was done all the same, it is held as unknown now", err)
	case !owned:
		return before, ErrChanged
	}
	return after, nil
}

// forget deletes a record that nobody owns.
func (d *Desk) forget(ctx context.Context, id driver.ID, before driver.Record, force bool) (driver.Record, error) {
	owner := before.Owner()
	if before.State == driver.Unknown || !before.Forgettable(before.Now, owner) {
		if before.Reads(before.OnLost) == driver.ReadsRunning && !force {
			return before, ErrAtWork
		}
		seized, err := d.seize(ctx, id, before, force)
		if err != nil {
			return before, err
		}
		owner = seized.Owner()
	}
	var forgotten bool
	err := untilAcknowledged(ctx, func() (err error) {
		forgotten, err = d.seizer.Forget(ctx, id, owner)
		return err
	})
	if err != nil {
		return before, fmt.Errorf("forget: %w", err)
	}
	after, err := d.load(ctx, id)
	switch {
	case err != nil && forgotten:
		return driver.Record{}, nil
	case err != nil:
		return before, err
	case !forgotten && after.State != driver.Absent:
		return before, ErrChanged // the record is there: this decision has not deleted it
	}
	return driver.Record{Now: after.Now}, nil
}

// seize takes an operation from whoever owned it. It makes sure that no run has owned it since Desk looked at it.
func (d *Desk) seize(ctx context.Context, id driver.ID, before driver.Record, force bool) (rec driver.Record, err error) {
	token := driver.NewToken()
	err = untilAcknowledged(ctx, func() error {
		rec, err = d.seizer.Seize(ctx, id, token)
		return err
	})
	switch {
	case err != nil:
		return rec, fmt.Errorf("seize: %w", err)
	case rec.Token != token:
		return rec, ErrChanged
	case !force && rec.LeaseEnd != before.LeaseEnd:
		// Between the look and the seizure a run began or renewed its lease: it may be at work.
		return rec, fmt.Errorf("%w; it is held as unknown now", ErrChanged)
	}
	return rec, nil
}

func (by Decision) check() error {
	const longest = 1000
	for _, text := range []struct{ name, value string }{{"actor", by.Actor}, {"reason", by.Reason}} {
		switch {
		case strings.TrimSpace(text.value) == "":
			return fmt.Errorf("the %s is empty", text.name)
		case len(text.value) > longest:
			return fmt.Errorf("the %s has %d bytes, want at most %d", text.name, len(text.value), longest)
		case !utf8.ValidString(text.value) || strings.ContainsFunc(text.value, isControl):
			return fmt.Errorf("the %s holds more than text on one line", text.name)
		}
	}
	return nil
}
