package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/pgstore/internal/composite"
)

// A transaction in one-commit mode is READ COMMITTED and READ WRITE. To say so costs more than to look, and where it is
// the database's default it need not be said.
const (
	beginDefault   = "BEGIN"
	beginOneCommit = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE"
)

// lockOperation tries to take the operation's lock, and sets the timeouts. It tells whether the lock was free, the
// clock, the fence that a new run has to be above, and whether the transaction is of the right kind. The record is read
// by the next statement, whose snapshot is from after the lock: it shows what whoever had the lock last has left.
const lockOperation = `SELECT pg_try_advisory_xact_lock($1), {schema}.clock_1(), pg_sequence_last_value('{schema}.fences'),
	current_setting('transaction_isolation') = 'read committed' AND current_setting('transaction_read_only') = 'off',
	set_config('idle_in_transaction_session_timeout', '%d', true), set_config('statement_timeout', '%d', true)`

// insertDone writes the record of an operation that had none, and is done, at the end of its run. That somebody else
// has written one meanwhile violates the primary key, so that a COMMIT that was sent along becomes a rollback. The mark
// of deleted records' fences is read after the row is there, which has waited for a deletion under way.
const insertDone = `INSERT INTO {schema}.records AS r (
		fence, created, started, lease_end, settled, expires, retention, tombstone, attempt, layout, state, wrote,
		on_lost, begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error, answer
	) VALUES (
		greatest($1, {schema}.clock_1() / 1000), $2, $2, $3, greatest({schema}.clock_1(), $2), greatest({schema}.clock_1(), $2) + $4,
		$5, $6, 1, 1, 2, 2, $7, false, false, false, false, false, $8, $9, $10, $11, $12, '', $13
	) RETURNING r.settled, CASE
		WHEN pg_sequence_last_value('{schema}.fences') >= r.fence OR current_setting('synchronous_commit') = 'off'
			THEN {schema}.inserted_1(r.id, r.fence)
		ELSE r.fence
	END`

// A claimed is what a transaction in one-commit mode has claimed. Nothing of it is written before the settle; until
// then the operation's advisory lock keeps others out.
type claimed struct {
	id  driver.ID
	was driver.Record // what was found; it may be absent
	rec driver.Record // as claimed
}

// BeginClaim implements [driver.Transactor], in one round trip on one of the application's connections. It waits for
// nobody: an operation whose lock is taken reads as running.
func (s *Store) BeginClaim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Tx, driver.Record, bool, error) {
	t, rec, err := s.beginClaim(ctx, id, c)
	switch {
	case err != nil:
		return nil, driver.Record{}, false, fmt.Errorf("pgstore: begin and claim: %w", err)
	case t == nil:
		return nil, rec, false, nil
	}
	return t, rec, true, nil
}

func (s *Store) beginClaim(ctx context.Context, id driver.ID, c driver.Claim) (*transaction, driver.Record, error) {
	finish := s.sql.finish
	if s.apart || s.notify {
		finish = s.sql.finishAny
	}
	t, err := s.onConnection(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, beginDefault, s.sql.lock, s.sql.read, finish, commitSQL)
	if err != nil {
		return nil, driver.Record{}, err
	}
	was, free, err := t.lock(ctx, id)
	if err != nil {
		t.Rollback()
		return nil, driver.Record{}, err
	}
	rec, owned := was.Claim(was.Now, c)
	switch {
	case !owned:
		t.Rollback()
		return nil, rec, nil
	case !free:
		t.Rollback()
		return nil, running(was.Now, c), nil
	}
	t.claimed, t.fresh = &claimed{id: id, was: was, rec: rec}, true
	return t, rec, nil
}

// claimAnew begins the transaction anew, with what it has claimed, unless another was faster.
func (t *transaction) claimAnew(ctx context.Context) error {
	if err := t.ready(); err != nil {
		return err
	}
	c := t.claimed
	now, free, err := t.lock(ctx, c.id, "ROLLBACK")
	if err == nil && (!free || !unchanged(&now, &c.was)) {
		err = errors.New("another has claimed the operation meanwhile")
	}
	return err
}

func unchanged(now, was *driver.Record) bool {
	return now.State == was.State && (was.State == driver.Absent || now.Owner() == was.Owner() && now.LeaseEnd == was.LeaseEnd && now.Steps == was.Steps)
}

// lock begins the transaction, tries to take the operation's lock, and reads its record, in this order. Of an operation
// without a record, the fence is the one that a new run has to be above.
func (t *transaction) lock(ctx context.Context, id driver.ID, before ...string) (rec driver.Record, free bool, err error) {
	const key = "semel begins explicitly"
	known := t.pg().CustomData()
	begin := beginDefault
	if known[key] != nil {
		begin = beginOneCommit
	}
	rec, free, like, err := t.lockWith(ctx, id, append(before, begin)...)
	if err == nil && !like && begin == beginDefault {
		known[key] = true
		return t.lock(ctx, id, "ROLLBACK")
	}
	return rec, free, err
}

// lockWith does the same, after what begins the transaction. Like says whether that has made it of the right kind.
func (t *transaction) lockWith(ctx context.Context, id driver.ID, begin ...string) (rec driver.Record, free, like bool, err error) {
	s := t.store
	var b pgconn.Batch
	for _, sql := range begin {
		t.queue(&b, &call{sql: sql})
	}
	t.queue(&b, (&call{sql: s.sql.lock}).int8(s.lockOf(id)))
	t.queue(&b, (&call{sql: s.sql.read}).bytes(id[:]))
	answers := t.send(ctx, &b)
	var unread error
	for answers.NextResult() {
		r := answers.ResultReader()
		for r.NextRow() {
			switch row := r.Values(); len(row) {
			case 1:
				var f found
				f, unread = readFound(row[0])
				rec = f.rec
			default:
				free, like = boolOf(row[0]), boolOf(row[3])
				rec.Now, rec.Fence = driver.Time(int8Of(row[1])), uint64(int8Of(row[2]))
			}
		}
		r.Close() //nolint:errcheck // its error is that of all
	}
	if err := answers.Close(); err != nil {
		t.spoiled = stale(err)
		return rec, false, false, batchError(err)
	}
	return rec, free, like, unread
}

