package main

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

// outboxRun is one command on an outbox.
type outboxRun struct {
	*Main
	box    outbox.Store
	opened *stores.Opened
	json   bool
}

var errNoMessage = errors.New("there is no such message")

// messageStates are what list --state names; none selects all.
var messageStates = map[string]outbox.State{"pending": outbox.Pending, "dead": outbox.Dead, "sent": outbox.Sent}

func (o *outboxRun) list(ctx context.Context, c *outboxList) error {
	q := c.query()
	q.State, q.After = messageStates[c.State], c.After
	if c.Limit > 0 {
		q.Limit = c.Limit + 1 // one more, to see whether there are any
	}
	var views []messageView
	more := false
	failed := o.box.List(ctx, q, func(e outbox.Entry) bool {
		if more = c.Limit > 0 && len(views) == c.Limit; !more {
			views = append(views, viewOfMessage(&e, false))
		}
		return !more
	})
	if failed != nil && len(views) == 0 {
		return failed
	}
	var err error
	if o.json {
		err = printJSON(o.Stdout, append([]messageView{}, views...))
	} else {
		err = printMessages(o.Stdout, views)
	}
	if err == nil && more {
		fmt.Fprintf(o.Stderr, "There are more: go on with --after %s, or raise --limit.\n", views[len(views)-1].ID)
	}
	return errors.Join(err, failed)
}

func (o *outboxRun) show(ctx context.Context, c *outboxShow) (err error) {
	entries, err := o.find(ctx, outbox.Query{IDs: []string{c.ID}})
	if err != nil {
		return err
	}
	if len(entries) > 0 && c.Body {
		if c.Actor == "" {
			if c.Actor, err = whoAmI(); err != nil {
				return err
			}
		}
		if err := o.audit(ctx, c.ID, driver.AuditEntry{Actor: c.Actor, Action: "show message", Reason: "--body", Result: "done"}); err != nil {
			return fmt.Errorf("nothing is shown: %w", err)
		}
	}
	var trail []driver.AuditEntry
	id := messageID(c.ID)
	err = o.auditor().AuditTrail(ctx, &id, 0, func(e driver.AuditEntry) bool {
		trail = append(trail, e)
		return true
	})
	switch {
	case err != nil:
		return err
	case len(entries) == 0 && len(trail) == 0:
		return fmt.Errorf("show %s: %w", c.ID, errNoMessage)
	}
	v := messageView{ID: c.ID, State: "absent"}
	if len(entries) > 0 {
		v = viewOfMessage(&entries[0], c.Body)
	}
	v.Decisions = decisionsOf(trail)
	if o.json {
		err = printJSON(o.Stdout, v)
	} else {
		err = printMessage(o.Stdout, &v)
	}
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("show %s: %w", c.ID, errNoMessage)
	}
	return err
}

// find returns the messages that a query selects.
func (o *outboxRun) find(ctx context.Context, q outbox.Query) (entries []outbox.Entry, err error) {
	err = o.box.List(ctx, q, func(e outbox.Entry) bool {
		entries = append(entries, e)
		return true
	})
	return entries, err
}

// A messageDecision is what can be decided about messages.
type messageDecision struct {
	action string
	is     string // what a message is then
	sent   bool   // it can be decided about sent ones
}

var (
	requeue = messageDecision{"requeue", "pending", false}
	drop    = messageDecision{"drop", "absent", true}
)

const dropMeans = "What was not sent never will be, though the data that it tells of is committed."

// atOnce is how many messages are decided about at once.
const atOnce = 16

