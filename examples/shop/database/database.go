// Package database is what the shop keeps its data in: SQLite in a file, or PostgreSQL. The store of operations and the
// outbox are in the same database, so that effects, answers and messages commit together.
package database

import (
	"context"
	"strings"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

// Rows are what a query returns. Close may be called more than once.
type Rows interface {
	Next() bool
	Scan(to ...any) error
	Err() error
	Close()
}

// Queries run statements. Parameters are $1, $2 and so on. Times are whole milliseconds since the Unix epoch, amounts
// minor units, both int64; ids are texts; other values JSON. QueryRow's Scan fails with an error that wraps
// [sql.ErrNoRows] if there is none.
type Queries interface {
	// Exec returns how many rows the statement has changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) interface{ Scan(to ...any) error }
}

// Tx is a transaction. Whoever has lent it ends it.
type Tx interface{ Queries }

// DB is an open database. It is safe for concurrent use.
type DB struct {
	Queries               // outside of a transaction, for reading
	Store    driver.Store // of operations
	Outbox   outbox.Store
	Postgres bool
	backend
}

// backend is what SQLite and PostgreSQL do in different ways.
type backend interface {
	// Tx runs fn in a transaction in which the operation of ctx is settled too; see [semel.RunTx].
	Tx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	// Write runs fn in a transaction of its own, which knows nothing of operations. fn may be run again if it fails
	// with a conflict.
	Write(ctx context.Context, fn func(tx Tx) error) error
	// Send adds messages in a transaction. They leave once it has committed.
	Send(ctx context.Context, tx Tx, messages ...outbox.Message) error
	// Inbox handles a message in a transaction in which it is marked as handled.
	Inbox(ctx context.Context, c *consumer.Consumer, m consumer.Message, fn func(ctx context.Context, tx Tx, m consumer.Message) error) consumer.Result
	Close() error
}

// Open opens the database of an address: postgres://… or the path of a file. The schema is SQL that both understand and
// that makes what is missing; it is run each time.
func Open(ctx context.Context, address, schema string) (*DB, error) {
	if strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://") {
		return openPostgres(ctx, address, schema)
	}
	return openSQLite(ctx, address, schema)
}
