package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/driver"
)

// maxTries is how often a verb is sent that the server has rolled back.
const maxTries = 10

// do executes a call on a connection of the store's own pool.
func (s *Store) do(ctx context.Context, c *call, read func(row [][]byte) error) error {
	return again(ctx, func() error { return s.once(ctx, c, read) })
}

// collect executes a call on a connection of the store's own pool, and returns what read makes of its rows.
func collect[T any](ctx context.Context, s *Store, c *call, read func(row [][]byte) (T, error)) (all []T, err error) {
	err = again(ctx, func() error {
		all = nil
		return s.once(ctx, c, func(row [][]byte) error {
			v, err := read(row)
			all = append(all, v)
			return err
		})
	})
	return all, err
}

// again repeats what the server has rolled back; once also what it has cancelled, though nobody here asks for that: the
// request was for the verb before on the connection, if it has come late.
func again(ctx context.Context, once func() error) error {
	cancelled := false
	for try := 1; ; try++ {
		err := once()
		switch {
		case try == maxTries:
			return err
		case errors.Is(err, ErrSerialization), errors.Is(err, ErrDeadlock), errors.Is(err, errLost):
		case isCancelled(err) && !cancelled && ctx.Err() == nil:
			cancelled = true
		default:
			return err
		}
		pause := time.NewTimer(rand.N(time.Duration(try) * 2 * time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// isCancelled reports whether the server has cancelled a statement: it was told to, or it has a timeout for statements.
func isCancelled(err error) bool {
	var told *pgconn.PgError
	return errors.As(err, &told) && told.Code == "57014"
}

func (s *Store) once(ctx context.Context, c *call, read func(row [][]byte) error) error {
	return s.onConn(ctx, func(conn *pgconn.PgConn) error {
		d, err := s.prepare(ctx, conn, c)
		switch {
		case err != nil:
			return err
		case d == nil:
			return c.run(ctx, conn, read)
		}
		return readRows(conn.ExecStatement(ctx, d, c.values, binaryFormat, binaryFormat), read)
	})
}

// onConn lends fn a connection of the store's own pool.
func (s *Store) onConn(ctx context.Context, fn func(*pgconn.PgConn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return interpretError(err)
	}
	defer conn.Release()
	err = fn(conn.Conn().PgConn())
	if end := ctx.Err(); end != nil && err != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w: %w", end, err) // the server was told to cancel it
	}
	err = interpretError(s.lost(err))
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrShutdown) {
		s.pool.Reset() // the other connections are likely to be as dead; each would fail a verb
	}
	return err
}

// find executes the call of a verb that returns a record.
func (s *Store) find(ctx context.Context, c *call) (f found, err error) {
	err = s.do(ctx, c, func(row [][]byte) (err error) {
		f, err = readFound(row[0])
		return err
	})
	return f, err
}

// verb executes a verb: at once if nobody is under way, else in a group.
func (s *Store) verb(ctx context.Context, w *waiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.one.size() > aloneBytes {
		return s.do(ctx, w.one, w.read)
	}
	t := s.line.enter(w)
	if t == nil {
		turn, err := s.line.wait(ctx, w)
		switch {
		case err != nil:
			return err
		case turn == turnOver:
			return w.err
		case turn == turnLead:
			t = w.trip
		}
	}
	if t != nil {
		defer t.end()
	}
	return s.do(ctx, w.one, w.read)
}

// findIn is find for a verb that may go with others.
func (s *Store) findIn(ctx context.Context, w *waiter) (found, error) {
	w.read = func(row [][]byte) (err error) {
		w.f, err = readFound(row[0])
		return err
	}
	if err := s.verb(ctx, w); err != nil {
		return found{}, err // whoever has left must not look at what a group may still write
	}
	return w.f, nil
}

// Claim implements [driver.Store]. It fails with [driver.ErrFull] if the server's disk has no room for the record.
func (s *Store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	f, err := s.findIn(ctx, &waiter{kind: &s.kinds.claim, one: s.claimCall(id, c), claim: &c})
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("pgstore: claim: %w", noRoom(err))
	}
	return f.rec, f.owned, nil
}

func (s *Store) claimCall(id driver.ID, c driver.Claim) *call {
	return newCall(s.sql.claim, 10).
		bytes(id[:]).bytes(c.Token[:]).bytes(fingerprintBytes(c.Fingerprint)).int2(int16(c.OnLost)).
		int8(int64(positive(c.Lease, driver.DefaultLease))).
		int8(int64(positive(c.Retention, driver.DefaultRetention))).
		int8(int64(max(c.Tombstone, 0))).
		text(c.Operation).text(c.Correlation).bytes(orNull(bytes.Clone(c.Sealed))) // the caller may leave before it is sent
}

// Extend implements [driver.Store].
func (s *Store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (owned bool, err error) {
	if by.Above {
		return false, ctx.Err()
	}
	w := &waiter{kind: &s.kinds.extend, one: s.extendCall(id, by, x)}
	w.read = func(row [][]byte) error {
		w.owned = boolOf(row[0])
		return readable(row[0])
	}
	if err := s.verb(ctx, w); err != nil {
		return false, fmt.Errorf("pgstore: extend: %w", err)
	}
	return w.owned, nil
}

func (s *Store) extendCall(id driver.ID, by driver.Owner, x driver.Extension) *call {
	return newCall(s.sql.extend, 5).
		bytes(id[:]).int8(int64(by.Fence)).bytes(by.Token[:]).
		int8(int64(positive(x.Lease, driver.DefaultLease))).bool(x.Begun)
}

// readable fails if a function returned NULL, which says that the record is a later version's.
func readable(value []byte) error {
	if value == nil {
		return fmt.Errorf("%w: its layout is readable from a later version than %d on", driver.ErrUnreadable, layoutVersion)
	}
	return nil
}

// Settle implements [driver.Store]. It fails with [driver.ErrFull] if the server's disk has no room for the answer.
// While a transaction that has changed the record is in doubt, it waits for the end of that, or of ctx.
func (s *Store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	c, err := s.settleCall(id, by, o, false)
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("pgstore: settle: %w", err)
	}
	var f found
	if o.State == driver.Done && !by.Above {
		f, err = s.findIn(ctx, &waiter{kind: &s.kinds.settle, one: c})
	} else { // what is rare has no form for many
		f, err = s.find(ctx, c)
	}
	if err != nil {
		if o.Response != nil {
			err = noRoom(err)
		}
		return driver.Record{}, false, fmt.Errorf("pgstore: settle: %w", err)
	}
	return f.settled(o), f.owned, nil
}

// settleCall makes the call of a settle. Strict makes one that is not owned fail (see [Store.notOwned]), so that what
// is sent after it in a batch is not executed, and a COMMIT becomes a rollback.
func (s *Store) settleCall(id driver.ID, by driver.Owner, o driver.Outcome, strict bool) (*call, error) {
	answer, err := encodeAnswer(o.Response)
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("%w: the answer has %d bytes, at most %d go into a field", driver.ErrFull, len(answer), maxAnswer)
	}
	fence := by.Fence
	if fence > 1<<63-1 { // above all that are stored
		fence = 1<<63 - 1
	}
	return newCall(s.sql.settle, 12).
		bytes(id[:]).int8(int64(fence)).bytes(by.Token[:]).bool(by.Above).int2(int16(o.State)).bool(o.Owed).
		int8(int64(max(o.Retention, 0))).text(o.Error).bytes(answer).bool(strict).bool(s.apart).bool(s.notify), nil
}

