package memstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

// Options bounds a [Store]. The zero value is valid.
type Options struct {
	// MaxRecords is the number of records kept at once, 1 or more. Defaults to 1 000 000.
	MaxRecords int

	// MaxBytes is the memory that records take at once, 1 or more: about 300 bytes each, and their texts, answers, sealed
	// requests and steps. With an answer of 200 bytes that is about 700 bytes a record. Only a new record, a step and an
	// answer are ever refused because of it. Defaults to 256 MiB.
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

	// scratchKept is the largest room for a packed text that a shard keeps for the next one.
	scratchKept = 4 << 10
)

// Store is a bounded [driver.Store] in memory. It is also a [driver.StepStore], a [driver.Seizer], a [driver.Lister]
// and a [driver.Counter]. It is safe for concurrent use.
type Store struct {
	clock func() time.Time
	room  room
	turn  atomic.Uint32 // the shard at which the next pass over all of them begins

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
	s := &Store{clock: o.Clock}
	share := cmp.Or(o.PrincipalShare, defaultShare)
	most := use{int64(cmp.Or(o.MaxRecords, defaultMaxRecords)), cmp.Or(o.MaxBytes, defaultMaxBytes)}
	s.room.most = most
	s.room.share = use{max(1, int64(share*float64(most.records))), max(1, int64(share*float64(most.bytes)))}
	s.room.of = map[driver.ScopeID]use{}
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Time { return start.Add(time.Since(start)) }
	}
	for i := range s.shards {
		s.shards[i].index, s.shards[i].steps = map[uint32]slab.Ref{}, map[slab.Ref]map[string][]byte{}
	}
	return s
}

// Len returns the number of records. Expired records that have not been removed count too.
func (s *Store) Len() int { return int(s.room.records()) }

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
	at := sh.find(&id)
	old := sh.record(at, now)
	// An operation that begins may be refused because there is no room; its later runs add nothing.
	begins := old.Reads(c.OnLost) == driver.ReadsAbsent || !old.Fingerprint.Equal(c.Fingerprint)
	if at == 0 {
		old.Fence = sh.floor
	}
	rec, owned := old.Claim(now, c)
	if !owned {
		return rec, false, nil
	}
	if at == 0 {
		s.expire(sh, now, reclaimPerClaim)
	}
	if err := s.put(sh, &id, at, &rec, begins); err != nil {
		return driver.Record{}, false, err
	}
	rec.Sealed = bytes.Clone(rec.Sealed) // the claim's bytes belong to the caller
	return rec, true, nil
}

// put stores a record in sh, whose lock is held, in its entry, or in a new one if at is 0. With strict, it changes
// nothing and returns an error if there is no room.
func (s *Store) put(sh *shard, id *driver.ID, at slab.Ref, rec *driver.Record, strict bool) error {
	text := pack(sh.scratch[:0], rec)
	if cap(text) <= scratchKept {
		sh.scratch = text
	}
	grown := use{0, weight(len(text)) - sh.weight(at)}
	if rec.Steps {
		grown.bytes += sh.stepsWeight(at)
	}
	if at == 0 {
		grown.records = 1
	}
	if err := s.room.take(id, grown, strict); err != nil {
		return err
	}
	if at == 0 {
		at = sh.insert(id)
	}
	sh.write(at, rec, text)
	return nil
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
	at := sh.find(&id)
	rec, owned := sh.record(at, now).Extend(now, by, x)
	if owned {
		sh.update(at, &rec)
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
	at := sh.find(&id)
	rec, owned := sh.record(at, now).Settle(now, by, o)
	if !owned {
		return rec, false, nil
	}
	if err := s.put(sh, &id, at, &rec, rec.Response != nil); err != nil {
		return driver.Record{}, false, err
	}
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
	return sh.record(sh.find(&id), s.now()), nil
}
