package tieredstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/semelhq/semel/driver"
)

// A Cache is a fast layer that several processes share. It holds copies of records that are done, by id. It may lose
// any of them at any time. Methods are called concurrently, and return soon after ctx ends.
type Cache interface {
	// Get returns the copy, or, if there is none, a record whose State is Absent and a ticket for the Fill that may
	// follow; 0 is none.
	Get(ctx context.Context, id driver.ID) (rec driver.Record, ticket uint64, err error)

	// Fill keeps a copy of rec, which was read from the durable store after the ticket was given, for less than what is
	// left of its retention at rec.Now. It keeps none, and returns nil, if the id was forgotten since the ticket was
	// given, or if it can't tell.
	Fill(ctx context.Context, id driver.ID, rec driver.Record, ticket uint64) error

	// Forget deletes the copy, and has every Fill refused whose ticket was given before. nil acknowledges.
	Forget(ctx context.Context, id driver.ID) error
}

// Options are a store's settings. The zero value is valid, and adds nothing to the durable store.
type Options struct {
	// Cache is the layer that processes share. Defaults to none.
	Cache Cache
	// CacheTimeout is how long one call of the cache may take before it counts as failed; up to a quarter of it more is
	// given. A caller who leaves waits no longer than that. Defaults to 50 ms.
	CacheTimeout time.Duration
	// Breaker is asked before each Get and Fill, so that a cache that is dead does not cost its timeout for each request.
	// It is told context.Canceled of a caller who left meanwhile. Defaults to none.
	Breaker driver.Breaker

	// Memory is the layer in this process.
	Memory Memory

	// Log is told of a cache that fails, once in 10 seconds at most. Defaults to nobody.
	Log *slog.Logger

	// Clock tells the machine's time. It is called concurrently. Defaults to time.Now.
	Clock func() time.Time
}

// DefaultCacheTimeout is the default of [Options].CacheTimeout.
const DefaultCacheTimeout = 50 * time.Millisecond

// Store is a [driver.Store] of layers, as [New] makes it. It is safe for concurrent use.
type Store struct {
	durable driver.Store
	cache   Cache
	windows windows
	breaker driver.Breaker
	memory  *memory // nil if there is none
	clock   clock
	health  health
}

// New returns the durable store behind the layers. Nothing is started.
//
// The store is a [Dropper] and a [driver.Waker]. It is also a [driver.Transactor] if the durable store is one, and a
// [driver.Seizer], [driver.Scanner], [driver.StepStore], [driver.Auditor] and [driver.Counter] as far as the durable
// store is: each only with those before it. Handlers call the durable store's own methods for transactions, as they do
// without layers; in one-commit mode the durable store answers repeats too.
func New(durable driver.Store, o Options) driver.Store {
	if o.CacheTimeout <= 0 {
		o.CacheTimeout = DefaultCacheTimeout
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	s := &Store{
		durable: durable, cache: o.Cache, windows: windows{life: o.CacheTimeout}, breaker: o.Breaker, memory: newMemory(o.Memory),
		clock: clock{tell: o.Clock}, health: health{log: o.Log},
	}
	return s.capable()
}

// Claim implements [driver.Store]. A copy of a done record refuses it; anything else is the durable store's.
func (s *Store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, false, err
	}
	rec, refused, l := s.refusal(ctx, id, c)
	if refused {
		return rec, false, nil
	}
	rec, owned, err := s.claimDurably(ctx, id, c)
	if err == nil && !owned {
		s.fill(ctx, id, &rec, l)
	}
	return rec, owned, err
}

func (s *Store) claimDurably(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	sent := s.clock.tell()
	rec, owned, err := s.durable.Claim(ctx, id, c)
	if err == nil {
		s.clock.learn(sent, rec.Now)
	}
	return rec, owned, err
}

// Load implements [driver.Store]. A copy of a done record is returned as the record; anything else is read from the
// durable store.
func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return driver.Record{}, err
	}
	rec, found, l := s.look(ctx, id)
	if found {
		return rec, nil
	}
	sent := s.clock.tell()
	rec, err := s.durable.Load(ctx, id)
	if err != nil {
		return rec, err
	}
	s.clock.learn(sent, rec.Now)
	s.fill(ctx, id, &rec, l)
	return rec, nil
}

// Extend implements [driver.Store], in the durable store.
func (s *Store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	return s.durable.Extend(ctx, id, by, x)
}

// Settle implements [driver.Store], in the durable store.
func (s *Store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	sent := s.clock.tell()
	rec, owned, err := s.durable.Settle(ctx, id, by, o)
	if err == nil {
		s.clock.learn(sent, rec.Now)
	}
	return rec, owned, err
}

// Sweep implements [driver.Store], in the durable store: copies end before what it deletes.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	return s.durable.Sweep(ctx, limit)
}

// Wake implements [driver.Waker], by the durable store. If that is none it returns an error that wraps
// [errors.ErrUnsupported].
func (s *Store) Wake(ctx context.Context, settled func(driver.ID)) error {
	if w, ok := s.durable.(driver.Waker); ok {
		return w.Wake(ctx, settled)
	}
	return fmt.Errorf("tieredstore: wake: the durable store: %w", errors.ErrUnsupported)
}
