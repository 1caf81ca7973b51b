package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// A unit is a write transaction on a session. It has the database's write lock: what it reads is the latest, and stays
// so. Its verbs read a record, apply the transition and write the result. Each that fails has changed nothing.
type unit struct {
	*session
	clock *clock
	known known
	now   driver.Time // the clock in this transaction; nothing in the database is later
	fence uint64      // the highest fence of deleted records that were ahead of the clock
	tally
}

// A tally is what a unit has written besides records.
type tally struct {
	wrote  bool   // something
	raised uint64 // the fence, if above unit.fence
	added  int64  // records, less those deleted
}

// begin begins a transaction on a session. It waits for the write lock until ctx ends, for a bounded time. Its caller
// has the lead of the line.
func (s *Store) begin(ctx context.Context, on *session) (*unit, error) {
	return s.unit(on, on.lock(ctx))
}

// unit returns the transaction that was begun on a session, if that has succeeded.
func (s *Store) unit(on *session, begun error) (*unit, error) {
	if begun != nil {
		return nil, fmt.Errorf("begin a transaction: %w", begun)
	}
	u := &unit{session: on, clock: s.clock, known: s.known}
	if err := u.readMeta(); err != nil {
		on.reset()
		return nil, fmt.Errorf("begin a transaction: %w", err)
	}
	return u, nil
}

func (u *unit) readMeta() error {
	st, err := u.stmt(selectMeta)
	if err != nil {
		return err
	}
	var mark driver.Time
	if err := st.QueryRowContext(detached).Scan(&mark, &u.fence); err != nil {
		return fmt.Errorf("read semel_meta: %w", interpretError(err))
	}
	u.clock.reach(mark)
	u.tick()
	return nil
}

// tick moves the transaction's clock on.
func (u *unit) tick() { u.now = u.clock.tell() }

// commit ends the transaction, and keeps what it has written. After an error it is still open, or has been rolled back,
// or has even committed: see session.reset.
func (u *unit) commit() error {
	if _, err := u.run(updateMeta, int64(u.now), int64(u.raised), u.added); err != nil {
		return err
	}
	_, err := u.run(commitWrite)
	return err
}

// A row is a record as it was found, or written.
type row struct {
	driver.Record
	rowid int64
	found bool
	head  [headSize]byte
}

// headSize is the size of the header with which a record begins in its binary form. All that changes while a record
// runs is in there, and a checksum of the rest.
const headSize = 126

// find reads a record as this connection sees it.
func (s *session) find(id driver.ID) (r row, err error) {
	st, err := s.stmt(selectRecord)
	if err != nil {
		return row{}, err
	}
	rows, err := st.QueryContext(detached, id[:])
	err = each(rows, err, func() (more bool, err error) {
		var data sql.RawBytes
		if err := rows.Scan(&r.rowid, &data); err != nil {
			return false, err
		}
		if err := r.UnmarshalBinary(data); err != nil {
			return false, err
		}
		r.found = true
		copy(r.head[:], data)
		return false, nil
	})
	return r, err
}

// change applies a transition to a record. next says what must be stored in the place of old, or that nothing must be,
// and is asked again if old turns out to be out of date. guess is what the record may be, if anything is known.
func (u *unit) change(id driver.ID, guess *row, next func(old *row) (rec driver.Record, changes bool)) (driver.Record, error) {
	if guess != nil {
		guess.Now = u.now
		if rec, changes := next(guess); changes {
			if stored, err := u.write(id, guess, &rec); stored || err != nil {
				return rec, err
			}
		}
	}
	old, err := u.find(id)
	if err != nil {
		return driver.Record{}, err
	}
	old.Now = u.now
	rec, changes := next(&old)
	if !changes {
		return rec, nil
	}
	stored, err := u.write(id, &old, &rec)
	if err == nil && !stored {
		err = errIndex
	}
	return rec, err
}

var errIndex = fmt.Errorf("%w: the index of ids does not agree with the records", ErrCorrupt)

