package memstore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// Count implements [driver.Counter]. Its cost grows only with the number of records that run or are unknown. Bytes is
// 0.
func (s *Store) Count(ctx context.Context) (driver.Counts, error) {
	n := driver.Counts{Records: s.room.records()}
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return driver.Counts{}, fmt.Errorf("memstore: count: %w", err)
		}
		s.shards[i].count(s, &n)
	}
	return n, nil
}

// count adds what a shard holds, except the number of its records.
func (sh *shard) count(s *Store, n *driver.Counts) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	for _, at := range sh.live {
		rec := sh.entries.At(at).record(now)
		if rec.State == driver.Running {
			n.Running++
			n.OldestRunning = max(n.OldestRunning, now.Sub(rec.Started))
		}
		if rec.Reads(rec.OnLost) == driver.ReadsUnknown {
			n.Unknown++
		}
	}
	if len(sh.queue) > 0 {
		n.SweepLag = max(n.SweepLag, now.Sub(sh.queue[0].when))
	}
}
