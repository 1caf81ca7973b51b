// Package mapstore is a whole store: a map behind a mutex. It forgets everything with its process, so it is for
// reading. docs/writing-a-store.md goes through it.
package mapstore

import (
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// A Store keeps records in a map. It is safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	records map[driver.ID]driver.Record
}

// New returns an empty store.
func New() *Store { return &Store{records: map[driver.ID]driver.Record{}} }

// Claim implements [driver.Store].
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

// Extend implements [driver.Store].
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

// Settle implements [driver.Store].
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

// Load implements [driver.Store].
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

// Sweep implements [driver.Store].
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
