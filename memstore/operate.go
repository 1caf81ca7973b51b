package memstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// Seize implements [driver.Seizer].
func (s *Store) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, fmt.Errorf("memstore: seize: %w", err)
	}
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	at := sh.find(&id)
	rec, seized := sh.record(at, now).Seize(now, t)
	if seized {
		sh.update(at, &rec)
	}
	return rec, nil
}

// Forget implements [driver.Seizer].
func (s *Store) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("memstore: forget: %w", err)
	}
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	at := sh.find(&id)
	rec := sh.record(at, s.now())
	if !rec.Forgettable(rec.Now, by) {
		return false, nil
	}
	s.remove(sh, at)
	return true, nil
}

// List implements [driver.Lister]. No lock is held while yield runs, so yield may use the store. The cost of a listing
// of what runs, is unknown, or is free with a sealed request, grows only with the number of records that run or wait.
func (s *Store) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	first, last, some := q.Range()
	if !some {
		return nil
	}
	live := q.Reading == driver.ReadsRunning || q.Reading == driver.ReadsUnknown || q.Reading == driver.ReadsFree && q.Sealed
	given := 0
	for i := range s.shards {
		sh := &s.shards[i]
		for _, id := range sh.ids(first, last, live) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("memstore: list: %w", err)
			}
			sh.mu.Lock()
			rec := sh.record(sh.find(&id), s.now())
			sh.mu.Unlock()
			if !q.Matches(id, &rec) {
				continue
			}
			if !yield(id, rec) {
				return nil
			}
			if given++; given == q.Limit {
				return nil
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: list: %w", err)
	}
	return nil
}

// ids returns the ids from first to last: of all entries, or of those that are live.
func (sh *shard) ids(first, last driver.ID, live bool) []driver.ID {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var ids []driver.ID
	add := func(e *entry) {
		if bytes.Compare(first[:], e.id[:]) <= 0 && bytes.Compare(e.id[:], last[:]) <= 0 {
			ids = append(ids, e.id)
		}
	}
	if live {
		for _, at := range sh.live {
			add(sh.entries.At(at))
		}
		return ids
	}
	for _, at := range sh.index {
		for ; at != 0; at = sh.entries.At(at).next {
			add(sh.entries.At(at))
		}
	}
	return ids
}
