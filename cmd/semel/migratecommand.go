package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/sqlitestore"
)

type migrateCommand struct {
	Store string `default:"sqlite://semel.db" placeholder:"URL" help:"The store, which must exist (default ${default})."`
	Print bool   `help:"Print the SQL that makes the schema, and change nothing."`
}

func (*migrateCommand) Help() string {
	return `The gateway migrates its store by itself when it starts. This does it beforehand, or shows what is done.

Examples:

    semel migrate --store sqlite:///var/lib/semel/semel.db
    semel migrate --print`
}

func (m *Main) migrate(ctx context.Context, c *migrateCommand) (err error) {
	if c.Print {
		script, err := stores.Migrations(c.Store)
		if err == nil {
			_, err = fmt.Fprint(m.Stdout, script)
		}
		return err
	}
	log := newLog(m.Stderr, "text", "warn")
	if err := exists(c.Store); err != nil {
		return err
	}
	opened, err := stores.OpenUnmigrated(ctx, c.Store, log)
	migrates := errors.Is(err, sqlitestore.ErrVersion)
	if err != nil && !migrates {
		return err
	}
	from := 0
	if migrates {
		if from, err = schemaVersion(ctx, c.Store); err != nil {
			return err
		}
		if opened, err = stores.Open(ctx, c.Store, log); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	to, err := schemaVersion(ctx, c.Store)
	if err != nil {
		return err
	}
	if migrates {
		fmt.Fprintf(m.Stdout, "%s: migrated the schema from version %d to version %d\n", c.Store, from, to)
	} else {
		fmt.Fprintf(m.Stdout, "%s: the schema has version %d, which is the one needed\n", c.Store, to)
	}
	return nil
}

// schemaVersion returns the version of the schema in a database, 0 if it has none.
func schemaVersion(ctx context.Context, address string) (version int, err error) {
	file, _ := strings.CutPrefix(address, "sqlite://")
	if file, err = filepath.Abs(file); err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?mode=ro")
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var n int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'semel_meta'").Scan(&n)
	if err == nil && n > 0 {
		err = db.QueryRowContext(ctx, "SELECT version FROM semel_meta").Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	return version, nil
}
