package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/migration"
	"github.com/semelhq/semel/pgstore/internal/composite"
)

//go:embed migrations/*.up.sql
var migrationFiles embed.FS

// migrations are the templates of the scripts that make the schema. Each says in the table meta which version it makes.
var migrations = migration.Read(migrationFiles, "migrations")

// recordColumns are the fields of the type found_1 that come from the table, in their order.
const recordColumns = "r.layout, r.state, r.wrote, r.on_lost, r.begun, r.maybe, r.seized, r.steps, r.owed, r.fence, r.attempt, r.created, r.started, " +
	"r.lease_end, r.settled, r.retention, r.tombstone, r.answer_day, r.token, r.fingerprint, r.operation, r.correlation, r.error, r.answer, r.sealed"

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// checkSchema reports what is wrong with the name of a schema.
func checkSchema(name string) error {
	if !schemaName.MatchString(name) {
		return fmt.Errorf("the schema's name %q must be of 1 to 63 lower-case letters, digits and underscores, and not begin with a digit", name)
	}
	if strings.HasPrefix(name, "pg_") {
		return fmt.Errorf("the schema's name %q begins with pg_, which PostgreSQL keeps for itself", name)
	}
	return nil
}

// CheckSchema reports why [Open] would refuse a name for Options.Schema.
func CheckSchema(name string) error { return checkSchema(orDefault(name)) }

// inSchema fills a template of SQL.
func inSchema(template, schema string) string {
	return strings.NewReplacer(
		"{schema}", pgx.Identifier{schema}.Sanitize(),
		"{channel}", "'"+schema+"'",
		"{outbox_channel}", "'"+outboxChannel(schema)+"'",
		"{columns}", recordColumns,
		"{written}", strings.Replace(recordColumns, "r.answer, ", "NULL, ", 1), // without the answer
	).Replace(template)
}

// Migrations returns what [Open] runs to bring a schema from a version, 0 if there is none yet, to that of [Latest]: a
// folder with one file of SQL for each later version, such as 0001_records.up.sql, which goose, golang-migrate and Atlas
// can run as it is. "" means the default schema. Each file is to be run whole, in one transaction, and says in the table
// meta which version it has made. There is no way back. It panics on a name that Open refuses.
//
// Whoever migrates so opens the store with Options.NoMigration. A role that is not the owner needs USAGE of the schema,
// SELECT, INSERT, UPDATE and DELETE of its tables, and USAGE, SELECT and UPDATE of its sequences.
func Migrations(schema string, from int) fs.FS {
	schema = orDefault(schema)
	if err := checkSchema(schema); err != nil {
		panic("pgstore: " + err.Error())
	}
	return migrations.After(from, func(template string) string { return inSchema(template, schema) })
}

func orDefault(schema string) string {
	if schema == "" {
		return "semel"
	}
	return schema
}

// Version returns the version of a schema; 0 means that there is none yet. "" is the default schema.
func Version(ctx context.Context, app *pgxpool.Pool, schema string) (version int, err error) {
	schema = orDefault(schema)
	if err = checkSchema(schema); err == nil {
		err = app.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			version, _, err = readVersion(ctx, c.Conn().PgConn(), schema)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("pgstore: version: %w", interpretError(err))
	}
	return version, nil
}

// Latest is the version of the schema that this version of the package makes.
func Latest() int { return len(migrations) }

// readVersion returns the schema's version, and the lowest version that can work with it.
func readVersion(ctx context.Context, conn *pgconn.PgConn, schema string) (version, readable int, err error) {
	c := call{sql: inSchema("SELECT version::bigint, readable::bigint FROM {schema}.meta", schema)}
	err = c.run(ctx, conn, func(row [][]byte) error {
		version, readable = int(int8Of(row[0])), int(int8Of(row[1]))
		return nil
	})
	if err = interpretError(err); errors.Is(err, ErrSchema) {
		return 0, 0, nil
	}
	return version, readable, err
}

