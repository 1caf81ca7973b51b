package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/semelhq/semel/cmd/internal/stores"
)

type migrateCommand struct {
	Store string `default:"sqlite://semel.db" placeholder:"URL" help:"The store, which must exist (default ${default})."`
	Print bool   `help:"Print the SQL that makes the schema, and change nothing."`
	Files string `placeholder:"FOLDER" help:"Write that SQL as numbered files into a folder, for goose, golang-migrate or Atlas, and change nothing."`
	From  int    `placeholder:"N" help:"Leave out what made version N of the schema and those before it (default 0)."`
}

func (*migrateCommand) Help() string {
	return `The gateway migrates its store by itself when it starts. This does it beforehand, or shows what is done.

Examples:

    semel migrate --store sqlite:///var/lib/semel/semel.db
    semel migrate --store 'postgres://semel@db/payments?schema=semel'
    semel migrate --store postgres://db --print --from 1
    semel migrate --store postgres://db --files migrations/semel`
}

func (m *Main) migrate(ctx context.Context, c *migrateCommand) (err error) {
	switch {
	case c.Print && c.Files != "":
		return usageError{errors.New("--print and --files do not go together")}
	case c.Print || c.Files != "":
		return m.showMigrations(c)
	case c.From != 0:
		return usageError{errors.New("--from needs --print or --files: a store knows which version it has")}
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

// showMigrations prints the SQL, or writes its files. Standard output is SQL, or nothing.
func (m *Main) showMigrations(c *migrateCommand) error {
	files, err := stores.Migrations(c.Store, c.From)
	if err != nil {
		return err
	}
	script, err := stores.Script(c.Store, c.From)
	switch {
	case err != nil:
		return err
	case files == nil:
		_, err = fmt.Fprintf(m.Stderr, "%s: this kind of store has no schema\n", stores.Redacted(c.Store))
	case script == "":
		_, err = fmt.Fprintf(m.Stderr, "version %d of the schema is the one needed\n", c.From)
	case c.Print:
		_, err = fmt.Fprint(m.Stdout, script)
	default:
		if err = os.CopyFS(c.Files, files); err != nil {
			err = fmt.Errorf("write the migrations: %w", err)
		}
	}
	return err
}
