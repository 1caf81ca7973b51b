package semel

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// RunTx runs fn in a transaction of s in which the operation of ctx is settled too, so that effects and answer commit
// together or not at all. It is what the packages of stores build their own method for handlers on.
//
// The answer is what was written when fn returned; it is part of the transaction, so that what the handler writes later
// gets [ErrSettled], and fn has to write one: [refusal.NoAnswer]. From the first transaction on nothing leaves before
// the outcome is settled, on streaming routes too.
//
//   - fn returns nil, and its answer is one to keep: all commits.
//   - fn returns an error, and has written a 4xx to keep, or, in [DoTx], returns a [Final] one: what fn did is undone,
//     the record commits with that answer. RunTx returns fn's error.
//   - Else all is rolled back. An answer below 400 is dropped, so that the handler can write another one, or try again;
//     one from 400 on, if the handler does try again. RunTx returns fn's error, or one that wraps [driver.ErrRolledBack] if the
//     answer was not one to keep.
//
// If the commit fails, RunTx returns its error instead; that wraps driver.ErrRolledBack if it is certain that nothing
// has happened. Else the guard finds out before it answers: the client gets fn's answer if and only if the transaction
// has committed.
//
// A handler that answers with less than 400 after a transaction that was rolled back, or not at all, is overruled: the
// client is told 503 and may try again with the same key. A 5xx then releases the key, and so does a panic, unless
// there may be an effect elsewhere: the operation has taken a derived key ([Operation.Key]), or says that it is lost
// ([Operation.Lost]).
//
// Without an operation, as for a request without a key, it is a plain transaction.
func RunTx(ctx context.Context, s driver.Transactor, fn func(context.Context, driver.Tx) error) error {
	op := FromContext(ctx)
	if op == nil || op.observed {
		return plainTx(ctx, s, fn)
	}
	return op.run.Transact(ctx, s, fn)
}

// DoTx is [Do] with fn in a transaction of s, by the rules of [RunTx].
func DoTx[T any](ctx context.Context, g *Guard, s driver.Transactor, key Key, request Fingerprinter, fn func(context.Context, driver.Tx) (T, error)) (T, error) {
	return Do(ctx, g, key, request, func(ctx context.Context) (value T, err error) {
		err = RunTx(ctx, s, func(ctx context.Context, tx driver.Tx) error {
			value, err = fn(ctx, tx)
			if op := FromContext(ctx); op != nil {
				op.result = &result{value, err}
			}
			return err
		})
		return value, err
	})
}

// plainTx runs fn in a transaction that settles nothing.
func plainTx(ctx context.Context, s driver.Transactor, fn func(context.Context, driver.Tx) error) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	defer tx.Rollback()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// A result is what the function of a DoTx returned.
type result struct {
	value any
	err   error
}
