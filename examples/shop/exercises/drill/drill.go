// Package drill is what the checkers of the exercises have in common: a database in which something happens between two
// statements, and processes that die there.
package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/semelhq/semel/examples/shop/database"
)

// ErrDied is what statements return after the process has died.
var ErrDied = errors.New("the process has died")

// A Row is what a query for one row returns. Its error wraps [sql.ErrNoRows] if there is none.
type Row interface{ Scan(to ...any) error }

// Queries run statements; see [database.Queries].
type Queries interface {
	// Exec returns how many rows the statement has changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	QueryRow(ctx context.Context, query string, args ...any) Row
}

// A DB is a database, SQLite in a file.
type DB struct {
	queries
	folder string
	db     *database.DB
	others sync.WaitGroup

	mu        sync.Mutex
	meanwhile func()
	left      int // statements before the process dies; negative: it does not
}

// Open opens a new database with the tables of a schema.
func Open(ctx context.Context, schema string) (*DB, error) {
	folder, err := os.MkdirTemp("", "exercise-")
	if err != nil {
		return nil, err
	}
	db, err := database.Open(ctx, filepath.Join(folder, "exercise.db"), schema)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	d := &DB{folder: folder, db: db, left: -1}
	d.queries = queries{d: d, on: db, alone: true}
	return d, nil
}

// Close closes the database, and removes it.
func (d *DB) Close() error { return errors.Join(d.db.Close(), os.RemoveAll(d.folder)) }

// Write runs fn in a transaction, which is undone if fn fails.
func (d *DB) Write(ctx context.Context, fn func(tx Queries) error) error {
	return d.db.Write(ctx, func(tx database.Tx) error {
		if err := fn(queries{d: d, on: tx}); err != nil {
			return err
		}
		return d.live() // a process that has died does not commit
	})
}

// Meanwhile has another process do something after the next statement. In a transaction it has to wait for that to end.
func (d *DB) Meanwhile(other func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meanwhile = other
}

// Wait waits for what others do.
func (d *DB) Wait() { d.others.Wait() }

// Die has the process die after n more statements, until Restart.
func (d *DB) Die(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

// Restart starts the process again.
func (d *DB) Restart() { d.Die(-1) }

// Number returns the number that a query asks for.
func (d *DB) Number(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err := d.db.QueryRow(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", query, err)
	}
	return n, nil
}

// live fails if the process has died.
func (d *DB) live() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 {
		return ErrDied
	}
	return nil
}

// begin counts a statement.
func (d *DB) begin() error {
	if err := d.live(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left > 0 {
		d.left--
	}
	return nil
}

// end lets others do what they do, after a statement.
func (d *DB) end(alone bool) {
	d.mu.Lock()
	other := d.meanwhile
	d.meanwhile = nil
	d.mu.Unlock()
	switch {
	case other == nil:
	case alone:
		other()
	default:
		d.others.Go(other)
	}
}

// queries run statements of an exercise.
type queries struct {
	d     *DB
	on    database.Queries
	alone bool // not in a transaction
}

func (q queries) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := q.d.begin(); err != nil {
		return 0, err
	}
	n, err := q.on.Exec(ctx, query, args...)
	q.d.end(q.alone)
	return n, err
}

func (q queries) QueryRow(ctx context.Context, query string, args ...any) Row {
	return row(func(to ...any) error {
		if err := q.d.begin(); err != nil {
			return err
		}
		err := q.on.QueryRow(ctx, query, args...).Scan(to...)
		q.d.end(q.alone)
		return err
	})
}

type row func(to ...any) error

func (r row) Scan(to ...any) error { return r(to...) }

// Told says what somebody was told: a value, or an error.
func Told(v any, err error) string {
	if err != nil {
		return "the error " + strconv.Quote(err.Error())
	}
	return fmt.Sprint(v)
}
