package redisstore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// Wake implements [driver.Waker]. Without [Options.Notify] it only waits for ctx.
func (s *Store) Wake(ctx context.Context, settled func(driver.ID)) error {
	if s.channel == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	err := s.client.(Subscriber).Subscribe(ctx, s.channel, func(message string) {
		var id driver.ID
		if copy(id[:], message) == len(id) && len(message) == len(id) {
			settled(id)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("redisstore: wake: %w", interpretError(err))
}
