package semel

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// RunTx runs fn in a transaction of s. The operation of ctx is settled in the same transaction, so that effects and
// answer commit together or not at all. Packages of stores build their own method for handlers on it.
//
// The answer is what was written when fn returned, and is part of the transaction. If the handler writes later, it gets
// [ErrSettled]. If fn writes no answer, RunTx returns [refusal.NoAnswer]. From the first transaction on, no byte leaves
// before the outcome is settled, on streaming routes too.
//
//   - fn returns nil, and its answer is one to keep: all commits.
//   - fn returns an error, and has written a 4xx to keep; or, in [DoTx], it returns a [Final] error. What fn did is
//     undone, and the record commits with that answer. RunTx returns fn's error.
//   - Else all is rolled back. An answer below 400 is dropped, so that the handler can write another one, or try again.
//     An answer from 400 on is dropped if the handler does try again. RunTx returns fn's error, or an error that wraps
//     [driver.ErrRolledBack] if the answer was not one to keep.
//
// If the commit fails, RunTx returns its error. The error wraps driver.ErrRolledBack if it is certain that nothing has
// happened. Else the guard finds out before it answers: the client gets fn's answer if and only if the transaction has
// committed.
//
// If the transaction was rolled back, and the handler then answers with less than 400 or not at all, its answer is
// replaced: the client is told 503 and may try again with the same key. A 5xx then releases the key, and so does a
// panic, unless there may be an effect elsewhere. That is so if the operation has taken a derived key
// ([Operation.Key]), or has said that it is lost ([Operation.Lost]).
//
// Without an operation, as for a request without a key, RunTx runs fn in a plain transaction.
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

// A result is the value or error that the function of a DoTx returned.
type result struct {
	value any
	err   error
}
