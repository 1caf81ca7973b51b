package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// What is read before a listing gives it out: no statement is open while yield runs, so that it may use the store.
const (
	pageRows  = 256
	pageBytes = 4 << 20
	// apartBytes stands for the size of an answer that is kept apart.
	apartBytes = 64 << 10
)

// A listing looks for ids and sizes first, and then reads records by their ids, as Load does, so many as go into a
// page.
const (
	idAndSize = "SELECT r.id, coalesce(octet_length(r.answer), 0)::bigint + coalesce(octet_length(r.sealed), 0), r.answer_day IS NOT NULL, " +
		"r.started FROM {schema}.records r WHERE "
	whole     = idAndSize + "(r.sealed IS NOT NULL OR NOT $1) AND (r.correlation = $2 OR $2 = '') AND "
	listRange = whole + "r.id >= $3 AND r.id <= $4 ORDER BY r.id LIMIT $5"
	listLive  = whole + "r.state IN (1, 4)"
	listPage  = "SELECT {schema}.load_1(substr($1, 48 * n + 1, 48)) FROM generate_series(0, octet_length($1) / 48 - 1) n ORDER BY n"

	// listSealed is for completers: it goes by the index of sealed requests, and leaves those out of which somebody takes
	// care. What was tried again a moment ago comes last.
	listSealed = idAndSize + "r.sealed IS NOT NULL AND r.state IN (1, 3) AND (r.started, r.id) > ($1, $2) " +
		"AND (r.state = 3 OR r.on_lost = 1 AND NOT r.begun AND r.lease_end <= (SELECT {schema}.clock_1())) " +
		"ORDER BY r.started, r.id LIMIT $3"
)

// A seen is a record that a listing is about to read.
type seen struct {
	id      driver.ID
	size    int
	started int64
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
	each := func(id driver.ID, rec driver.Record, err error) bool {
		switch {
		case err != nil:
			unreadable = append(unreadable, fmt.Errorf("operation %s: %w", id, err))
			return true
		case !q.Matches(id, &rec):
			return true
		}
		given++
		return yield(id, rec) && given != q.Limit
	}
	var err error
	switch {
	case q.Scope != nil, q.Prefix != "":
		err = s.listRange(ctx, q, first, last, each)
	case q.Reading == driver.ReadsRunning, q.Reading == driver.ReadsUnknown: // only these states read so
		var all []seen
		if all, err = s.look(ctx, selecting(s.sql.listLive, q)); err == nil {
			_, err = s.give(ctx, all, each)
		}
	case q.Reading == driver.ReadsFree && q.Sealed:
		err = s.listSealed(ctx, each)
	default:
		err = s.listRange(ctx, q, first, last, each)
	}
	if err == nil {
		err = errors.Join(unreadable...)
	}
	if err != nil {
		return fmt.Errorf("pgstore: list: %w", err)
	}
	return nil
}

// selecting begins a call of a query that looks at more than ids.
func selecting(query string, q driver.Query) *call {
	return (&call{sql: query}).bool(q.Sealed).bytes([]byte(q.Correlation))
}

// listRange lists, page by page, what there is from one id to another.
func (s *Store) listRange(ctx context.Context, q driver.Query, first, last driver.ID, each func(driver.ID, driver.Record, error) bool) error {
	next := first[:]
	return s.listPages(ctx, func(after *seen) *call {
		if after != nil {
			next = append(bytes.Clone(after.id[:]), 0) // longer than that id, and before any after it
		}
		return selecting(s.sql.listRange, q).bytes(next).bytes(last[:]).int8(pageRows)
	}, each)
}

// listSealed lists, page by page, the sealed requests that may have to be completed.
func (s *Store) listSealed(ctx context.Context, each func(driver.ID, driver.Record, error) bool) error {
	return s.listPages(ctx, func(after *seen) *call {
		if after == nil {
			after = &seen{started: -1}
		}
		return (&call{sql: s.sql.listSealed}).int8(after.started).bytes(after.id[:]).int8(pageRows)
	}, each)
}

// listPages lists page by page. Next makes the call for the page after a record, or the first one.
func (s *Store) listPages(ctx context.Context, next func(after *seen) *call, each func(driver.ID, driver.Record, error) bool) error {
	var last *seen
	for {
		page, err := s.look(ctx, next(last))
		if err != nil || len(page) == 0 {
			return err
		}
		if more, err := s.give(ctx, page, each); err != nil || !more {
			return err
		}
		last = &page[len(page)-1]
	}
}

// look returns what a query for ids and sizes gives.
func (s *Store) look(ctx context.Context, c *call) ([]seen, error) {
	return collect(ctx, s, c, func(row [][]byte) (it seen, _ error) {
		copy(it.id[:], row[0])
		it.size = int(int8Of(row[1]))
		if boolOf(row[2]) {
			it.size += apartBytes
		}
		it.started = int8Of(row[3])
		return it, nil
	})
}

// An item is a record in a listing.
type item struct {
	rec driver.Record
	err error // why it could not be read
}

// give reads records and gives them to each, until that returns false.
func (s *Store) give(ctx context.Context, all []seen, each func(driver.ID, driver.Record, error) bool) (more bool, err error) {
	for len(all) > 0 {
		n, size := 0, 0
		var ids []byte
		for n < len(all) && n < pageRows && (n == 0 || size+all[n].size <= pageBytes) {
			size += all[n].size
			ids = append(ids, all[n].id[:]...)
			n++
		}
		page, err := collect(ctx, s, (&call{sql: s.sql.listPage}).bytes(ids), func(row [][]byte) (item, error) {
			f, err := readFound(row[0])
			return item{f.rec, err}, nil
		})
		if err != nil {
			return false, err
		}
		for i, it := range page {
			if !each(all[i].id, it.rec, it.err) {
				return false, nil
			}
		}
		all = all[n:]
	}
	return true, nil
}
