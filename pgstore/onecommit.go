package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel/driver"
)

const beginOneCommit = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE"

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
	t, err := s.onConnection(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, beginOneCommit, s.sql.begin, s.sql.finish, commitSQL)
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

// lock begins the transaction, tries to take the operation's lock, and reads its record, in this order.
func (t *transaction) lock(ctx context.Context, id driver.ID, before ...string) (rec driver.Record, free bool, err error) {
	s := t.store
	var b pgconn.Batch
	for _, sql := range before {
		b.ExecParams(sql, nil, nil, nil, nil)
	}
	t.queue(&b, &call{sql: beginOneCommit})
	t.queue(&b, (&call{sql: s.sql.begin}).bytes(id[:]).int8(s.lockOf(id)).
		int4(milliseconds(s.o.IdleTimeout)).int4(milliseconds(s.o.StatementTimeout)))
	answers := t.pg().ExecBatch(ctx, &b)
	var unread error
	for answers.NextResult() {
		r := answers.ResultReader()
		for r.NextRow() {
			var f found
			f, unread = readFound(r.Values()[0])
			rec, free = f.rec, f.owned
		}
		r.Close() //nolint:errcheck // its error is that of all
	}
	if err := answers.Close(); err != nil {
		t.spoiled = stale(err)
		return rec, false, batchError(err)
	}
	return rec, free, unread
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
	f := (&call{sql: s.sql.finish}).bytes(c.id[:])
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
		fields, err := splitRow(row[0])
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

// placeholders returns the list "$1, $2, …" of n parameters.
func placeholders(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(list, ", ")
}
