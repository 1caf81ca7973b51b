package pgstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/driver"
)

// Wake implements [driver.Waker]: it calls settled with each operation that a store on the same schema settles, in any
// process, if both stores have Options.Notify. It returns when ctx ends, or with an error when its connection has
// failed; what was settled until it is called again is then missed. Its connection is one of its own, and must not go
// through a pooler in transaction mode. Without Options.Notify it fails at once, with an error that wraps
// [errors.ErrUnsupported].
func (s *Store) Wake(ctx context.Context, settled func(driver.ID)) error {
	if !s.notify {
		return fmt.Errorf("pgstore: wake: Options.Notify is not set: %w", errors.ErrUnsupported)
	}
	err := s.listenTo(ctx, s.schema, func() {}, func(n *pgconn.Notification) error {
		id, err := notified(n.Payload)
		if err == nil {
			settled(id)
		}
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("pgstore: wake: %w", interpretError(err))
}

// listenTo calls each with every notification of a channel, and ready when none will be missed from then on.
func (s *Store) listenTo(ctx context.Context, channel string, ready func(), each func(*pgconn.Notification) error) error {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is owed on it
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if err := each(n); err != nil {
			return err
		}
	}
}

// notified reads what settle_1 sends.
func notified(payload string) (id driver.ID, err error) {
	b, err := base64.StdEncoding.DecodeString(payload)
	if err == nil && len(b) != len(id) {
		err = errors.New("not the length of an id")
	}
	if err != nil {
		return id, fmt.Errorf("notification %q: %w", payload, err)
	}
	return driver.ID(b), nil
}
