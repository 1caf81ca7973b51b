package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/driver"
)

const commitSQL = "COMMIT"

// commit commits, together with a call before it if there is one, and gives the connection back. An error wraps
// [driver.ErrRolledBack] if it is certain that nothing is or will be committed.
func (t *transaction) commit(ctx context.Context, before *call, read func(row [][]byte) error) error {
	if err := t.ready(); err != nil {
		t.Rollback()
		if errors.Is(err, ErrEnded) { // perhaps by a COMMIT
			return err
		}
		return fmt.Errorf("%w: %w", driver.ErrRolledBack, err)
	}
	if t.pg().TxStatus() == statusFailed {
		t.Rollback()
		return fmt.Errorf("%w: a statement has failed in it", driver.ErrRolledBack)
	}
	var b pgconn.Batch
	if before != nil {
		t.queue(&b, before)
	}
	t.queue(&b, &call{sql: commitSQL})
	answers := t.send(ctx, &b)
	committed, ended, unread := false, false, error(nil)
	for answers.NextResult() {
		r := answers.ResultReader()
		for r.NextRow() {
			if unread == nil && read != nil {
				unread = read(r.Values())
			}
		}
		switch tag, _ := r.Close(); tag.String() { // its error is that of all
		case "COMMIT":
			committed = true
		case "ROLLBACK":
			ended = true
		}
	}
	err := answers.Close()
	switch {
	case committed:
		// Whatever came after that: the server says so when the commit is durable.
		t.end()
		if t.rings {
			t.store.bell.Ring()
		}
		return unread
	case ended:
		t.end()
		return fmt.Errorf("%w: the server has answered COMMIT with ROLLBACK", driver.ErrRolledBack)
	case rolledBack(err):
		t.spoiled = stale(err)
		t.Rollback()
		return fmt.Errorf("%w: %w", driver.ErrRolledBack, batchError(err))
	}
	t.end()
	return batchError(err)
}

// batchError gives the error of a batch its kind. Of a connection that breaks while a batch is read, pgx may say no
// more than that it is closed.
func batchError(err error) error {
	if errors.Is(err, pgconn.ErrConnClosed) {
		return &failure{ErrUnreachable, err}
	}
	return interpretError(err)
}

// SQLSTATE of the error with which a server ends a connection whose transaction was idle for too long.
const stateIdleTooLong = "25P03"

// rolledBack reports whether a commit that failed so has certainly not happened and will not: the server has refused
// it, or it was not sent. An error that ends the connection may come from a pooler that has lost its own, or between
// the commit and its answer.
func rolledBack(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return severity(pg) == "ERROR" || pg.Code == stateIdleTooLong
	}
	return pgconn.SafeToRetry(err)
}

// stale reports whether the error says that a prepared statement is not there, or not what it was, as after DEALLOCATE
// ALL.
func stale(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "26000" || pg.Code == "0A000")
}

func severity(e *pgconn.PgError) string {
	if e.SeverityUnlocalized != "" {
		return e.SeverityUnlocalized
	}
	return e.Severity
}
