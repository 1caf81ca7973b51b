package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// Tx runs fn in a transaction of the store's database in which the operation of ctx is settled too, so that what fn did
// in the database and the answer commit together or not at all; see [semel.RunTx] for the rules. Without an operation,
// as for a request without a key, it is a plain transaction.
//
// The transaction has the database's only write lock from its beginning to its end, so it is for short handlers: other
// writers wait. Leases of this process's runs are not lost by that. It works on one of the application's connections.
//
// fn must not end the transaction: Commit and Rollback of tx are refused, and Tx returns an error that wraps
// [ErrEnded]. Statements that fn prepares it prepares in tx: those of another DB are not known there (sql.Tx.Stmt).
func (s *Store) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return semel.RunTx(ctx, s, func(ctx context.Context, tx driver.Tx) error { return lend(ctx, tx, fn) })
}

// Do is [semel.Do] with fn in a transaction of s, by the rules of [Store.Tx].
func Do[T any](ctx context.Context, g *semel.Guard, s *Store, key semel.Key, request semel.Fingerprinter, fn func(context.Context, *sql.Tx) (T, error)) (T, error) {
	return semel.DoTx(ctx, g, s, key, request, func(ctx context.Context, tx driver.Tx) (value T, err error) {
		err = lend(ctx, tx, func(ctx context.Context, tx *sql.Tx) (err error) {
			value, err = fn(ctx, tx)
			return err
		})
		return value, err
	})
}

// A transaction is a [driver.Tx]. It has the lead of the store's line from its beginning to its end, and executes the
// renewals in the line before it lets go of the database's write lock: they are durable before anybody else can write.
type transaction struct {
	store   *Store
	unit    *unit // on one of the application's connections
	marked  tally
	state   txState
	lenient int         // 1 more than the connection's own setting of synchronous, if that must be set again
	adds    atomic.Bool // messages to the outbox
}

type txState uint8

const (
	txOpen txState = iota
	txLost         // the database has ended it; its connection is not given back yet
	txEnded
)

// Begin implements [driver.Transactor].
func (s *Store) Begin(ctx context.Context) (driver.Tx, error) {
	t, err := s.beginTx(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: begin: %w", err)
	}
	return t, nil
}

// BeginClaim implements [driver.Transactor]. A claim that is refused takes no lock.
func (s *Store) BeginClaim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Tx, driver.Record, bool, error) {
	rec, err := s.Load(ctx, id)
	if err != nil {
		return nil, driver.Record{}, false, err
	}
	if _, free := rec.Claim(rec.Now, c); !free {
		return nil, rec, false, nil
	}
	t, err := s.beginTx(ctx)
	if err != nil {
		return nil, driver.Record{}, false, fmt.Errorf("sqlitestore: begin: %w", err)
	}
	rec, owned, err := t.unit.claim(id, c, false)
	if err != nil || !owned {
		t.Rollback()
	}
	switch {
	case err != nil:
		return nil, driver.Record{}, false, fmt.Errorf("sqlitestore: claim: %w", err)
	case !owned:
		return nil, rec, false, nil
	}
	return t, rec, true, nil
}

func (s *Store) beginTx(ctx context.Context) (_ *transaction, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// One transaction at a time has a connection, so that those that wait leave them to handlers, and has it before it
	// leads, so that a DB whose connections are all in use does not hold up the store.
	select {
	case s.begins <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, ErrClosed
	}
	defer func() {
		if err != nil {
			<-s.begins
		}
	}()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("take a connection: %w", interpretError(err))
	}
	t := &transaction{store: s}
	c := &session{conn: conn}
	defer func() {
		if err != nil {
			t.giveBack(c)
		}
	}()
	if err := t.sync(c); err != nil {
		return nil, err
	}
	turn := &call{}
	leads, err := s.line.enter(turn)
	if err == nil && !leads {
		_, err = s.line.wait(ctx, turn)
	}
	if err != nil {
		return nil, err
	}
	if t.unit, err = s.begin(ctx, c); err == nil {
		if err = c.exec("SAVEPOINT semel_start"); err != nil {
			c.reset()
		}
	}
	if err != nil {
		s.line.pass()
		return nil, err
	}
	s.line.hold()
	return t, nil
}

// sync makes the connection's commits durable. Nothing else is changed on a connection of the application's.
func (t *transaction) sync(c *session) error {
	const full = 2
	var now int
	if err := c.conn.QueryRowContext(detached, "PRAGMA synchronous").Scan(&now); err != nil {
		return interpretError(err)
	}
	if now >= full {
		return nil
	}
	t.lenient = now + 1
	return c.exec("PRAGMA synchronous = FULL")
}

