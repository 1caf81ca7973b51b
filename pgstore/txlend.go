package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/pgstore/internal/sqltext"
)

// lend calls fn with the transaction as a pgx.Tx, whose Commit and Rollback go nowhere. A handler that ended the
// transaction would commit effects without the operation's record.
func lend(ctx context.Context, tx driver.Tx, o pgx.TxOptions, fn func(context.Context, pgx.Tx) error) error {
	t, ok := tx.(*transaction)
	switch {
	case !ok:
		return fmt.Errorf("pgstore: the operation works in a transaction of another store, a %T", tx)
	case t.claimed != nil && !likeOneCommit(o):
		return fmt.Errorf("pgstore: %w: asked for was %q", ErrOneCommit, beginSQL(o))
	}
	t.fresh = false
	l := &loan{t: t}
	err := func() error {
		defer l.over.Store(true)
		return fn(ctx, &lent{loan: l, on: t.conn.Conn()})
	}()
	if !t.pg().IsClosed() && !t.pg().IsBusy() && t.pg().TxStatus() == statusIdle {
		l.ended.Store(true)
		if op := semel.FromContext(ctx); op != nil {
			op.Lost(ErrEnded) // what it did is committed, without its record
		}
	}
	if l.ended.Load() {
		return errors.Join(err, fmt.Errorf("pgstore: %w", ErrEnded))
	}
	return err
}

func likeOneCommit(o pgx.TxOptions) bool {
	return (o.IsoLevel == pgx.ReadCommitted || o.IsoLevel == pgx.ReadUncommitted) &&
		o.AccessMode != pgx.ReadOnly && o.DeferrableMode != pgx.Deferrable
}

// A loan is what a function has of a transaction, until it returns.
type loan struct {
	t     *transaction
	ended atomic.Bool // the function has ended the transaction, or tried to
	over  atomic.Bool // it has returned
}

// check refuses what comes too late, and statements that would begin or end a transaction.
func (l *loan) check(sql string) error {
	switch {
	case l.over.Load():
		return pgx.ErrTxClosed
	case sqltext.EndsTransaction(sql):
		return l.end()
	}
	return nil
}

func (l *loan) end() error {
	if l.over.Load() {
		return pgx.ErrTxClosed
	}
	l.ended.Store(true)
	return fmt.Errorf("pgstore: %w", ErrEnded)
}

// inner returns the transaction as pgx sees it. In one-commit mode it was not pgx that began it: making pgx believe so
// costs a round trip, which few handlers need.
func (l *loan) inner(ctx context.Context) (pgx.Tx, error) {
	if l.t.inner == nil {
		var err error
		l.t.inner, err = l.t.conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: "SAVEPOINT semel_inner"})
		if err != nil {
			return nil, err
		}
	}
	return l.t.inner, nil
}

// A session executes statements: a connection, or a savepoint on it.
type session interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
	Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error)
}

// lent is a pgx.Tx that does not end the transaction. Those begun in it are savepoints, and end.
type lent struct {
	*loan
	on        session
	savepoint pgx.Tx // nil: it is the transaction itself
}

func (l *lent) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := l.check(""); err != nil {
		return nil, err
	}
	outer, err := l.savepoint, error(nil)
	if outer == nil {
		outer, err = l.inner(ctx)
	}
	if err != nil {
		return nil, err
	}
	tx, err := outer.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &lent{loan: l.loan, on: tx, savepoint: tx}, nil
}

func (l *lent) Commit(ctx context.Context) error {
	if l.savepoint == nil {
		return l.end()
	}
	if err := l.check(""); err != nil {
		return err
	}
	return l.savepoint.Commit(ctx)
}

func (l *lent) Rollback(ctx context.Context) error {
	if l.savepoint == nil {
		return l.end()
	}
	if err := l.check(""); err != nil {
		return err
	}
	return l.savepoint.Rollback(ctx)
}

func (l *lent) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := l.check(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return l.on.Exec(ctx, sql, args...)
}

func (l *lent) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := l.check(sql); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	return l.on.Query(ctx, sql, args...)
}

func (l *lent) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := l.check(sql); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return l.on.QueryRow(ctx, sql, args...)
}

func (l *lent) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	err := l.check("")
	for _, q := range b.QueuedQueries {
		if err == nil {
			err = l.check(q.SQL)
		}
	}
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return l.on.SendBatch(ctx, b)
}

func (l *lent) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := l.check(""); err != nil {
		return 0, err
	}
	return l.on.CopyFrom(ctx, table, columns, rows)
}

func (l *lent) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := l.check(sql); err != nil {
		return nil, err
	}
	return l.on.Prepare(ctx, name, sql)
}

// LargeObjects returns the large objects of the transaction. If they can't be had, their methods fail.
func (l *lent) LargeObjects() pgx.LargeObjects {
	if l.savepoint != nil {
		return l.savepoint.LargeObjects()
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTime)
	defer cancel()
	tx, err := l.inner(ctx)
	if err != nil {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		tx = pgx.FailedBatchResults(b, err).(interface{ Tx() pgx.Tx }).Tx() // a closed one
	}
	return tx.LargeObjects()
}

// Conn returns the connection. What is done on it passes by what a loan checks.
func (l *lent) Conn() *pgx.Conn { return l.t.conn.Conn() }
