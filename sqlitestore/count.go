package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/semelhq/semel"
)

// countLive reads only the index of those that run or are unknown.
const countLive = `SELECT
	(SELECT records FROM semel_meta),
	(SELECT count(*) FROM semel_records WHERE state IN (1, 4) AND state = 1),
	(SELECT count(*) FROM semel_records WHERE state IN (1, 4) AND state = 4),
	(SELECT min(started) FROM semel_records WHERE state IN (1, 4) AND state = 1),
	(SELECT min(expires) FROM semel_records WHERE expires IS NOT NULL),
	(SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)`

// Count implements [semel.Counter]. Its cost grows only with the number of records that run or are unknown.
func (s *Store) Count(ctx context.Context) (semel.Counts, error) {
	var n semel.Counts
	var started, expires sql.Null[semel.Time]
	err := s.read(ctx, func(c *session) error {
		row := c.conn.QueryRowContext(ctx, countLive)
		return interpretError(row.Scan(&n.Records, &n.Running, &n.Unknown, &started, &expires, &n.Bytes))
	})
	if err != nil {
		return semel.Counts{}, fmt.Errorf("sqlitestore: count: %w", err)
	}
	now := s.clock.tell()
	if started.Valid {
		n.OldestRunning = max(0, now.Sub(started.V))
	}
	if expires.Valid {
		n.SweepLag = max(0, now.Sub(expires.V))
	}
	return n, nil
}
