package memstore

import (
	"context"
	"fmt"
	"iter"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

// expire removes at most limit expired records of sh, or their data for replays, and returns how many. The shard's lock
// is held, so nobody claims or owns these records meanwhile.
func (s *Store) expire(sh *shard, now driver.Time, limit int) int {
	n := 0
	for n < limit && len(sh.queue) > 0 && sh.queue[0].when <= now {
		at := sh.queue[0].entry
		rec := sh.record(at, now)
		if rec, _ := rec.Swept(now); rec.State == driver.Absent {
			s.remove(sh, at)
		} else {
			s.put(sh, &sh.entries.At(at).id, at, &rec, false) //nolint:errcheck // without strict it can't fail
		}
		n++
	}
	return n
}

// remove takes a record out of sh, whose lock is held.
func (s *Store) remove(sh *shard, at slab.Ref) {
	id := sh.entries.At(at).id
	gone := sh.weight(at)
	sh.remove(at)
	s.room.take(&id, use{-1, -gone}, false) //nolint:errcheck // without strict it can't fail
}

// makeRoom removes some expired records of every shard, and reports whether there were any. No lock is held.
func (s *Store) makeRoom() bool {
	n := 0
	for sh := range s.pass() {
		sh.mu.Lock()
		n += s.expire(sh, s.now(), reclaimPerShard)
		sh.mu.Unlock()
	}
	return n > 0
}

// pass visits every shard once. Passes begin at different shards, so that concurrent passes do not meet at the same
// one.
func (s *Store) pass() iter.Seq[*shard] {
	return func(yield func(*shard) bool) {
		start := s.turn.Add(1)
		for i := range uint32(shardCount) {
			if !yield(&s.shards[(start+i)%shardCount]) {
				return
			}
		}
	}
}

// Sweep implements [driver.Store]. It visits the shards one after the other and never holds more than one lock. If ctx
// ends meanwhile, it still returns how many records it has removed.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	n := 0
	for sh := range s.pass() {
		for more := true; more && n < limit; {
			if err := ctx.Err(); err != nil {
				return n, fmt.Errorf("memstore: sweep: %w", err)
			}
			batch := min(limit-n, sweepBatch)
			sh.mu.Lock()
			removed := s.expire(sh, s.now(), batch)
			sh.mu.Unlock()
			n += removed
			more = removed == batch
		}
	}
	return n, nil
}
