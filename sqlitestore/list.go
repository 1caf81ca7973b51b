package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// What is read before a listing gives it out: no statement is open while yield runs, so that it may use the store.
const (
	pageRows  = 256
	pageBytes = 4 << 20
	pageLooks = 4096 // rows that one statement looks at to find those of a page
)

const (
	// A record can read otherwise than its state only as far as stateBits tells. Its names stand in it as they are; what
	// has another's name in its answer is read too.
	mayMatch  = "CASE WHEN (1 << state & ? <> 0 OR state > 4) AND ifnull(instr(record, ?), 1) > 0 AND ifnull(instr(record, ?), 1) > 0 THEN record END"
	listAll   = "SELECT rowid, id, " + mayMatch + " FROM semel_records WHERE rowid > ? ORDER BY rowid LIMIT ?"
	listRange = "SELECT rowid, id, " + mayMatch + " FROM semel_records WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?"
	listLive  = "SELECT rowid FROM semel_records WHERE state IN (1, 4)"
	// Of those that run, only those are read whose lease is over: it ends at the time in the 8 bytes from the 47th on.
	listLost   = listLive + " AND (state = 4 OR substr(record, 47, 8) <= ?)"
	listSealed = "SELECT rowid FROM semel_records WHERE sealed = 1 AND (state = 3 OR substr(record, 47, 8) <= ?)"
	listOne    = "SELECT rowid, id, record FROM semel_records WHERE rowid = ?"
)

// An item is a record in a listing.
type item struct {
	place
	rec driver.Record
	err error // why it could not be read
}

// A place is a row in a listing.
type place struct {
	rowid int64
	id    driver.ID
}

// List implements [driver.Lister]. It passes over records that can't be read, and returns an error that wraps
// [driver.ErrUnreadable] in the end, which names them.
func (s *Store) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	first, last, some := q.Range()
	if !some {
		return nil
	}
	var unreadable []error
	given := 0
	each := func(it item) bool {
		if it.err != nil {
			unreadable = append(unreadable, it.err)
			return true
		}
		if !q.Matches(it.id, &it.rec) {
			return true
		}
		given++
		return yield(it.id, it.rec) && given != q.Limit
	}
	var err error
	switch {
	case q.Scope != nil, q.Prefix != "":
		err = s.listRange(ctx, q, first, last, each)
	case q.Reading == driver.ReadsRunning:
		err = s.listNoted(ctx, each, listLive)
	case q.Reading == driver.ReadsUnknown:
		err = s.listNoted(ctx, each, listLost, s.nowBytes())
	case q.Reading == driver.ReadsFree && q.Sealed:
		err = s.listNoted(ctx, each, listSealed, s.nowBytes())
	default:
		err = s.listAll(ctx, q, each)
	}
	if err == nil {
		err = errors.Join(unreadable...)
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: list: %w", err)
	}
	return nil
}

// nowBytes returns the clock as records have it.
func (s *Store) nowBytes() []byte { return binary.BigEndian.AppendUint64(nil, uint64(s.clock.tell())) }

// selecting returns the arguments of mayMatch, and those that follow. No name is NULL.
func selecting(q driver.Query, more ...any) []any {
	name := func(s string) any {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	return append([]any{stateBits(q.Reading), name(q.Operation), name(q.Correlation)}, more...)
}

// stateBits are the states, as bits, of records that may have a reading.
func stateBits(reading driver.Reading) int {
	switch reading {
	case driver.ReadsRunning:
		return 1 << driver.Running
	case driver.ReadsUnknown:
		return 1<<driver.Running | 1<<driver.Unknown
	case driver.ReadsFree:
		return 1<<driver.Running | 1<<driver.Free
	case driver.ReadsDone, driver.ReadsExpired:
		return 1<<driver.Running | 1<<driver.Done
	}
	return -1
}

func (s *Store) listAll(ctx context.Context, q driver.Query, each func(item) bool) error {
	last := place{rowid: -1 << 63}
	return s.listPages(ctx, listAll, func() []any { return selecting(q, last.rowid, pageLooks) }, &last, each)
}

func (s *Store) listRange(ctx context.Context, q driver.Query, first, end driver.ID, each func(item) bool) error {
	var last place
	from := first[:]
	return s.listPages(ctx, listRange, func() []any {
		if last != (place{}) {
			from = append(last.id[:], 0) // longer than that id, and before any after it
		}
		return selecting(q, from, end[:], pageLooks)
	}, &last, each)
}

// listPages lists page by page. Args makes the arguments of the query for the rows after last.
func (s *Store) listPages(ctx context.Context, query string, args func() []any, last *place, each func(item) bool) error {
	for {
		page, end, err := s.page(ctx, query, args()...)
		if err != nil || end == (place{}) {
			return err
		}
		for _, it := range page {
			if !each(it) {
				return nil
			}
		}
		*last = end
	}
}

// listNoted first notes where the records are that a query gives, so that one that is claimed again meanwhile is not
// given twice.
func (s *Store) listNoted(ctx context.Context, each func(item) bool, query string, args ...any) error {
	rowids, err := s.note(ctx, query, args...)
	if err != nil {
		return err
	}
	for _, rowid := range rowids {
		page, _, err := s.page(ctx, listOne, rowid)
		if err != nil {
			return err
		}
		for _, it := range page {
			if !each(it) {
				return nil
			}
		}
	}
	return nil
}

func (s *Store) note(ctx context.Context, query string, args ...any) (rowids []int64, err error) {
	err = s.read(ctx, func(c *session) error {
		rowids = nil
		rows, err := c.conn.QueryContext(ctx, query, args...)
		return each(rows, err, func() (more bool, err error) {
			var rowid int64
			err = rows.Scan(&rowid)
			rowids = append(rowids, rowid)
			return true, err
		})
	})
	return rowids, err
}

// page reads the records that a query gives, up to a number and to a number of bytes. Last is the last row that it has
// looked at, zero if there was none; a row without a record does not match.
func (s *Store) page(ctx context.Context, query string, args ...any) (page []item, last place, err error) {
	err = s.read(ctx, func(c *session) error {
		page, last = nil, place{}
		size, now := 0, s.clock.tell()
		rows, err := c.conn.QueryContext(ctx, query, args...)
		return each(rows, err, func() (more bool, err error) {
			var it item
			var id, data sql.RawBytes
			if err := rows.Scan(&it.rowid, &id, &data); err != nil {
				return false, err
			}
			copy(it.id[:], id)
			if last = it.place; data == nil {
				return true, nil
			}
			if err := it.rec.UnmarshalBinary(data); err != nil {
				it.err = fmt.Errorf("operation %s: %w", it.id, err)
			}
			it.rec.Now = s.notBefore(now, &it.rec)
			page = append(page, it)
			size += len(data)
			return size < pageBytes && len(page) < pageRows, nil
		})
	})
	return page, last, err
}
