package shardstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

type shard struct {
	name    string
	seed    uint64
	store   driver.Store // nil of one that is opened later
	late    lateStore
	breaker driver.Breaker // nil if there is none
	fails   atomic.Bool    // the last claim or look got no reply
}

// opened returns the shard's store, unless it is not open yet.
func (h *shard) opened() (driver.Store, error) {
	if h.store != nil {
		return h.store, nil
	}
	return h.late.get()
}

// call makes a request that nothing refuses: it ends a run, or costs no client his time.
func (h *shard) call(f func(driver.Store) error) error {
	s, err := h.opened()
	if err == nil {
		err = f(s)
	}
	if err != nil {
		return fmt.Errorf("shard %q: %w", h.name, err)
	}
	return nil
}

var errThrown = errors.New("the store has panicked")

// ask makes a request that the breaker may refuse.
func (h *shard) ask(ctx context.Context, f func(driver.Store) error) error {
	done := func(error) {}
	if h.breaker != nil {
		allowed, err := h.breaker.Allow()
		if err != nil {
			return fmt.Errorf("shard %q: %w: %w", h.name, driver.ErrNotExecuted, err)
		}
		done = allowed
	}
	reply := errThrown
	defer func() {
		if reply != nil && errors.Is(ctx.Err(), context.Canceled) {
			done(context.Canceled) // the caller has left, which says nothing about the shard
			return
		}
		h.fails.Store(reply != nil && !errors.Is(reply, driver.ErrFull) && !errors.Is(reply, driver.ErrUnreadable))
		done(reply)
	}()
	s, err := h.opened()
	if err == nil {
		err = f(s)
	}
	if reply = err; err != nil {
		return fmt.Errorf("shard %q: %w", h.name, err)
	}
	return nil
}

func (h *shard) load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	err = h.ask(ctx, func(s driver.Store) (err error) {
		rec, err = s.Load(ctx, id)
		return err
	})
	return rec, err
}

// claim sends a claim, unless the shard has failed: then a look has to succeed first. A look that gets no reply leaves
// nothing behind, while a claim that gets none has to be released later; so a shard that is down makes no debts.
func (h *shard) claim(ctx context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, err error) {
	err = h.ask(ctx, func(s driver.Store) (err error) {
		if h.fails.Load() {
			if _, err := s.Load(ctx, id); err != nil && !errors.Is(err, driver.ErrUnreadable) {
				return fmt.Errorf("%w: the shard has failed, and does not reply to a look: %w", driver.ErrNotExecuted, err)
			}
		}
		rec, owned, err = s.Claim(ctx, id, c)
		return err
	})
	return rec, owned, err
}

func (h *shard) settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	err = h.call(func(s driver.Store) (err error) {
		rec, owned, err = s.Settle(ctx, id, by, o)
		return err
	})
	return rec, owned, err
}