// lockOf returns the key of the operation's advisory lock: 64 bits of the record id, in a space of the schema's.
func (s *Store) lockOf(id driver.ID) int64 {
	h := fnv.New64a()
	h.Write([]byte("semel " + s.schema))
	return int64(h.Sum64() ^ binary.BigEndian.Uint64(id[len(id)-8:]))
}

// running is what is told of an operation that another transaction has claimed. Who that is, and since when, shows only
// once it has committed.
func running(now driver.Time, c driver.Claim) driver.Record {
	rec, _ := driver.Record{}.Claim(now, c)
	rec.Token, rec.Correlation = driver.Token{}, ""
	return rec
}

// settling returns the call that writes the claimed record with its outcome, and how to read its result.
func (c *claimed) settling(s *Store, by driver.Owner, o driver.Outcome) (*call, func([][]byte) (driver.Record, error), error) {
	rec, owned := c.rec.Settle(c.rec.Now, by, o)
	if !owned {
		return nil, nil, nil
	}
	answer, err := encodeAnswer(rec.Response)
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("%w: the answer has %d bytes, at most %d go into a field", driver.ErrFull, len(answer), maxAnswer)
	}
	if err != nil {
		return nil, nil, err
	}
	was := &c.was
	if was.State == driver.Absent && plain(&rec) && !s.apart && !s.notify {
		return c.inserting(s, &rec, answer), func(row [][]byte) (driver.Record, error) {
			rec.Settled, rec.Fence = driver.Time(int8Of(row[0])), uint64(int8Of(row[1]))
			rec.Now = rec.Settled
			return rec, nil
		}, nil
	}
	f := (&call{sql: s.sql.finishAny}).bytes(c.id[:])
	if was.State == driver.Absent {
		f.add(pgtype.Int2OID, nil).add(pgtype.Int8OID, nil).bytes(nil).add(pgtype.Int8OID, nil).add(pgtype.BoolOID, nil)
	} else {
		f.int2(int16(was.State)).int8(int64(was.Fence)).bytes(was.Token[:]).int8(int64(was.LeaseEnd)).bool(was.Steps)
	}
	f.int8(int64(rec.Fence)).int8(int64(rec.Created)).int8(int64(rec.Started)).int8(int64(rec.LeaseEnd)).
		int8(int64(rec.Retention)).int8(int64(rec.Tombstone)).int8(int64(rec.Attempt)).
		int2(int16(rec.State)).int2(int16(rec.Wrote)).int2(int16(rec.OnLost)).bool(rec.Maybe).bool(rec.Steps).bool(rec.Owed).
		bytes(rec.Token[:]).bytes(fingerprintBytes(rec.Fingerprint)).text(rec.Operation).text(rec.Correlation).text(rec.Error).
		bytes(answer).bytes(orNull(rec.Sealed)).bool(s.apart).bool(s.notify)
	return f, func(row [][]byte) (driver.Record, error) {
		fields, err := composite.Fields(row[0])
		if err == nil && len(fields) != 2 {
			err = fmt.Errorf("the row has %d columns, want 2", len(fields))
		}
		if err != nil {
			return rec, err
		}
		rec.Settled, rec.Fence = driver.Time(int8Of(fields[0])), uint64(int8Of(fields[1]))
		rec.Now = rec.Settled
		return rec, nil
	}, nil
}

// plain reports whether a record is one that insertDone can write: that of a first run that is done, and has left
// nothing but its answer.
func plain(rec *driver.Record) bool {
	return rec.State == driver.Done && rec.Wrote == driver.Done && rec.Attempt == 1 && rec.Created == rec.Started &&
		!rec.Begun && !rec.Maybe && !rec.Seized && !rec.Steps && !rec.Owed && rec.Error == "" && len(rec.Sealed) == 0
}

func (c *claimed) inserting(s *Store, rec *driver.Record, answer []byte) *call {
	f := (&call{sql: s.sql.finish, values: make([][]byte, 0, 13), oids: make([]uint32, 0, 13)}).int8(int64(rec.Fence)).int8(int64(rec.Started)).int8(int64(rec.LeaseEnd))
	if keep := kept(rec, answer); keep < math.MaxInt64 {
		f.int8(keep)
	} else {
		f.add(pgtype.Int8OID, nil)
	}
	return f.int8(int64(rec.Retention)).int8(int64(rec.Tombstone)).int2(int16(rec.OnLost)).bytes(c.id[:]).bytes(rec.Token[:]).
		bytes(fingerprintBytes(rec.Fingerprint)).text(rec.Operation).text(rec.Correlation).bytes(answer)
}

// kept returns for how many microseconds sweep has nothing to do with a record that is done, by the rule of expires_1;
// the largest number is for ever.
func kept(rec *driver.Record, answer []byte) int64 {
	if rec.Retention == math.MaxInt64 || answer == nil && rec.Tombstone == math.MaxInt64 {
		return math.MaxInt64
	}
	keep := rec.Retention.Microseconds()
	if answer == nil {
		keep += rec.Tombstone.Microseconds()
	}
	return keep
}

// placeholders returns the list "$1, $2, …" of n parameters.
func placeholders(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(list, ", ")
}
