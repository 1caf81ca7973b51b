package pgstore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// countRecords reads only the indexes of those that run or are unknown, up to a bound, or are to be swept, and what the
// server has estimated of the table. Before its first estimate that is -1: a new table, which is counted.
const countRecords = `SELECT {schema}.clock_1(),
	(SELECT CASE WHEN c.reltuples < 0 THEN (SELECT count(*) FROM {schema}.records) ELSE c.reltuples::bigint END
		FROM pg_class c WHERE c.oid = '{schema}.records'::regclass),
	live.running, live.unknown, live.oldest,
	least((SELECT min(r.expires) FROM {schema}.records r WHERE r.expires IS NOT NULL),
		(SELECT min({schema}.lost_1(r.begun, r.lease_end, r.retention, r.tombstone, r.sealed IS NOT NULL OR r.steps))
			FROM {schema}.records r WHERE r.state = 1 AND (r.on_lost = 1 OR r.begun))),
	pg_total_relation_size('{schema}.records') + pg_total_relation_size('{schema}.steps')
		+ (SELECT coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)::bigint FROM pg_inherits i WHERE i.inhparent = '{schema}.answers'::regclass)
	FROM (SELECT count(*) FILTER (WHERE l.state = 1) AS running,
			count(*) FILTER (WHERE l.state = 4 OR l.on_lost = 0 AND NOT l.begun AND l.lease_end <= (SELECT {schema}.clock_1())) AS unknown,
			min(l.started) FILTER (WHERE l.state = 1) AS oldest
		FROM (SELECT r.state, r.started, r.lease_end, r.on_lost, r.begun FROM {schema}.records r
			WHERE r.state IN (1, 4) ORDER BY r.started LIMIT 100000) l) live`

// Count implements [driver.Counter]. Its cost grows only with the number of records that run or are unknown. Records is
// what the server's statistics say, of the last time that the table was vacuumed or analysed.
func (s *Store) Count(ctx context.Context) (driver.Counts, error) {
	var n driver.Counts
	err := s.do(ctx, &call{sql: s.sql.count}, func(row [][]byte) error {
		now := driver.Time(int8Of(row[0]))
		n = driver.Counts{Records: int8Of(row[1]), Running: int8Of(row[2]), Unknown: int8Of(row[3]), Bytes: int8Of(row[6])}
		if row[4] != nil {
			n.OldestRunning = max(0, now.Sub(driver.Time(int8Of(row[4]))))
		}
		if row[5] != nil {
			n.SweepLag = max(0, now.Sub(driver.Time(int8Of(row[5]))))
		}
		return nil
	})
	if err != nil {
		return driver.Counts{}, fmt.Errorf("pgstore: count: %w", err)
	}
	return n, nil
}
