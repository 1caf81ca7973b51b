package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/semelhq/semel/internal/pause"
)

const (
	// sweepTime is how long one statement shall take: claims that come meanwhile wait for the processors, the disk and its
	// locks. It deletes fewer records the longer those before took, within bounds.
	sweepTime  = 5 * time.Millisecond
	sweepLeast = 50
	sweepMost  = 500
	// daysAhead is for how many days after today partitions are made by default.
	daysAhead = 8
	// partitionEvery is how often that is seen to.
	partitionEvery = time.Hour
)

// Sweep implements [driver.Store]. It deletes those that are due first, in small transactions, after each of which it
// rests as long as that took. It passes over records that somebody else is changing.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	s.partition(ctx)
	total, chunk := 0, sweepLeast
	for total < limit {
		most, n, began := min(chunk, limit-total), 0, time.Now()
		c := (&call{sql: s.sql.sweep}).int4(int32(most))
		err := s.do(ctx, c, func(row [][]byte) error { n = int(int4Of(row[0])); return nil })
		if err != nil {
			return total, fmt.Errorf("pgstore: sweep: %w", err)
		}
		took := time.Since(began)
		if total += n; n < most || total < limit && !pause.For(ctx, took) {
			break
		}
		chunk = nextChunk(chunk, took)
	}
	if err := ctx.Err(); err != nil && total == 0 {
		return 0, fmt.Errorf("pgstore: sweep: %w", err)
	}
	return total, nil
}

// nextChunk returns how many records the next statement deletes, when the last took so long for so many.
func nextChunk(chunk int, took time.Duration) int {
	return max(sweepLeast, min(int(int64(chunk)*int64(sweepTime)/int64(max(took, sweepTime/2))), sweepMost))
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