// decide makes a decision about messages, after a question unless yes, and prints what became of each.
func (o *outboxRun) decide(ctx context.Context, d *messageDecision, c *messageChoice, yes bool, change func(context.Context, ...string) (int, error)) (err error) {
	if c.Actor == "" {
		if c.Actor, err = whoAmI(); err != nil {
			return err
		}
	}
	changes, err := o.chosen(ctx, c)
	if err != nil {
		return err
	}
	if !yes && len(changes) > 0 {
		if err := o.askToDrop(ctx, changes); err != nil {
			return err
		}
	}
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range changes {
		if changes[i].Error != "" {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := o.decideOne(ctx, d, c, &changes[i], change); err != nil {
				changes[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	if o.json {
		err = printJSON(o.Stdout, append([]messageChange{}, changes...))
	} else {
		err = printMessageChanges(o.Stdout, changes)
	}
	failed := 0
	for i := range changes {
		if changes[i].Error != "" {
			failed++
		}
	}
	switch {
	case err != nil:
		return err
	case failed == 1 && len(changes) == 1:
		return fmt.Errorf("%s %s: %s", d.action, changes[0].ID, changes[0].Error)
	case failed > 0:
		return fmt.Errorf("%d of %d messages were left alone", failed, len(changes))
	}
	return nil
}

// chosen returns the messages that a choice is about, as they are.
func (o *outboxRun) chosen(ctx context.Context, c *messageChoice) (changes []messageChange, err error) {
	q := c.query()
	if q.State = outbox.Dead; len(c.IDs) > 0 {
		q = outbox.Query{IDs: c.IDs}
	}
	found := map[string]bool{}
	err = o.box.List(ctx, q, func(e outbox.Entry) bool {
		found[e.ID] = true
		v := viewOfMessage(&e, false)
		changes = append(changes, messageChange{ID: e.ID, Was: v.short(), state: e.State})
		return true
	})
	for _, id := range c.IDs {
		if !found[id] {
			found[id] = true
			changes = append(changes, messageChange{ID: id, Was: "absent", Is: "absent", Error: errNoMessage.Error()})
		}
	}
	return changes, err
}

// askToDrop asks whether messages are to be dropped.
func (o *outboxRun) askToDrop(ctx context.Context, changes []messageChange) error {
	what := fmt.Sprintf("%d messages are to be dropped.", len(changes))
	if len(changes) == 1 {
		what = fmt.Sprintf("Message %s, which is %s, is to be dropped.", changes[0].ID, changes[0].Was)
	}
	yes, err := o.ask(ctx, fmt.Sprintf("%s\n%s\nDrop? [y/N] ", what, dropMeans))
	switch {
	case errors.Is(err, errNoTerminal):
		return usageError{fmt.Errorf("%s\n%s\nIf you mean it write --yes: %w", what, dropMeans, err)}
	case err != nil:
		return fmt.Errorf("ask whether to drop: %w; %w", err, errDeclined)
	case !yes:
		return errDeclined
	}
	return nil
}

// decideOne makes a change between two entries of the audit trail. Nothing is changed before the first one is durable.
func (o *outboxRun) decideOne(ctx context.Context, d *messageDecision, c *messageChoice, m *messageChange, change func(context.Context, ...string) (int, error)) error {
	m.Is = m.Was
	if m.state == outbox.Sent && !d.sent {
		return errors.New("it was sent")
	}
	entry := driver.AuditEntry{Actor: c.Actor, Action: d.action + " message", Reason: c.Reason, Result: "asked"}
	if err := o.audit(ctx, m.ID, entry); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	n, err := change(ctx, m.ID)
	switch {
	case err != nil:
		entry.Result = "failed: " + err.Error()
	case n == 0:
		entry.Result = "refused"
		err = errors.New("a relay is about to send it, or it has changed meanwhile: look again")
	default:
		entry.Result, m.Is = "done", d.is
	}
	return errors.Join(err, o.audit(context.WithoutCancel(ctx), m.ID, entry))
}

func (o *outboxRun) auditor() driver.Auditor { return o.opened.Store.(driver.Auditor) } // every database's store is one

func (o *outboxRun) audit(ctx context.Context, id string, e driver.AuditEntry) error {
	e.ID, e.Operation = messageID(id), id
	if err := o.auditor().Audit(ctx, e); err != nil {
		return fmt.Errorf("the audit trail can't be written: %w", err)
	}
	return nil
}

// messageID is what stands for a message in the audit trail, beside the operations.
func messageID(id string) driver.ID {
	return driver.ID(sha512.Sum384([]byte("semel outbox message\x00" + id)))
}

func (o *outboxRun) check(ctx context.Context, c *outboxCheck) error {
	query := c.Query
	if query == "-" {
		text, err := o.readQuery()
		if err != nil {
			return fmt.Errorf("read the query: %w", err)
		}
		query = text
	}
	v := checkView{Missing: []map[string]*string{}}
	var columns []string
	var rows []stores.Row
	n, err := o.opened.WithoutMessage(ctx, query, func(names []string, row stores.Row) error {
		v.Without++
		if c.Limit > 0 && len(rows) == c.Limit {
			return nil
		}
		columns, rows = names, append(rows, row)
		return nil
	})
	switch {
	case errors.Is(err, stores.ErrQuery):
		return usageError{err}
	case err != nil:
		return err
	}
	if v.Checked = n; o.json {
		for _, row := range rows {
			v.Missing = append(v.Missing, byColumn(columns, row))
		}
		err = printJSON(o.Stdout, v)
	} else {
		err = printMissing(o.Stdout, &v, columns, rows)
	}
	if err != nil || v.Without == 0 {
		return err
	}
	kept, err := o.keepsSent(ctx)
	if err == nil && !kept {
		fmt.Fprintln(o.Stderr, "The outbox has no sent message: unless it keeps them (outbox.Options.Keep), what was sent looks as if it had never been there.")
	}
	return errors.Join(err, fmt.Errorf("%d of %d rows have no message", v.Without, v.Checked))
}

// keepsSent reports whether the outbox has a message that was sent.
func (o *outboxRun) keepsSent(ctx context.Context) (kept bool, err error) {
	err = o.box.List(ctx, outbox.Query{State: outbox.Sent, Limit: 1}, func(outbox.Entry) bool {
		kept = true
		return false
	})
	return kept, err
}

func (o *outboxRun) readQuery() (string, error) {
	const longest = 1 << 20
	in := o.Stdin
	if in == nil {
		in = os.Stdin
	}
	text, err := io.ReadAll(io.LimitReader(in, longest+1))
	if err == nil && len(text) > longest {
		err = fmt.Errorf("it has more than %d bytes", longest)
	}
	return string(text), err
}
