package shardstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// A Changer tells how far a change of the shards has come. What [New] returns is one.
type Changer interface {
	// Remaining counts the operations in their old shards, which have to expire there before the change can end. It reads
	// all records of those shards, which must be [driver.Lister]s, and stops at limit if limit is above 0. Without a change
	// it returns 0.
	Remaining(ctx context.Context, limit int) (n int, err error)
}

// Remaining implements [Changer].
func (s *store) Remaining(ctx context.Context, limit int) (n int, err error) {
	for _, h := range s.before {
		err := h.call(func(of driver.Store) error {
			l, ok := of.(driver.Lister)
			if !ok {
				return fmt.Errorf("list: %w", errors.ErrUnsupported)
			}
			return l.List(ctx, driver.Query{}, func(id driver.ID, rec driver.Record) bool {
				if !id.Reserved() && weight(&rec) > nothing && s.before.of(&id) == h && s.after.of(&id) != h {
					n++
				}
				return n != limit || limit == 0
			})
		})
		if err != nil || n == limit && limit > 0 {
			return n, err
		}
	}
	return n, nil
}