// giveBack gives the connection back to the application.
func (t *transaction) giveBack(c *session) {
	if t.lenient > 0 && c.exec(fmt.Sprintf("PRAGMA synchronous = %d", t.lenient-1)) != nil {
		c.drop()
	}
	c.finalize()
	c.conn.Close() //nolint:errcheck // the pool takes it
}

var errOver = errors.New("the transaction has ended")

// ready must be asked before each verb: without a transaction, its writes would commit by themselves.
func (t *transaction) ready() error {
	if t.state == txOpen && !t.unit.inTransaction() {
		t.lose()
	}
	if t.state != txOpen {
		return errOver
	}
	t.unit.tick()
	return nil
}

// Settle implements [driver.Tx].
func (t *transaction) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	rec, owned, err := driver.Record{}, false, t.ready()
	if err == nil {
		rec, owned, err = t.unit.settle(id, by, o)
	}
	switch {
	case errors.Is(err, driver.ErrFull):
		return driver.Record{}, false, fmt.Errorf("sqlitestore: settle: %w", err)
	case err != nil:
		t.Rollback()
		return driver.Record{}, false, fmt.Errorf("sqlitestore: settle: %w: %w", driver.ErrRolledBack, err)
	case !owned:
		t.Rollback()
		return rec, false, nil
	}
	if err := t.Commit(ctx); err != nil {
		return driver.Record{}, false, err
	}
	return rec, true, nil
}

// Mark implements [driver.Tx].
func (t *transaction) Mark(context.Context) error {
	err := t.ready()
	if err == nil {
		err = t.unit.exec("SAVEPOINT semel_mark")
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: mark: %w", err)
	}
	t.marked = t.unit.tally
	return nil
}

// Undo implements [driver.Tx].
func (t *transaction) Undo(context.Context) error {
	err := t.ready()
	if err == nil {
		err = t.unit.exec("ROLLBACK TO semel_mark")
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: undo: %w", err)
	}
	t.unit.tally = t.marked
	return nil
}

// Commit implements [driver.Tx]. It waits for nothing but the disk.
func (t *transaction) Commit(context.Context) error {
	if t.state == txEnded {
		return fmt.Errorf("sqlitestore: commit: %w", errOver)
	}
	if t.ready() != nil {
		t.end()
		return fmt.Errorf("sqlitestore: commit: %w: %w", driver.ErrRolledBack, errOver)
	}
	calls := t.store.line.renewals()
	err := t.unit.call(calls)
	if err == nil {
		err = t.unit.commit()
	}
	if err == nil {
		t.pass(calls)
		t.end()
		if t.adds.Load() {
			t.store.messages.Ring()
		}
		return nil
	}
	// The frames of a commit that has failed may be in the log, and would count if the machine went down now. Once others
	// have been written over them, they never will.
	certain := t.without(calls)
	t.pass(calls)
	t.end()
	if certain {
		err = errors.Join(driver.ErrRolledBack, err)
	}
	return fmt.Errorf("sqlitestore: commit: %w", err)
}

// Rollback implements [driver.Tx].
func (t *transaction) Rollback() {
	if t.state == txOpen {
		calls := t.store.line.renewals()
		if len(calls) == 0 {
			t.unit.reset()
		} else {
			t.without(calls)
		}
		t.pass(calls)
	}
	t.end()
}

// without executes the calls, and ends the transaction without what else was done in it. It reports whether something
// was committed.
func (t *transaction) without(calls []*call) bool {
	u := t.unit
	u.tally = tally{}
	u.tick()
	if u.exec("ROLLBACK TO semel_start") == nil && u.call(calls) == nil && u.commit() == nil {
		return true
	}
	u.reset()
	fresh, err := t.store.begin(detached, u.session)
	if err != nil {
		for _, c := range calls {
			c.err = err
		}
		return false
	}
	fresh.wrote = true // so that something is committed
	return t.store.execute(fresh, calls)
}

// lose ends a transaction that the database has rolled back by itself. Its lock is free, so what waits for it is
// executed at once.
func (t *transaction) lose() {
	calls := t.store.line.renewals()
	if len(calls) > 0 {
		t.without(calls)
	}
	t.pass(calls)
}

// pass hands the lead on.
func (t *transaction) pass(calls []*call) {
	t.state = txLost
	t.store.line.pass()
	t.store.line.answer(calls)
}

// end gives the connection back.
func (t *transaction) end() {
	if t.state == txEnded {
		return
	}
	t.state = txEnded
	t.giveBack(t.unit.session)
	<-t.store.begins
}
