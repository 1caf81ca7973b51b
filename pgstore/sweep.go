package pgstore

import (
	"context"
	"fmt"
	"time"
)

const (
	// sweepChunk is how many records one statement deletes, so that it holds its locks for a short time.
	sweepChunk = 500
	// daysAhead is for how many days after today partitions are made by default.
	daysAhead = 8
	// partitionEvery is how often that is seen to.
	partitionEvery = time.Hour
)

// Sweep implements [driver.Store]. It deletes those that are due first, in small transactions, and passes over records
// that somebody else is changing.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	s.partition(ctx)
	total := 0
	for total < limit {
		chunk := min(sweepChunk, limit-total)
		n := 0
		c := (&call{sql: s.sql.sweep}).int4(int32(chunk))
		err := s.do(ctx, c, func(row [][]byte) error { n = int(int4Of(row[0])); return nil })
		if err != nil {
			return total, fmt.Errorf("pgstore: sweep: %w", err)
		}
		if total += n; n < chunk {
			break
		}
	}
	if err := ctx.Err(); err != nil && total == 0 {
		return 0, fmt.Errorf("pgstore: sweep: %w", err)
	}
	return total, nil
}

// partition makes the partitions that answers will go into, and drops those that are over, now and then. Without them
// answers go into the default one, where they are deleted one by one.
func (s *Store) partition(ctx context.Context) {
	last, now := s.parted.Load(), time.Now().Unix()
	if !s.apart || now-last < int64(partitionEvery/time.Second) || !s.parted.CompareAndSwap(last, now) {
		return
	}
	if err := s.do(ctx, (&call{sql: s.sql.partition}).int4(s.o.ahead), nil); err != nil {
		s.log.Warn("partitions for answers could not be made or dropped", "schema", s.schema, "error", err)
	}
}
