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
)

const (
	listAll   = "SELECT rowid, id, record FROM semel_records WHERE rowid > ? ORDER BY rowid LIMIT ?"
	listRange = "SELECT rowid, id, record FROM semel_records WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?"
	listLive  = "SELECT rowid FROM semel_records WHERE state IN (1, 4)"
	// Of sealed records that run, only those are read whose lease is over: it ends at the time in the 8 bytes from the
	// 47th on.
	listSealed = "SELECT rowid FROM semel_records WHERE sealed = 1 AND (state = 3 OR substr(record, 47, 8) <= ?)"
	listOne    = "SELECT rowid, id, record FROM semel_records WHERE rowid = ?"
)

// An item is a record in a listing.
type item struct {
	rowid int64
	id    driver.ID
	rec   driver.Record
	err   error // why it could not be read
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
		err = s.listRange(ctx, first, last, each)
	case q.Reading == driver.ReadsRunning, q.Reading == driver.ReadsUnknown:
		err = s.listNoted(ctx, each, listLive) // only these states read so
	case q.Reading == driver.ReadsFree && q.Sealed:
		err = s.listNoted(ctx, each, listSealed, binary.BigEndian.AppendUint64(nil, uint64(s.clock.tell())))
	default:
		err = s.listAll(ctx, each)
	}
	if err == nil {
		err = errors.Join(unreadable...)
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: list: %w", err)
	}
	return nil
}

func (s *Store) listAll(ctx context.Context, each func(item) bool) error {
	for last := int64(-1 << 63); ; {
		page, err := s.page(ctx, listAll, last, pageRows)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, it := range page {
			if last = it.rowid; !each(it) {
				return nil
			}
		}
	}
}

func (s *Store) listRange(ctx context.Context, first, last driver.ID, each func(item) bool) error {
	for next := first[:]; ; {
		page, err := s.page(ctx, listRange, next, last[:], pageRows)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, it := range page {
			if next = append(it.id[:], 0); !each(it) { // longer than that id, and before any after it
				return nil
			}
		}
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
		page, err := s.page(ctx, listOne, rowid)
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

// page reads the records that a query gives, up to a number of bytes. Only an empty page is the last one.
func (s *Store) page(ctx context.Context, query string, args ...any) (page []item, err error) {
	err = s.read(ctx, func(c *session) error {
		page = nil
		size, now := 0, s.clock.tell()
		rows, err := c.conn.QueryContext(ctx, query, args...)
		return each(rows, err, func() (more bool, err error) {
			var it item
			var id, data sql.RawBytes
			if err := rows.Scan(&it.rowid, &id, &data); err != nil {
				return false, err
			}
			copy(it.id[:], id)
			if err := it.rec.UnmarshalBinary(data); err != nil {
				it.err = fmt.Errorf("operation %s: %w", it.id, err)
			}
			it.rec.Now = s.notBefore(now, &it.rec)
			page = append(page, it)
			size += len(data)
			return size < pageBytes, nil
		})
	})
	return page, err
}
