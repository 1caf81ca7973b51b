package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semelhq/semel/driver"
)

// What is read before a listing gives it out: no statement is open while yield runs, so that it may use the store.
const (
	pageRows  = 256
	pageBytes = 4 << 20
	// apartBytes stands for the size of an answer that is kept apart.
	apartBytes = 64 << 10
)

// pageLooks is how many rows one statement looks at to find those of a page.
const pageLooks = 4096

// A listing looks for ids and sizes first, and then reads records by their ids, as Load does, so many as go into a
// page.
const (
	idAndSize = "SELECT r.id, coalesce(octet_length(r.answer), 0)::bigint + coalesce(octet_length(r.sealed), 0) AS size, " +
		"r.answer_day IS NOT NULL AS apart, r.started"
	fromRecords = " FROM {schema}.records r WHERE "
	// What a row says by itself of whether it matches. A record can read otherwise than its state only as far as stateBits
	// tells.
	mayMatch = "(r.sealed IS NOT NULL OR NOT $1) AND (r.correlation = $2 OR $2 = '') AND (r.operation = $3 OR $3 = '') AND ((1 << r.state) & $4 <> 0 OR r.layout > 1)"
	// listRange gives those that may match, and the last row that it has looked at.
	listRange = "WITH looked AS MATERIALIZED (" + idAndSize + ", " + mayMatch + " AS matches" + fromRecords +
		"r.id >= $5 AND r.id <= $6 ORDER BY r.id LIMIT $7) " +
		"SELECT l.id, l.size, l.apart, l.started, l.matches FROM looked l " +
		"WHERE l.matches OR l.id = (SELECT id FROM looked ORDER BY id DESC LIMIT 1) ORDER BY l.id"
	listLive = idAndSize + ", true" + fromRecords + mayMatch + " AND r.state IN (1, 4)"
	// listLost is for reconcile: it leaves out what runs within its lease.
	listLost = listLive + " AND (r.state = 4 OR r.on_lost = 0 AND NOT r.begun AND r.lease_end <= (SELECT {schema}.clock_1()))"
	listPage = "SELECT {schema}.load_1(substr($1, 48 * n + 1, 48)) FROM generate_series(0, octet_length($1) / 48 - 1) n ORDER BY n"

	// listSealed is for completers: it goes by the index of sealed requests, and leaves those out of which somebody takes
	// care. What was tried again a moment ago comes last.
	listSealed = idAndSize + ", true" + fromRecords + "r.sealed IS NOT NULL AND r.state IN (1, 3) AND (r.started, r.id) > ($1, $2) " +
		"AND (r.state = 3 OR r.on_lost = 1 AND NOT r.begun AND r.lease_end <= (SELECT {schema}.clock_1())) " +
		"ORDER BY r.started, r.id LIMIT $3"
)

// A seen is a record that a listing is about to read.
type seen struct {
	id      driver.ID
	size    int
	started int64
	matches bool // as far as a row tells by itself
}

// stateBits are the states, as bits, of records that may have a reading.
func stateBits(reading driver.Reading) int32 {
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
	return ^int32(0)
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
	case q.Reading == driver.ReadsRunning:
		err = s.listAtOnce(ctx, selecting(s.sql.listLive, q), each)
	case q.Reading == driver.ReadsUnknown:
		err = s.listAtOnce(ctx, selecting(s.sql.listLost, q), each)
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
	return (&call{sql: query}).bool(q.Sealed).text(q.Correlation).text(q.Operation).int4(stateBits(q.Reading))
}

// listAtOnce lists what one query gives.
func (s *Store) listAtOnce(ctx context.Context, c *call, each func(driver.ID, driver.Record, error) bool) error {
	all, err := s.look(ctx, c)
	if err == nil {
		_, err = s.give(ctx, all, each)
	}
	return err
}

// listRange lists, page by page, what there is from one id to another.
func (s *Store) listRange(ctx context.Context, q driver.Query, first, last driver.ID, each func(driver.ID, driver.Record, error) bool) error {
	next := first[:]
	return s.listPages(ctx, func(after *seen) *call {
		if after != nil {
			next = append(bytes.Clone(after.id[:]), 0) // longer than that id, and before any after it
		}
		return selecting(s.sql.listRange, q).bytes(next).bytes(last[:]).int8(pageLooks)
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
	var after *seen
	for {
		page, err := s.look(ctx, next(after))
		if err != nil || len(page) == 0 {
			return err
		}
		last := page[len(page)-1]
		page = slices.DeleteFunc(page, func(it seen) bool { return !it.matches })
		if more, err := s.give(ctx, page, each); err != nil || !more {
			return err
		}
		after = &last
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
		it.started, it.matches = int8Of(row[3]), boolOf(row[4])
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
