package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

// trapCommits sets the trap within COMMIT, of every connection that this process opens to an SQLite database.
func (a *actor) trapCommits() {
	sqlite.RegisterConnectionHook(func(c sqlite.ExecQuerierContext, _ string) error {
		h, ok := c.(sqlite.HookRegisterer)
		if !ok {
			return errors.New("the driver has no commit hook")
		}
		h.RegisterCommitHook(func() int32 {
			a.traps.pass(BeforeCommit)
			return 0
		})
		return nil
	})
}

// The table has no constraint that would keep a second effect out.
const effectsTable = `CREATE TABLE IF NOT EXISTS effects (
	id TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, front TEXT NOT NULL, operation TEXT NOT NULL,
	attempt INTEGER NOT NULL, fence INTEGER NOT NULL, began INTEGER NOT NULL, at INTEGER NOT NULL)`

func openDatabase(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return db, nil
}

// sqliteBusiness has its table in the store's file.
type sqliteBusiness struct {
	db *sql.DB
	in *sqlitestore.Store
}

func (a *actor) openSQLiteBusiness(ctx context.Context) (business, error) {
	a.trapCommits()
	return persist(ctx, func(ctx context.Context) (business, error) { // the disk may be full
		db, err := openDatabase(a.Ledger)
		if err != nil {
			return nil, err
		}
		store, err := sqlitestore.Open(ctx, db, sqlitestore.Options{})
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		if _, err := db.ExecContext(ctx, effectsTable); err != nil {
			return nil, errors.Join(fmt.Errorf("create table: %w", err), store.Close(), db.Close())
		}
		return &sqliteBusiness{db, store}, nil
	})
}

func (b *sqliteBusiness) store() driver.Store { return b.in }

func (b *sqliteBusiness) tx(ctx context.Context, _ payment, fn func(booking) error) error {
	return b.in.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return fn(func(e effect) error { return insert(ctx, tx, e) })
	})
}

func (b *sqliteBusiness) apart(ctx context.Context, e effect) error { return insert(ctx, b.db, e) }

// insert writes the effect, in a transaction or without one.
func insert(ctx context.Context, in interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, e effect,
) error {
	const insert = `INSERT INTO effects (id, key, request, front, operation, attempt, fence, began, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	args := []any{e.ID, e.Key, e.Request, e.Front, e.Operation, e.Attempt, int64(e.Fence), e.Began, e.At}
	if _, err := in.ExecContext(ctx, insert, args...); err != nil {
		return fmt.Errorf("book the effect: %w", err)
	}
	return nil
}

// readSQLite returns the committed effects, in the order of their writes.
func readSQLite(ctx context.Context, path string) (effects []effect, err error) {
	db, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // it was only read
	rows, err := db.QueryContext(ctx, `SELECT id, key, request, front, operation, attempt, fence, began, at FROM effects ORDER BY rowid`)
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	defer rows.Close() //nolint:errcheck // they were only read
	for rows.Next() {
		var e effect
		var fence int64
		if err := rows.Scan(&e.ID, &e.Key, &e.Request, &e.Front, &e.Operation, &e.Attempt, &fence, &e.Began, &e.At); err != nil {
			return nil, fmt.Errorf("read effects: %w", err)
		}
		e.Fence = uint64(fence)
		effects = append(effects, e)
	}
	return effects, rows.Err()
}
