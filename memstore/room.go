package memstore

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// enter counts a new record of the given size, and returns the usage of its principal. If there is no room it counts
// nothing.
func (s *Store) enter(id *driver.ID, bytes int64) (*usage, error) {
	u, ok := s.usages.join(id)
	if !ok {
		return nil, driver.ErrShareFull
	}
	if !add(&s.records, 1, s.maxRecords, true) {
		s.usages.leave(u)
		return nil, driver.ErrFull
	}
	if err := s.reserve(u, bytes, true); err != nil {
		s.records.Add(-1)
		s.usages.leave(u)
		return nil, err
	}
	return u, nil
}

// reserve adds bytes to the count; bytes may be negative. With strict, it counts nothing and returns an error if a
// bound would be passed.
func (s *Store) reserve(u *usage, bytes int64, strict bool) error {
	if u != nil && !add(&u.bytes, bytes, s.shareBytes, strict) {
		return driver.ErrShareFull
	}
	if !add(&s.bytes, bytes, s.maxBytes, strict) {
		if u != nil {
			u.bytes.Add(-bytes)
		}
		return driver.ErrFull
	}
	return nil
}

func add(counter *atomic.Int64, n, limit int64, strict bool) bool {
	if n <= 0 || !strict {
		if n != 0 {
			counter.Add(n)
		}
		return true
	}
	for {
		before := counter.Load()
		if before > limit-n {
			return false
		}
		if counter.CompareAndSwap(before, before+n) {
			return true
		}
	}
}

// expire removes at most limit expired records of sh, or their data for replays, and returns how many. The shard's lock
// is held, so nobody claims or owns these records meanwhile.
func (s *Store) expire(sh *shard, now driver.Time, limit int) int {
	n := 0
	for n < limit && len(sh.queue) > 0 && sh.queue[0].at <= now {
		e := sh.queue[0].e
		before := e.record(now)
		if rec, _ := before.Swept(now); rec.State == driver.Absent {
			s.remove(sh, e)
		} else {
			grown := e.growth(&before, &rec)
			sh.write(e, &rec)
			s.reserve(e.usage, grown, false) //nolint:errcheck // without strict it can't fail
		}
		n++
	}
	return n
}

// remove takes a record out of sh, whose lock is held.
func (s *Store) remove(sh *shard, e *entry) {
	rec := e.record(0)
	sh.remove(e)
	s.reserve(e.usage, -weight(&rec)-e.stepsWeight(), false) //nolint:errcheck // without strict it can't fail
	s.records.Add(-1)
	s.usages.leave(e.usage)
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