// migrate brings the schema to the version that this package knows. Processes that do so at once wait for each other.
func (s *Store) migrate(ctx context.Context, allowed bool) error {
	return s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		conn := c.Conn().PgConn()
		have, readable, err := readVersion(ctx, conn, s.schema)
		switch want := len(migrations); {
		case err != nil:
			return fmt.Errorf("read the schema's version: %w", err)
		case have == want, have > want && readable <= want:
			return s.checkVerbs(ctx, conn, have)
		case have > want:
			return fmt.Errorf("%w: it has version %d, which programs from version %d on can use; this one knows versions up to %d", ErrVersion, have, readable, want)
		case !allowed:
			return fmt.Errorf("%w: it has version %d, this program needs version %d, and is told not to migrate", ErrVersion, have, want)
		}
		if err := upgrade(ctx, conn, s.schema); err != nil {
			return fmt.Errorf("migrate from version %d: %w", have, interpretError(err))
		}
		return nil
	})
}

// checkVerbs reports a schema whose functions are not those that its version should have, such as one that was made
// before that version was released, or restored in part.
func (s *Store) checkVerbs(ctx context.Context, conn *pgconn.PgConn, have int) error {
	err := s.checkFunctions(ctx, conn)
	if err = interpretError(err); errors.Is(err, ErrSchema) {
		return fmt.Errorf("%w: it says that it has version %d, and is not what that version makes: %w", ErrVersion, have, err)
	}
	return err
}

// checkFunctions reports which functions are missing of those that the store calls, and whether a record has the fields
// that it reads.
func (s *Store) checkFunctions(ctx context.Context, conn *pgconn.PgConn) error {
	var missing string
	c := (&call{sql: inSchema(missingFunctions, s.schema)}).texts(s.functions())
	err := c.run(ctx, conn, func(row [][]byte) error { missing = string(row[0]); return nil })
	switch {
	case err != nil:
		return err
	case missing != "":
		return fmt.Errorf("%w: it has no function %s", ErrSchema, missing)
	}
	return (&call{sql: s.sql.load}).bytes(make([]byte, len(driver.ID{}))).run(ctx, conn, func(row [][]byte) error {
		fields, err := composite.Fields(row[0])
		if err == nil && len(fields) != foundColumns {
			err = fmt.Errorf("%w: its function load_1 returns %d columns, want %d", ErrSchema, len(fields), foundColumns)
		}
		return err
	})
}

const missingFunctions = `SELECT string_agg(f.name, ', ') FROM unnest($1) f(name)
	WHERE NOT EXISTS (SELECT FROM pg_proc p WHERE p.proname = f.name AND p.pronamespace = to_regnamespace('{schema}'))`

// calledFunction matches a call of one of the schema's functions. Their names end in a version.
var calledFunction = regexp.MustCompile(`\.(\w+_\d+)\(`)

// functions returns the names of the functions that the store's statements call.
func (s *Store) functions() (names []string) {
	k := s.kinds
	for _, call := range calledFunction.FindAllStringSubmatch(fmt.Sprint(s.sql, k.extend.sql, k.settle.sql, k.claim.sql, k.load.sql), -1) {
		names = append(names, call[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// upgrade runs, in one transaction, the migrations that the schema lacks.
func upgrade(ctx context.Context, conn *pgconn.PgConn, schema string) (err error) {
	exec := func(sql string) error {
		_, err := conn.Exec(ctx, sql).ReadAll()
		return err
	}
	if err := exec("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			exec("ROLLBACK") //nolint:errcheck // else the connection is of no use, and the pool drops it
		}
	}()
	// Held until the commit; the others then find that all is done.
	if err := exec(fmt.Sprintf("SELECT pg_advisory_xact_lock(hashtextextended('semel migration of %s', 0))", schema)); err != nil {
		return err
	}
	have, err := lockedVersion(ctx, conn, schema)
	if err != nil {
		return err
	}
	for have < len(migrations) {
		if err := exec(inSchema(migrations[have].SQL, schema)); err != nil {
			return err
		}
		have++
	}
	return exec("COMMIT")
}

// lockedVersion is readVersion within a transaction, which an error would end.
func lockedVersion(ctx context.Context, conn *pgconn.PgConn, schema string) (have int, err error) {
	var there bool
	c := call{sql: inSchema("SELECT to_regclass('{schema}.meta') IS NOT NULL", schema)}
	if err := c.run(ctx, conn, func(row [][]byte) error { there = boolOf(row[0]); return nil }); err != nil || !there {
		return 0, err
	}
	have, _, err = readVersion(ctx, conn, schema)
	return have, err
}
