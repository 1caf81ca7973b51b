package docs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/storetest"
)

// Store is the whole store that docs/writing-a-store.md quotes from.
type Store struct {
	mu      sync.Mutex
	records map[driver.ID]driver.Record
}

func (s *Store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, owned := s.records[id].Claim(driver.TimeOf(time.Now()), c)
	if owned {
		s.records[id] = rec
	}
	return rec, owned, nil
}

func (s *Store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, owned := s.records[id].Extend(driver.TimeOf(time.Now()), by, x)
	if owned {
		s.records[id] = rec
	}
	return owned, nil
}

func (s *Store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, owned := s.records[id].Settle(driver.TimeOf(time.Now()), by, o)
	if owned {
		s.records[id] = rec
	}
	return rec, owned, nil
}

func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[id]
	rec.Now = driver.TimeOf(time.Now())
	return rec, nil
}

func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, swept := driver.TimeOf(time.Now()), 0
	for id, rec := range s.records {
		rec, changed := rec.Swept(now)
		if !changed || swept == limit {
			continue
		}
		s.records[id] = rec // a tombstone, or absent
		swept++
	}
	return swept, nil
}

func newStorage(*testing.T) storetest.Storage {
	s := &Store{records: map[driver.ID]driver.Record{}}
	return storetest.Storage{Open: func(*testing.T) driver.Store { return s }}
}

func TestStore(t *testing.T) {
	storetest.Run(t, newStorage)
}
