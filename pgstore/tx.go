package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// ErrOneCommit means that a handler in one-commit mode asked for a transaction of another kind than it is in: that is
// READ COMMITTED, READ WRITE and not deferrable. Nothing of it is committed.
var ErrOneCommit = errors.New("the transaction of one-commit mode is read committed and read write")

var _ driver.Transactor = (*Store)(nil)

// Tx runs fn in a transaction of the store's database in which the operation of ctx is settled too, so that what fn did
// in the database and the answer commit together or not at all; see [semel.RunTx] for the rules. Without an operation,
// as for a request without a key, it is a plain transaction. The isolation level is READ COMMITTED.
//
// It works on one connection of the application's pool, which it has from beginning to end; ctx bounds the wait for
// that. A call of tx whose context ends loses the connection, and with it the transaction, as always with pgx. The
// server ends a transaction that is idle for longer than Options.IdleTimeout.
//
// fn must not end the transaction: Commit and Rollback of tx are refused, and so are the statements that would do it;
// Tx then returns an error that wraps [ErrEnded], and nothing is committed. Transactions that fn begins in tx are
// savepoints and its own to end. fn must close what it has opened in tx, such as rows, before it returns.
func (s *Store) Tx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return s.TxWith(ctx, pgx.TxOptions{}, fn)
}

// TxWith is [Store.Tx] in a transaction of a given kind. BeginQuery and CommitQuery of o must be empty; no isolation
// level means READ COMMITTED.
//
// At REPEATABLE READ and SERIALIZABLE the transaction sees the operation's record as it was at its beginning, so the
// lease is not renewed while it lasts: it has to be shorter than the lease. In one-commit mode it fails with
// [ErrOneCommit]. What could not be serialized leaves nothing, and its error wraps [ErrSerialization]; at SERIALIZABLE
// that may be because of the records of other operations.
func (s *Store) TxWith(ctx context.Context, o pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	v, err := s.with(o)
	if err != nil {
		return err
	}
	return semel.RunTx(ctx, v, func(ctx context.Context, tx driver.Tx) error { return lend(ctx, tx, v.options, fn) })
}

// A kind is a store whose transactions are of a given kind.
type kind struct {
	*Store
	options pgx.TxOptions
}

func (s *Store) with(o pgx.TxOptions) (*kind, error) {
	if o.BeginQuery != "" || o.CommitQuery != "" {
		return nil, errors.New("pgstore: a transaction can't have a BeginQuery or CommitQuery of its own")
	}
	switch o.IsoLevel {
	case "":
		o.IsoLevel = pgx.ReadCommitted
	case pgx.ReadCommitted, pgx.ReadUncommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		return nil, fmt.Errorf("pgstore: %q is not an isolation level", o.IsoLevel)
	}
	return &kind{Store: s, options: o}, nil
}

// HoldsSnapshot implements [driver.Snapshotter].
func (k *kind) HoldsSnapshot() bool {
	return k.options.IsoLevel == pgx.RepeatableRead || k.options.IsoLevel == pgx.Serializable
}

// Begin implements [driver.Transactor].
func (k *kind) Begin(ctx context.Context) (driver.Tx, error) {
	t, err := k.begin(ctx, k.options)
	if err != nil {
		return nil, fmt.Errorf("pgstore: begin: %w", err)
	}
	return t, nil
}

// Begin implements [driver.Transactor].
func (s *Store) Begin(ctx context.Context) (driver.Tx, error) {
	return (&kind{Store: s, options: pgx.TxOptions{IsoLevel: pgx.ReadCommitted}}).Begin(ctx)
}
