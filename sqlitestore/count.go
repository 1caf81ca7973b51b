package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// countLive reads only the index of those that run or are unknown, and the heads of those that run, up to a bound. In a
// record's 4th byte the flag 1 says that it has begun, the 6th is 0 under Hold, and the lease ends at the time in the 8
// bytes from the 47th on.
const countLive = `SELECT
	(SELECT records FROM semel_meta),
	(SELECT count(*) FROM semel_records WHERE state IN (1, 4) AND state = 1),
	(SELECT count(*) FROM semel_records WHERE state IN (1, 4) AND state = 4)
		+ (SELECT count(*) FROM (SELECT record FROM semel_records WHERE state IN (1, 4) AND state = 1 ORDER BY started LIMIT 100000)
			WHERE substr(record, 47, 8) <= ? AND substr(record, 6, 1) = x'00'
				AND substr(hex(substr(record, 4, 1)), 2) IN ('0', '2', '4', '6', '8', 'A', 'C', 'E')),
	(SELECT min(started) FROM semel_records WHERE state IN (1, 4) AND state = 1),
	(SELECT min(expires) FROM semel_records WHERE expires IS NOT NULL),
	(SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)`

// Count implements [driver.Counter]. Its cost grows only with the number of records that run or are unknown.
func (s *Store) Count(ctx context.Context) (driver.Counts, error) {
	var n driver.Counts
	var started, expires sql.Null[driver.Time]
	now := s.clock.tell()
	err := s.read(ctx, func(c *session) error {
		row := c.conn.QueryRowContext(ctx, countLive, binary.BigEndian.AppendUint64(nil, uint64(now)))
		return interpretError(row.Scan(&n.Records, &n.Running, &n.Unknown, &started, &expires, &n.Bytes))
	})
	if err != nil {
		return driver.Counts{}, fmt.Errorf("sqlitestore: count: %w", err)
	}
	if started.Valid {
		n.OldestRunning = max(0, now.Sub(started.V))
	}
	if expires.Valid {
		n.SweepLag = max(0, now.Sub(expires.V))
	}
	return n, nil
}
