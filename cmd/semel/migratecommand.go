package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/cmd/internal/stores"
)

type migrateCommand struct {
	Store string `default:"sqlite://semel.db" placeholder:"URL" help:"The store, which must exist (default ${default})."`
	Print bool   `help:"Print the SQL that makes the schema, and change nothing."`
}

func (*migrateCommand) Help() string {
	return `The gateway migrates its store by itself when it starts. This does it beforehand, or shows what is done.

Examples:

    semel migrate --store sqlite:///var/lib/semel/semel.db
    semel migrate --store 'postgres://semel@db/payments?schema=semel'
    semel migrate --store postgres://db --print`
}

func (m *Main) migrate(ctx context.Context, c *migrateCommand) (err error) {
	if c.Print {
		script, err := stores.Migrations(c.Store)
		if err == nil && script == "" {
			// Not on standard output, which is SQL.
			_, err = fmt.Fprintf(m.Stderr, "%s: this kind of store has no schema\n", stores.Redacted(c.Store))
		}
		if err == nil {
			_, err = fmt.Fprint(m.Stdout, script)
		}
		return err
	}
	log := newLog(m.Stderr, "text", "warn")
	if err := exists(c.Store); err != nil {
		return err
	}
	opened, err := stores.Open(ctx, c.Store, stores.Options{NoMigration: true, Log: log})
	migrates := stores.OtherVersion(err)
	if err != nil && !migrates {
		return err
	}
	shown, from := stores.Redacted(c.Store), 0
	if migrates {
		if from, err = stores.Version(ctx, c.Store); err != nil {
			return err
		}
		if opened, err = stores.Open(ctx, c.Store, stores.Options{Log: log}); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	to, err := stores.Version(ctx, c.Store)
	if err != nil {
		return err
	}
	switch {
	case to == 0:
		fmt.Fprintf(m.Stdout, "%s: this kind of store has no schema\n", shown)
	case migrates:
		fmt.Fprintf(m.Stdout, "%s: migrated the schema from version %d to version %d\n", shown, from, to)
	default:
		fmt.Fprintf(m.Stdout, "%s: the schema has version %d, which is the one needed\n", shown, to)
	}
	return nil
}
