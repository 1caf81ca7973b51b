package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/driver"
)

// Inbox is [consumer.Consumer.Handle] with fn in a transaction of s, by the rules of [consumer.Consumer.HandleTx] and
// [Store.Tx]: what fn does in the database, and the mark that the message is handled, commit together or not at all. s
// is the store of the consumer's guard.
func Inbox(ctx context.Context, c *consumer.Consumer, s *Store, m consumer.Message, fn func(context.Context, *sql.Tx, consumer.Message) error) consumer.Result {
	return c.HandleTx(ctx, s, m, func(ctx context.Context, tx driver.Tx, m consumer.Message) error {
		return lend(ctx, tx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx, m) })
	})
}
