package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/cmd/internal/secret"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
)

// keysRun is one command on the operations of a store.
type keysRun struct {
	*Main
	desk       *admin.Desk
	opened     *stores.Opened
	keyless    bool // names and answers that are encrypted can't be read
	secretFile string
	json       bool
}

// identify hashes a key as the gateway has. Of two operations that it may stand for it returns the one that is stored.
func (k *keysRun) identify(ctx context.Context, p *principal, key, operation string) (driver.ID, error) {
	scope, err := p.given()
	if err != nil {
		return driver.ID{}, err
	}
	identitySecret, err := secret.Find(ctx, k.opened, k.secretFile)
	if err != nil {
		return driver.ID{}, err
	}
	ids, err := identities(ctx, identitySecret, semel.Kind(p.Kind), scope, key, operation)
	if err != nil {
		return driver.ID{}, usageError{err}
	}
	if len(ids) == 1 {
		return ids[0], nil
	}
	var stored []driver.ID
	for _, id := range ids {
		known, err := k.known(ctx, id)
		if err != nil {
			return driver.ID{}, err
		}
		if known {
			stored = append(stored, id)
		}
	}
	switch len(stored) {
	case 0:
		return ids[0], nil
	case 1:
		return stored[0], nil
	}
	return driver.ID{}, usageError{fmt.Errorf("the key stands for two operations, on routes that tell its case apart and on others: say which by its id, %s or %s", ids[0], ids[1])}
}

func (k *keysRun) show(ctx context.Context, c *keysShow) error {
	id, err := parseID(c.ID)
	if err != nil {
		return err
	}
	if c.Body {
		if err := k.auditShown(ctx, id, c.Actor); err != nil {
			return err
		}
	}
	return k.print(ctx, id, c.Body)
}

// auditShown notes who is shown a stored answer, before that. Where there is none, nothing is noted.
func (k *keysRun) auditShown(ctx context.Context, id driver.ID, actor string) (err error) {
	rec, err := k.opened.Store.Load(ctx, id) // as it is stored: a name that is sealed stays so in the trail
	switch {
	case err != nil:
		return fmt.Errorf("show %s: %w", id, err)
	case rec.Response == nil || id.Reserved():
		return nil
	}
	if actor == "" {
		if actor, err = whoAmI(); err != nil {
			return err
		}
	}
	e := driver.AuditEntry{ID: id, Operation: rec.Operation, Actor: actor, Action: "show", Reason: "--body", Result: "done"}
	if err := k.opened.Store.(driver.Auditor).Audit(ctx, e); err != nil { // a desk is made of an Auditor only
		return fmt.Errorf("show %s: nothing is shown, because the audit trail can't be written: %w", id, err)
	}
	return nil
}

// print prints an operation and what was decided about it. That is printed of a forgotten one too.
func (k *keysRun) print(ctx context.Context, id driver.ID, body bool) error {
	rec, trail, err := k.desk.Show(ctx, id)
	if err != nil {
		return err
	}
	absent := rec.State == driver.Absent
	if !absent || len(trail) > 0 {
		v := viewOf(id, &rec, body)
		v.Decisions = decisionsOf(trail)
		if k.json {
			err = printJSON(k.Stdout, v)
		} else {
			err = printOperation(k.Stdout, v)
		}
	}
	if err == nil && absent {
		err = admin.ErrNotFound
	}
	return err
}

func (k *keysRun) complete(ctx context.Context, c *keysComplete) error {
	answer, err := k.answer(c)
	if err != nil {
		return err
	}
	return k.decide(ctx, "complete", &c.target, true, func(ctx context.Context, id driver.ID, by admin.Decision) (admin.Change, error) {
		return k.desk.Complete(ctx, id, answer, by)
	})
}

// answer reads the answer that complete is to store, nil for none.
func (k *keysRun) answer(c *keysComplete) (*driver.Response, error) {
	if c.NoAnswer {
		return nil, nil
	}
	answer := &driver.Response{Status: c.Status}
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, usageError{fmt.Errorf("--header %q: want NAME: VALUE", line)}
		}
		if answer.Header == nil {
			answer.Header = http.Header{}
		}
		answer.Header.Add(name, strings.TrimSpace(value))
	}
	if c.BodyFile == "" {
		return answer, nil
	}
	var err error
	if answer.Body, err = k.readBody(c.BodyFile); err != nil {
		return nil, fmt.Errorf("read the answer's body: %w", err)
	}
	return answer, nil
}

func (k *keysRun) readBody(name string) ([]byte, error) {
	const longest = 16 << 20
	in := k.Stdin
	switch {
	case name != "-":
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // nothing was written
		in = f
	case in == nil:
		in = os.Stdin
	}
	body, err := io.ReadAll(io.LimitReader(in, longest+1))
	if err == nil && len(body) > longest {
		err = fmt.Errorf("it has more than %d bytes", longest)
	}
	return body, err
}

// decide makes a decision, after a question unless yes, and prints what the operation was and what it is.
func (k *keysRun) decide(ctx context.Context, action string, t *target, yes bool, make func(context.Context, driver.ID, admin.Decision) (admin.Change, error)) error {
	by := admin.Decision{Actor: t.Actor, Reason: t.Reason, Force: t.Force, Confirm: k.confirm(action, t, yes)}
	var err error
	if by.Actor == "" {
		if by.Actor, err = whoAmI(); err != nil {
			return err
		}
	}
	var id driver.ID
	if t.ID != "" {
		id, err = parseID(t.ID)
	} else {
		id, err = k.identify(ctx, &t.principal, t.Key, t.Operation)
	}
	if err != nil {
		return err
	}
	change, failed := make(ctx, id, by)
	if change.Before.State == driver.Absent {
		if errors.Is(failed, admin.ErrAtWork) {
			return fmt.Errorf("%w: wait for its end, or decide with --force, which risks that its effects come after your decision", failed)
		}
		return failed
	}
	v := changeView{Action: action, Before: viewOf(id, &change.Before, false)}
	if change.After.State != driver.Absent {
		after := viewOf(id, &change.After, false)
		v.After = &after
	}
	if k.json {
		err = printJSON(k.Stdout, v)
	} else {
		err = printChange(k.Stdout, v)
	}
	return errors.Join(failed, err)
}

// parseID reads an operation's id, as the commands print it.
func parseID(s string) (driver.ID, error) {
	id, err := driver.ParseID(s)
	if err != nil {
		return id, usageError{fmt.Errorf("%w; \"semel keys find\" finds it by the key", err)}
	}
	return id, nil
}
