package pgstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
)

// A transaction is a [driver.Tx] on one of the application's connections.
type transaction struct {
	store   *Store
	options pgx.TxOptions
	conn    *pgxpool.Conn // nil after the end
	spoiled bool          // what was prepared on it no longer is, so it is not used again
	inner   pgx.Tx        // the same as pgx sees it; nil until it is needed
	claimed *claimed      // in one-commit mode
	fresh   bool          // nothing was done in it yet
	rings   bool          // something was added to the outbox

	prepared [5]*pgconn.StatementDescription
}

// rollbackTime bounds the wait for a rollback. A connection on which it has not come through is closed, which the
// server takes as one.
const rollbackTime = 5 * time.Second

var errOver = errors.New("the transaction has ended")

// onConnection takes one of the application's connections. Where the application has its statements prepared and kept,
// so are those that the store will execute: parsing them costs about as much as executing them.
func (s *Store) onConnection(ctx context.Context, o pgx.TxOptions, statements ...string) (*transaction, error) {
	conn, err := s.app.Acquire(ctx)
	if err != nil {
		return nil, interpretError(err)
	}
	t := &transaction{store: s, options: o, conn: conn}
	if !keepsStatements(conn.Conn()) {
		return t, nil
	}
	for i, sql := range statements {
		t.prepared[i], err = conn.Conn().Prepare(ctx, statementName(sql), sql)
		if err != nil {
			t.end()
			return nil, fmt.Errorf("prepare a statement: %w", interpretError(err))
		}
	}
	return t, nil
}

// keepsStatements reports whether statements that are prepared on a connection stay. To ask for its configuration
// copies that, so it is done once.
func keepsStatements(conn *pgx.Conn) bool {
	const key = "semel keeps statements"
	known := conn.PgConn().CustomData()
	keeps, ok := known[key].(bool)
	if !ok {
		keeps = conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
		known[key] = keeps
	}
	return keeps
}

// statementName returns the name under which a statement is prepared.
func statementName(sql string) string {
	if name, ok := statementNames.Load(sql); ok {
		return name.(string)
	}
	h := fnv.New64a()
	h.Write([]byte(sql))
	name, _ := statementNames.LoadOrStore(sql, "semel_"+strconv.FormatUint(h.Sum64(), 36))
	return name.(string)
}

var statementNames sync.Map // of those that were made

// queue adds a call to a batch.
func (t *transaction) queue(b *pgconn.Batch, c *call) {
	for _, p := range t.prepared {
		if p != nil && p.SQL == c.sql {
			b.ExecStatement(p, c.values, binaryFormat, binaryFormat)
			return
		}
	}
	c.queue(b)
}

// begin starts a transaction, in one round trip.
func (s *Store) begin(ctx context.Context, o pgx.TxOptions) (*transaction, error) {
	t, err := s.onConnection(ctx, o, s.sql.settle, commitSQL)
	if err != nil {
		return nil, err
	}
	o.BeginQuery = t.beginning()
	if t.inner, err = t.conn.Conn().BeginTx(ctx, o); err != nil {
		t.end()
		return nil, interpretError(err)
	}
	t.fresh = true
	return t, nil
}

// beginning returns the statements with which the transaction begins.
func (t *transaction) beginning() string {
	return beginSQL(t.options) + "; SET LOCAL idle_in_transaction_session_timeout = " +
		strconv.Itoa(int(milliseconds(t.store.o.IdleTimeout)))
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

// Mark implements [driver.Tx]. The mark is the transaction's beginning: it fails if something was done before.
func (t *transaction) Mark(context.Context) error {
	if !t.fresh {
		return errors.New("pgstore: mark: something was done in the transaction before")
	}
	return nil
}

// Undo implements [driver.Tx]. It begins the transaction anew, on the same connection. A savepoint would make a
// subtransaction of all that is done after it, which costs each transaction what only those that fail need.
func (t *transaction) Undo(ctx context.Context) (err error) {
	switch {
	case t.fresh:
		return nil
	case t.claimed != nil:
		err = t.claimAnew(ctx)
	default:
		err = t.exec(ctx, "ROLLBACK; "+t.beginning())
	}
	if err != nil {
		return fmt.Errorf("pgstore: undo: %w", err)
	}
	t.fresh = true
	return nil
}

// exec executes a statement that has no result. If it fails, the transaction is of no more use.
func (t *transaction) exec(ctx context.Context, sql string) error {
	if err := t.ready(); err != nil {
		return err
	}
	return interpretError(t.pg().Exec(ctx, sql).Close())
}

// Rollback implements [driver.Tx].
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

// end gives the connection back. One on which a transaction is open, or something is under way, is closed without
// waiting for the server, which rolls back as soon as it notices.
func (t *transaction) end() {
	if !t.pg().IsClosed() && (t.spoiled || t.pg().IsBusy() || t.pg().TxStatus() != statusIdle) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		t.pg().Close(ctx) //nolint:errcheck // nobody needs it any more
	}
	t.conn.Release()
	t.conn = nil
}

// Settle implements [driver.Tx]. The settle and the commit take one round trip.
func (t *transaction) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	rec, owned, err := t.settle(ctx, id, by, o)
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("pgstore: settle: %w", err)
	}
	return rec, owned, nil
}

func (t *transaction) settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
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
	if settle == nil || t.store.notOwned(err) {
		t.Rollback()
		if rec, err = t.store.Load(ctx, id); err != nil {
			err = fmt.Errorf("%w: the run was not owned: %w", driver.ErrRolledBack, err)
		}
		return rec, false, err
	}
	return rec, err == nil, err
}

// settling returns the call that settles the transaction's run, nil if by does not own it, and how to read its result.
func (t *transaction) settling(id driver.ID, by driver.Owner, o driver.Outcome) (*call, func([][]byte) (driver.Record, error), error) {
	if c := t.claimed; c != nil && c.id == id {
		return c.settling(t.store, by, o)
	}
	c, err := t.store.settleCall(id, by, o, true)
	return c, func(row [][]byte) (driver.Record, error) {
		f, err := readFound(row[0])
		return f.settled(o), err
	}, err
}

// Commit implements [driver.Tx].
func (t *transaction) Commit(ctx context.Context) error {
	if t.conn == nil {
		return fmt.Errorf("pgstore: commit: %w", errOver)
	}
	if err := t.commit(ctx, nil, nil); err != nil {
		return fmt.Errorf("pgstore: commit: %w", err)
	}
	return nil
}
