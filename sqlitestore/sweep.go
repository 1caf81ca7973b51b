package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// How much of a sweep is done at once.
const (
	sweepChunk = 100 // records that one call in the line deletes if nobody waits,
	sweepStep  = 20  // and if somebody does
	sweepLog   = 200 // records after which the log is copied back
)

// A record's fence is the 8 bytes from the 7th on, its tombstone those from the 71st; as bytes they compare as numbers
// do.
const (
	sweepRecords = `DELETE FROM semel_records WHERE rowid IN (
	SELECT rowid FROM semel_records WHERE expires IS NOT NULL AND expires <= ? ORDER BY expires LIMIT ?
) AND substr(record, 71, 8) = zeroblob(8) RETURNING substr(record, 7, 8)`
	sweepTombstones = "SELECT id FROM semel_records WHERE expires IS NOT NULL AND expires <= ? ORDER BY expires LIMIT ?"
)

// Sweep implements [driver.Store]. It begins with those that expired first, and works in small parts between which
// others are served.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("sqlitestore: sweep: %w", err)
	}
	total, logged := 0, 0
	for total < limit {
		chunk := min(sweepChunk, limit-total)
		n, _, err := decide(ctx, s, &call{size: 1024}, func(u *unit) (int, bool, error) {
			n, err := s.sweepPart(u, chunk)
			return n, false, err
		})
		if err != nil {
			return total, fmt.Errorf("sqlitestore: sweep: %w", err)
		}
		if total += n; n == 0 {
			break
		}
		if total-logged >= sweepLog {
			s.writeBack(ctx)
			logged = total
		}
	}
	return total, nil
}

// sweepPart sweeps at most limit records, in steps, as long as nobody waits in the line: whoever comes waits for one step
// only.
func (s *Store) sweepPart(u *unit, limit int) (n int, err error) {
	for n < limit && (n == 0 || !s.line.waits()) {
		step := min(sweepStep, limit-n)
		swept, err := u.sweep(step)
		if n += swept; err != nil || swept < step {
			return n, err
		}
	}
	return n, nil
}

// writeBack copies the log's pages into the database beside those who write. Else one of them would have to, with all
// the pages that a sweep has touched, while the others wait for it. Should it fail, that is what happens.
func (s *Store) writeBack(ctx context.Context) {
	s.read(ctx, func(c *session) error { return c.exec("PRAGMA wal_checkpoint(PASSIVE)") }) //nolint:errcheck // as said above
}

// sweep deletes or strips at most limit records that [driver.Record.Expired] holds of: expires is written with each
// record.
func (u *unit) sweep(limit int) (n int, err error) {
	if n, err = u.sweepRecords(limit); err != nil || n == limit {
		return n, err
	}
	kept, err := u.sweepTombstones(limit - n)
	return n + kept, err
}

// sweepRecords deletes expired records without a tombstone, of those that expired first.
func (u *unit) sweepRecords(limit int) (n int, err error) {
	var highest uint64
	rows, err := u.conn.QueryContext(detached, sweepRecords, int64(u.now), limit)
	err = each(rows, err, func() (more bool, err error) {
		var fence sql.RawBytes
		if err := rows.Scan(&fence); err != nil {
			return false, err
		}
		if len(fence) == 8 {
			highest = max(highest, binary.BigEndian.Uint64(fence))
		}
		n++
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	if n > 0 {
		u.deleted(int64(n), highest)
	}
	return n, nil
}

// sweepTombstones strips or deletes expired records with a tombstone. One that can't be read is deleted: its answer
// could not be replayed when it was kept.
func (u *unit) sweepTombstones(limit int) (n int, err error) {
	var ids []driver.ID
	rows, err := u.conn.QueryContext(detached, sweepTombstones, int64(u.now), limit)
	err = each(rows, err, func() (more bool, err error) {
		var id sql.RawBytes
		if err := rows.Scan(&id); err != nil {
			return false, err
		}
		ids = append(ids, driver.ID(id))
		return true, nil
	})
	for _, id := range ids {
		if err == nil {
			err = u.sweepOne(id)
			n++
		}
	}
	return n, err
}

func (u *unit) sweepOne(id driver.ID) error {
	old, err := u.find(id)
	if err != nil && !errors.Is(err, driver.ErrUnreadable) {
		return err
	}
	if rec, swept := old.Swept(u.now); swept && rec.State != driver.Absent {
		_, err := u.write(id, &old, &rec)
		return err
	}
	if _, err := u.run(deleteRecord, old.rowid); err != nil {
		return err
	}
	u.deleted(1, old.Fence)
	return nil
}
