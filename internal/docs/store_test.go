package docs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/storetest"
)

// Store is the whole store that docs/writing-a-store.md quotes from.
type Store struct {
	mu      sync.Mutex
	records map[semel.ID]semel.Record
}

func (s *Store) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return semel.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, owned := s.records[id].Claim(semel.TimeOf(time.Now()), c)
	if owned {
		s.records[id] = rec
	}
	return rec, owned, nil
}

func (s *Store) Extend(ctx context.Context, id semel.ID, by semel.Owner, x semel.Extension) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, owned := s.records[id].Extend(semel.TimeOf(time.Now()), by, x)
	if owned {
		s.records[id] = rec
	}
	return owned, nil
}

func (s *Store) Settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (semel.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return semel.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, owned := s.records[id].Settle(semel.TimeOf(time.Now()), by, o)
	if owned {
		s.records[id] = rec
	}
	return rec, owned, nil
}

func (s *Store) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	if err := ctx.Err(); err != nil {
		return semel.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[id]
	rec.Now = semel.TimeOf(time.Now())
	return rec, nil
}

func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, swept := semel.TimeOf(time.Now()), 0
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
	s := &Store{records: map[semel.ID]semel.Record{}}
	return storetest.Storage{Open: func(*testing.T) semel.Store { return s }}
}

func TestStore(t *testing.T) {
	storetest.Run(t, newStorage)
}
