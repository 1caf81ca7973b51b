package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
)

// Options bounds a [Store]. The zero value is valid.
type Options struct {
	// MaxRecords is the number of records kept at once, 1 or more. A record takes about 350 bytes besides its texts and
	// its answer. Defaults to 1 000 000.
	MaxRecords int

	// MaxBytes limits the sum of what records hold beyond their fixed size: answers, steps, sealed requests, names,
	// correlation ids and error texts, 1 or more. Only a new record, a step and an answer are ever refused because of it.
	// Defaults to 256 MiB.
	MaxBytes int64

	// PrincipalShare is the largest part of MaxRecords, and of MaxBytes, that one principal's records may take; above 0,
	// at most 1. Beyond it a record is refused with [driver.ErrShareFull]. If a store has only one principal, as under
	// semel.SingleTenant, it can be 1: the store itself can't know whether other principals will come. Defaults to 0.5.
	PrincipalShare float64

	// Clock tells the time and never goes back. It is called concurrently, under a lock: it must not use the store.
	// Defaults to the machine's clock at the time of Open, moved on by the monotonic clock. So setting the machine's clock
	// ends no lease and no retention early.
	Clock func() time.Time
}

const (
	defaultMaxRecords = 1_000_000
	defaultMaxBytes   = 256 << 20
	defaultShare      = 0.5

	// shardCount is a power of two, far above the number of cores, so that verbs seldom wait for each other.
	shardCount = 64

	// reclaimPerClaim is how many expired records of its shard a claim may remove when it adds a record. It is more than
	// one, so that a backlog shrinks.
	reclaimPerClaim = 4

	// reclaimPerShard is how many expired records are removed from one shard before the store says that it is full.
	// sweepBatch is how many are removed while Sweep holds a shard's lock.
	reclaimPerShard = 16
	sweepBatch      = 64
)

// Store is a bounded [driver.Store] in memory. It is also a [driver.StepStore], a [driver.Seizer], a [driver.Lister]
// and a [driver.Counter]. It is safe for concurrent use.
type Store struct {
	maxRecords int64
	maxBytes   int64
	clock      func() time.Time

	shareBytes int64 // of one principal

	records atomic.Int64
	bytes   atomic.Int64
	usages  usages
	turn    atomic.Uint32 // the shard at which the next pass over all of them begins

	shards [shardCount]shard
}

var (
	_ driver.StepStore = (*Store)(nil)
	_ driver.Seizer    = (*Store)(nil)
	_ driver.Lister    = (*Store)(nil)
	_ driver.Counter   = (*Store)(nil)
)

// New returns an empty store with the default bounds.
func New() *Store { return newStore(Options{}) }

// Open returns an empty store with the given bounds, or an error that names the option that is out of range.
func Open(o Options) (*Store, error) {
	if o.MaxRecords < 0 {
		return nil, fmt.Errorf("open memstore: MaxRecords is %d, must be 1 or more", o.MaxRecords)
	}
	if o.MaxBytes < 0 {
		return nil, fmt.Errorf("open memstore: MaxBytes is %d, must be 1 or more", o.MaxBytes)
	}
	if !(o.PrincipalShare >= 0 && o.PrincipalShare <= 1) {
		return nil, fmt.Errorf("open memstore: PrincipalShare is %v, must be above 0 and at most 1", o.PrincipalShare)
	}
	return newStore(o), nil
}

func newStore(o Options) *Store {
	s := &Store{maxRecords: int64(o.MaxRecords), maxBytes: o.MaxBytes, clock: o.Clock}
	if s.maxRecords == 0 {
		s.maxRecords = defaultMaxRecords
	}
	if s.maxBytes == 0 {
		s.maxBytes = defaultMaxBytes
	}
	share := o.PrincipalShare
	if share == 0 {
		share = defaultShare
	}
	s.usages.of, s.usages.limit = map[driver.ScopeID]*usage{}, max(1, int64(share*float64(s.maxRecords)))
	s.shareBytes = max(1, int64(share*float64(s.maxBytes)))
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Time { return start.Add(time.Since(start)) }
	}
	for i := range s.shards {
		s.shards[i].index = make(map[uint64]*entry)
	}
	return s
}

// Len returns the number of records. Expired records that have not been removed count too.
func (s *Store) Len() int { return int(s.records.Load()) }

// now must be called with a shard's lock held, so that the times of one record never go back.
func (s *Store) now() driver.Time { return driver.TimeOf(s.clock()) }

// Claim implements [driver.Store]. It fails with [driver.ErrFull] for a record that is absent or past its retention, if
// the store or its principal's share has no room for it. Before that it does a bounded search for expired records.
func (s *Store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, false, fmt.Errorf("memstore: claim: %w", err)
	}
	rec, owned, err := s.claim(id, c)
	if errors.Is(err, driver.ErrFull) && s.makeRoom() {
		rec, owned, err = s.claim(id, c)
	}
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("memstore: claim: %w", err)
	}
	return rec, owned, nil
}

func (s *Store) claim(id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.find(id)
	old := e.record(now)
	// An operation that begins may be refused because there is no room; its later runs add nothing.
	begins := old.Reads(c.OnLost) == driver.ReadsAbsent || !old.Fingerprint.Equal(c.Fingerprint)
	if e == nil {
		old.Fence = sh.floor
	}
	rec, owned := old.Claim(now, c)
	if !owned {
		return rec, false, nil
	}
	grown := e.growth(&old, &rec)
	if e != nil {
		if err := s.reserve(e.usage, grown, begins); err != nil {
			return driver.Record{}, false, err
		}
	} else {
		s.expire(sh, now, reclaimPerClaim)
		u, err := s.enter(&id, grown)
		if err != nil {
			return driver.Record{}, false, err
		}
		e = sh.insert(id)
		e.usage = u
	}
	rec.Sealed = bytes.Clone(rec.Sealed) // the claim's bytes belong to the caller
	sh.write(e, &rec)
	return rec, true, nil
}

// Extend implements [driver.Store].
func (s *Store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("memstore: extend: %w", err)
	}
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.find(id)
	rec, owned := e.record(now).Extend(now, by, x)
	if owned {
		sh.write(e, &rec)
	}
	return owned, nil
}

// Settle implements [driver.Store]. It fails with [driver.ErrFull] and changes nothing if there is no room for the
// answer; an outcome without an answer always fits.
func (s *Store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, false, fmt.Errorf("memstore: settle: %w", err)
	}
	rec, owned, err := s.settle(id, by, o)
	if errors.Is(err, driver.ErrFull) && s.makeRoom() {
		rec, owned, err = s.settle(id, by, o)
	}
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("memstore: settle: %w", err)
	}
	return rec, owned, nil
}

func (s *Store) settle(id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	e := sh.find(id)
	old := e.record(now)
	rec, owned := old.Settle(now, by, o)
	if !owned {
		return rec, false, nil
	}
	if err := s.reserve(e.usage, e.growth(&old, &rec), rec.Response != nil); err != nil {
		return driver.Record{}, false, err
	}
	sh.write(e, &rec)
	return rec, true, nil
}

// Load implements [driver.Store].
func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, fmt.Errorf("memstore: load: %w", err)
	}
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.find(id).record(s.now()), nil
}
