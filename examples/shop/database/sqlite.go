package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/sqlitestore"
)

// SQLite's locks are those of each descriptor, so that nothing that opens and closes the file beside it drops them.
var _, _ = sqlite.OFDLocking(true)

// A commit waits for the data and the size of the log, not also for the time of its last change.
var _, _ = sqlite.Fdatasync(true)

type sqliteBackend struct {
	db     *sql.DB
	store  *sqlitestore.Store
	outbox *sqlitestore.Outbox
}

func openSQLite(ctx context.Context, path, schema string) (_ *DB, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) // SQLite would let others read it
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	// A transaction that writes takes the lock when it begins: one that took it later could find that its reads are
	// old.
	options := "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(ON)&_txlock=immediate"
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+options)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	b := &sqliteBackend{db: db}
	if b.store, err = sqlitestore.Open(ctx, db, sqlitestore.Options{}); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if b.outbox, err = sqlitestore.OpenOutbox(b.store, outbox.Options{}); err == nil {
		_, err = db.ExecContext(ctx, schema)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, errors.Join(err, b.store.Close()))
	}
	return &DB{Queries: sqliteQueries{on: db}, Store: b.store, Outbox: b.outbox, backend: b}, nil
}

func (b *sqliteBackend) Tx(ctx context.Context, fn func(context.Context, Tx) error) error {
	return b.store.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqliteQueries{on: tx}) })
}

// Write has its turn in the store's line, as Tx has. Transactions beside the line, one after the other, would keep the
// store from renewing the leases of runs.
func (b *sqliteBackend) Write(ctx context.Context, fn func(Tx) error) error {
	err := b.store.Tx(plain{ctx}, func(_ context.Context, tx *sql.Tx) error { return fn(sqliteQueries{tx, statements{}}) })
	if err == nil {
		b.outbox.Wake()
	}
	return err
}

// plain is a context without an operation.
type plain struct{ context.Context }

func (plain) Value(any) any { return nil }

func (b *sqliteBackend) Send(ctx context.Context, tx Tx, messages ...outbox.Message) error {
	return b.outbox.Add(ctx, tx.(sqliteQueries).on.(*sql.Tx), messages...)
}

func (b *sqliteBackend) Inbox(ctx context.Context, c *consumer.Consumer, m consumer.Message, fn func(context.Context, Tx, consumer.Message) error) consumer.Result {
	return sqlitestore.Inbox(ctx, c, b.store, m, func(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
		return fn(ctx, sqliteQueries{on: tx}, m)
	})
}

func (b *sqliteBackend) Close() error { return errors.Join(b.store.Close(), b.db.Close()) }

// sqliteQueries runs statements on a *sql.DB or a *sql.Tx. Where statements are known, each is prepared once.
type sqliteQueries struct {
	on interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	known statements // nil if on is no transaction
}

func (q sqliteQueries) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	exec := func() (sql.Result, error) { return q.on.ExecContext(ctx, query, args...) }
	if q.known != nil {
		s, err := q.known.in(ctx, q.on.(*sql.Tx), query)
		if err != nil {
			return 0, err
		}
		exec = func() (sql.Result, error) { return s.ExecContext(ctx, args...) }
	}
	r, err := exec()
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (q sqliteQueries) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := q.on.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return sqliteRows{rows}, nil
}

func (q sqliteQueries) QueryRow(ctx context.Context, query string, args ...any) interface{ Scan(to ...any) error } {
	return q.on.QueryRowContext(ctx, query, args...)
}

// statements are those of a transaction that were prepared, by their text. The transaction closes them.
type statements map[string]*sql.Stmt

func (s statements) in(ctx context.Context, tx *sql.Tx, query string) (*sql.Stmt, error) {
	if s[query] == nil {
		prepared, err := tx.PrepareContext(ctx, query)
		if err != nil {
			return nil, err
		}
		s[query] = prepared
	}
	return s[query], nil
}

type sqliteRows struct{ *sql.Rows }

func (r sqliteRows) Close() { r.Rows.Close() } //nolint:errcheck // Err tells what is wrong with the rows
