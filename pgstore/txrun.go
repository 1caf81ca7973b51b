package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
)

// A transaction is a [semel.Tx] on one of the application's connections.
type transaction struct {
	store   *Store
	options pgx.TxOptions
	conn    *pgxpool.Conn // nil after the end
	inner   pgx.Tx        // the same as pgx sees it; nil until it is needed
	claimed *claimed      // in one-commit mode
	marked  bool          // the savepoint is set, and nothing was done since
}

// rollbackTime bounds the wait for a rollback. A connection on which it has not come through is closed, which the server
// takes as one.
const rollbackTime = 5 * time.Second

const savepoint = "SAVEPOINT semel_mark"

var errOver = errors.New("the transaction has ended")

// begin starts a transaction, in one round trip; if it is marked, with the mark.
func (s *Store) begin(ctx context.Context, o pgx.TxOptions, marked bool) (*transaction, error) {
	conn, err := s.app.Acquire(ctx)
	if err != nil {
		return nil, interpretError(err)
	}
	t := &transaction{store: s, options: o, conn: conn, marked: marked}
	sql := beginSQL(o) + "; SET LOCAL idle_in_transaction_session_timeout = " +
		strconv.Itoa(int(milliseconds(s.o.IdleTimeout)))
	if marked {
		sql += "; " + savepoint
	}
	o.BeginQuery = sql
	if t.inner, err = conn.Conn().BeginTx(ctx, o); err != nil {
		t.end()
		return nil, interpretError(err)
	}
	return t, nil
}

func beginSQL(o pgx.TxOptions) string {
	parts := []string{"BEGIN ISOLATION LEVEL", string(o.IsoLevel), string(o.AccessMode), string(o.DeferrableMode)}
	return strings.TrimRight(strings.Join(parts, " "), " ")
}

// milliseconds returns a timeout in the form of the server.
func milliseconds(d time.Duration) int32 { return int32(min(d.Milliseconds(), math.MaxInt32)) }

func (t *transaction) pg() *pgconn.PgConn { return t.conn.Conn().PgConn() }

// The states of a connection's transaction, as the server tells them after each statement.
const (
	statusIdle   = 'I' // there is none
	statusOpen   = 'T'
	statusFailed = 'E' // only a rollback is accepted
)

// ready reports why nothing can be executed in the transaction, if so.
func (t *transaction) ready() error {
	switch {
	case t.conn == nil:
		return errOver
	case t.pg().IsClosed():
		return fmt.Errorf("%w: its connection is closed", ErrUnreachable)
	case t.pg().IsBusy():
		return errors.New("its connection is busy: something that was opened in it was not closed")
	case t.pg().TxStatus() == statusIdle:
		return ErrEnded
	}
	return nil
}

// Mark implements [semel.Tx]. The mark that the transaction begins with costs nothing more.
func (t *transaction) Mark(ctx context.Context) error {
	if t.marked {
		return nil
	}
	if err := t.exec(ctx, savepoint); err != nil {
		return fmt.Errorf("pgstore: mark: %w", err)
	}
	t.marked = true
	return nil
}

// Undo implements [semel.Tx].
func (t *transaction) Undo(ctx context.Context) error {
	if t.marked {
		return nil
	}
	if err := t.exec(ctx, "ROLLBACK TO semel_mark"); err != nil {
		return fmt.Errorf("pgstore: undo: %w", err)
	}
	t.marked = true
	return nil
}

// exec executes a statement that has no result. If it fails, the transaction is of no more use.
func (t *transaction) exec(ctx context.Context, sql string) error {
	if err := t.ready(); err != nil {
		return err
	}
	return interpretError(t.pg().Exec(ctx, sql).Close())
}

// Rollback implements [semel.Tx].
func (t *transaction) Rollback() {
	if t.conn == nil {
		return
	}
	if t.ready() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackTime)
		defer cancel()
		t.pg().Exec(ctx, "ROLLBACK").Close() //nolint:errcheck // the connection's state tells
	}
	t.end()
}

// end gives the connection back. One on which a transaction is open, or something is under way, is closed without waiting
// for the server, which rolls back as soon as it notices.
func (t *transaction) end() {
	if !t.pg().IsClosed() && (t.pg().IsBusy() || t.pg().TxStatus() != statusIdle) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		t.pg().Close(ctx) //nolint:errcheck // nobody needs it any more
	}
	t.conn.Release()
	t.conn = nil
}

// Settle implements [semel.Tx]. The settle and the commit take one round trip.
func (t *transaction) Settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (semel.Record, bool, error) {
	rec, owned, err := t.settle(ctx, id, by, o)
	if err != nil {
		return semel.Record{}, false, fmt.Errorf("pgstore: settle: %w", err)
	}
	return rec, owned, nil
}

func (t *transaction) settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (rec semel.Record, owned bool, err error) {
	if t.conn == nil {
		return rec, false, errOver
	}
	settle, read, err := t.settling(id, by, o)
	if err != nil {
		return rec, false, err // nothing was sent
	}
	if settle != nil {
		err = t.commit(ctx, settle, func(row [][]byte) (err error) {
			rec, err = read(row)
			return err
		})
	}
	if settle == nil || notOwned(err) {
		t.Rollback()
		if rec, err = t.store.Load(ctx, id); err != nil {
			err = fmt.Errorf("%w: the run was not owned: %w", semel.ErrRolledBack, err)
		}
		return rec, false, err
	}
	return rec, err == nil, err
}

// settling returns the call that settles the transaction's run, nil if by does not own it, and how to read its result.
func (t *transaction) settling(id semel.ID, by semel.Owner, o semel.Outcome) (*call, func([][]byte) (semel.Record, error), error) {
	if c := t.claimed; c != nil && c.id == id {
		return c.settling(t.store, by, o)
	}
	c, err := t.store.settleCall(id, by, o, true)
	return c, func(row [][]byte) (semel.Record, error) {
		f, err := readFound(row[0])
		return f.settled(o), err
	}, err
}

// Commit implements [semel.Tx].
func (t *transaction) Commit(ctx context.Context) error {
	if t.conn == nil {
		return fmt.Errorf("pgstore: commit: %w", errOver)
	}
	if err := t.commit(ctx, nil, nil); err != nil {
		return fmt.Errorf("pgstore: commit: %w", err)
	}
	return nil
}
