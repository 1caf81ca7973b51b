package tieredstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semelhq/semel/driver"
)

// A Dropper drops the copies of a record. What [New] returns is one.
type Dropper interface {
	// Drop deletes the copies of a record in the cache and in this process; those in other processes end within
	// [Memory].Age. It is called after a done record was deleted or changed in the durable store other than by Forget of
	// this store. An error wraps [ErrCopyLeft]; Drop can be repeated.
	Drop(ctx context.Context, id driver.ID) error
}

const (
	dropTries = 3
	// dropTimeout is how long one try may take: nothing else is lost while it waits.
	dropTimeout = time.Second
	dropPause   = 100 * time.Millisecond
)

// Drop implements [Dropper]. It asks the cache whatever the breaker says.
func (s *Store) Drop(ctx context.Context, id driver.ID) error {
	err := s.dropCached(ctx, id)
	// Only now: a copy that was read from the cache before may be on its way into the memory.
	if s.memory != nil {
		s.memory.drop(id)
	}
	return err
}

func (s *Store) dropCached(ctx context.Context, id driver.ID) error {
	if s.cache == nil {
		return nil
	}
	for try := 1; ; try++ {
		one, cancel := context.WithTimeout(ctx, max(dropTimeout, s.windows.life))
		err := s.cache.Forget(one, id)
		cancel()
		if err == nil {
			return nil
		}
		if try == dropTries || !pause(ctx, time.Duration(try)*(dropPause/2+rand.N(dropPause/2))) {
			return fmt.Errorf("tieredstore: drop %s: %w: %w", id, ErrCopyLeft, err)
		}
	}
}

// pause waits for d and reports whether it did; false means that ctx has ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A seizer is the part of a store whose durable store is a [driver.Seizer].
type seizer struct {
	store   *Store
	durable driver.Seizer
}

// Seize implements [driver.Seizer], in the durable store. No layer has a copy of what it changes.
func (z seizer) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	return z.durable.Seize(ctx, id, t)
}

// Forget implements [driver.Seizer]: in the durable store first, then in the layers. An error that wraps [ErrCopyLeft]
// means that the durable store has no such record any more, and the cache perhaps does.
func (z seizer) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	forgotten, err := z.durable.Forget(ctx, id, by)
	if err != nil {
		return forgotten, err
	}
	// Also if it was refused: it may be the repetition of one whose copies were not dropped.
	return forgotten, z.store.Drop(ctx, id)
}