// maxAnswer is the size of an answer that can be stored: PostgreSQL's limit for a field, less what goes with it.
const maxAnswer = 1<<30 - 1<<20

// settled returns the record that a settle with the outcome o left. The answer that it wrote was not sent back.
func (f *found) settled(o driver.Outcome) driver.Record {
	if f.written && o.State == driver.Done {
		f.rec.Response = o.Response
	}
	return f.rec
}

// Load implements [driver.Store].
func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	f, err := s.findIn(ctx, &waiter{kind: &s.kinds.load, one: newCall(s.sql.load, 1).bytes(id[:])})
	if err != nil {
		return driver.Record{}, fmt.Errorf("pgstore: load: %w", err)
	}
	return f.rec, nil
}

// Seize implements [driver.Seizer].
func (s *Store) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	f, err := s.find(ctx, (&call{sql: s.sql.seize}).bytes(id[:]).bytes(t[:]))
	if err != nil {
		return driver.Record{}, fmt.Errorf("pgstore: seize: %w", err)
	}
	return f.rec, nil
}

// Forget implements [driver.Seizer].
func (s *Store) Forget(ctx context.Context, id driver.ID, by driver.Owner) (forgot bool, err error) {
	if by.Above {
		return false, ctx.Err()
	}
	c := (&call{sql: s.sql.forget}).bytes(id[:]).int8(int64(by.Fence)).bytes(by.Token[:])
	err = s.do(ctx, c, func(row [][]byte) error {
		forgot = boolOf(row[0])
		return readable(row[0])
	})
	if err != nil {
		return false, fmt.Errorf("pgstore: forget: %w", err)
	}
	return forgot, nil
}

func positive(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// stateNotOwned is the SQLSTATE with which a settle in a transaction is refused.
const stateNotOwned = "SM001"

// notOwned reports whether a settle in a transaction was refused. A record that somebody else has written meanwhile
// shows as a violated primary key.
func (s *Store) notOwned(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == stateNotOwned ||
		pg.Code == "23505" && pg.SchemaName == s.schema && pg.ConstraintName == "records_pkey")
}