// write stores rec in the place of old, and reports false if the record is another one.
func (u *unit) write(id driver.ID, old *row, rec *driver.Record) (stored bool, err error) {
	data, err := rec.AppendBinary(nil)
	if err != nil {
		return false, err
	}
	if old.Steps && !rec.Steps {
		// Of an operation that is past its retention: should the next statement fail, nobody will miss them.
		if _, err := u.run(deleteSteps, id[:]); err != nil {
			return false, err
		}
		u.wrote = true
	}
	expires, sealed := expiresColumn(rec), sealedColumn(rec)
	var r sql.Result
	switch {
	case !old.found:
		r, err = u.run(insertRecord, id[:], int64(rec.State), int64(rec.Started), expires, sealed, data)
	case rec.State == old.State && rec.Started == old.Started && expires == expiresColumn(&old.Record) && sealed == sealedColumn(&old.Record):
		r, err = u.run(rewriteRecord, data, old.rowid, id[:], old.head[:])
	default:
		r, err = u.run(updateRecord, int64(rec.State), int64(rec.Started), expires, sealed, data, old.rowid, id[:], old.head[:])
	}
	if err != nil {
		return false, err
	}
	switch n, err := r.RowsAffected(); {
	case err != nil:
		return false, interpretError(err)
	case n == 0:
		return false, nil
	}
	u.wrote = true
	now := row{Record: *rec, rowid: old.rowid, found: true, head: [headSize]byte(data)}
	if !old.found {
		u.added++
		if now.rowid, err = r.LastInsertId(); err != nil {
			return false, interpretError(err)
		}
	}
	u.known.note(id, &now)
	return true, nil
}

// expiresColumn returns when the record expires, nil for never.
func expiresColumn(rec *driver.Record) any {
	if at := rec.Expires(); at != never {
		return int64(at)
	}
	return nil
}

// sealedColumn returns 1 for a record with a sealed request that may have to be finished.
func sealedColumn(rec *driver.Record) int64 {
	if len(rec.Sealed) > 0 && (rec.State == driver.Running || rec.State == driver.Free) {
		return 1
	}
	return 0
}

const never = driver.Time(1<<63 - 1)

// claim is the verb of that name. An absent record is a guess: then inserting it finds out.
func (u *unit) claim(id driver.ID, c driver.Claim, absent bool) (rec driver.Record, owned bool, err error) {
	var guess *row
	if absent {
		guess = &row{}
	}
	rec, err = u.change(id, guess, func(old *row) (driver.Record, bool) {
		if !old.found {
			old.Fence = max(u.fence, u.raised) // of deleted ones
		}
		rec, owned = old.Claim(u.now, c)
		return rec, owned
	})
	return rec, owned && err == nil, noRoom(err)
}

func (u *unit) extend(id driver.ID, by driver.Owner, x driver.Extension) (owned bool, err error) {
	_, err = u.change(id, u.known.of(id), func(old *row) (rec driver.Record, _ bool) {
		rec, owned = old.Extend(u.now, by, x)
		return rec, owned
	})
	return owned && err == nil, err
}

func (u *unit) settle(id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	rec, err = u.change(id, u.known.of(id), func(old *row) (driver.Record, bool) {
		rec, owned = old.Settle(u.now, by, o)
		return rec, owned && old.Wrote == driver.Absent // else it is a repetition
	})
	if rec.Response != nil {
		err = noRoom(err)
	}
	return rec, owned && err == nil, err
}

func (u *unit) seize(id driver.ID, t driver.Token) (driver.Record, error) {
	return u.change(id, nil, func(old *row) (driver.Record, bool) {
		rec, seized := old.Seize(u.now, t)
		return rec, seized && rec.Fence != old.Fence // else it is a repetition
	})
}

func (u *unit) forget(id driver.ID, by driver.Owner) (bool, error) {
	old, err := u.find(id)
	if err != nil {
		return false, err
	}
	if !old.Forgettable(u.now, by) {
		return false, nil
	}
	if _, err := u.run(deleteRecord, old.rowid); err != nil {
		return false, err
	}
	u.deleted(1, old.Fence)
	return true, nil
}

// deleted notes that so many records are gone, of which the highest fence is given. A new record's fence comes from the
// clock; only if one of these was ahead of that must it be remembered.
func (u *unit) deleted(n int64, fence uint64) {
	u.wrote = true
	u.added -= n
	if fence >= uint64(u.now)/1000 {
		u.raised = max(u.raised, fence)
	}
}
