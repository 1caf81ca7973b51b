package sqlitestore

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/semelhq/semel/internal/migration"
)

//go:embed migrations/*.up.sql
var migrationFiles embed.FS

// migrations are the scripts that make the schema. Each says in semel_meta which version it makes.
var migrations = migration.Read(migrationFiles, "migrations")

// Migrations returns what [Open] runs to bring a database from a version of the schema, 0 if there is none yet, to the
// one that this package needs: a folder with one file of SQL for each later version, such as 0001_records.up.sql, which
// goose, golang-migrate and Atlas can run as it is. Each file is to be run whole, in one transaction, and says in the
// table semel_meta which version it has made. There is no way back. Whoever migrates so opens the store with
// Options.NoMigration.
func Migrations(from int) fs.FS {
	return migrations.After(from, func(sql string) string { return sql })
}

// migrate brings the schema to the version that this package knows. Processes that do so at once wait for each other.
func migrate(ctx context.Context, s *session, allowed bool) error {
	var have int
	err := patiently(ctx, func() (err error) {
		have, err = s.version()
		return err
	})
	switch {
	case err != nil:
		return err
	case have == len(migrations):
		return s.checkStatements(ctx, have)
	case have > len(migrations):
		return fmt.Errorf("%w: it has version %d, this program knows versions up to %d", ErrVersion, have, len(migrations))
	case !allowed:
		return fmt.Errorf("%w: it has version %d, this program needs version %d, and is told not to migrate", ErrVersion, have, len(migrations))
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	have, err = s.version() // another process may have been here first
	for err == nil && have < len(migrations) {
		if err = s.exec(migrations[have].SQL); err == nil {
			have, err = s.version()
		}
	}
	if err == nil {
		err = s.exec("COMMIT")
	}
	if err != nil {
		s.reset()
		return fmt.Errorf("migrate from version %d: %w", have, err)
	}
	return migrate(ctx, s, false) // it may be newer now
}

// checkStatements reports a schema for which the store's statements are not made: one that was made before its version
// was released, or is incomplete.
func (s *session) checkStatements(ctx context.Context, have int) error {
	return patiently(ctx, func() error {
		for which := range statements {
			if _, err := s.stmt(which); err != nil && missing(err) {
				return fmt.Errorf("%w: it says that it has version %d, and is not what that version makes: %w", ErrVersion, have, err)
			} else if err != nil {
				return fmt.Errorf("prepare the store's statements: %w", err)
			}
		}
		return nil
	})
}

// missing reports whether a statement names a table or a column that there is not, in the words of SQLite.
func missing(err error) bool {
	for _, part := range []string{"no such table", "no such column", "has no column named"} {
		if strings.Contains(err.Error(), part) {
			return true
		}
	}
	return false
}

// version returns the schema's version; 0 means that there is none yet.
func (s *session) version() (n int, err error) {
	err = s.conn.QueryRowContext(detached, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'semel_meta'").Scan(&n)
	if err == nil && n > 0 {
		err = s.conn.QueryRowContext(detached, "SELECT version FROM semel_meta").Scan(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", interpretError(err))
	}
	return n, nil
}
