package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/outbox"
)

// OutboxOptions are an outbox's settings. The zero value is valid.
type OutboxOptions struct {
	outbox.Options

	// Notify tells the relays of other processes of each message at once, by NOTIFY, instead of leaving that to their
	// polling, which takes up to half a second. It makes commits wait for each other. See [Outbox.Listen].
	Notify bool
}

// An Outbox keeps messages in the schema of a [Store], to be sent when the transactions that add them are committed. It
// is an [outbox.Store] for relays and operators. It is safe for concurrent use. Any number of outboxes, in any number of
// processes, may be open on one schema; they share its messages.
type Outbox struct {
	store *Store
	o     OutboxOptions
}

var _ outbox.Listener = (*Outbox)(nil)

// OpenOutbox returns the outbox in the schema of a store, which has to stay open. It needs no closing.
func OpenOutbox(ctx context.Context, s *Store, o OutboxOptions) (*Outbox, error) {
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("pgstore: open outbox: %w", err)
	}
	b := &Outbox{store: s, o: o}
	if err := b.Settle(ctx, [16]byte{}, nil); err != nil { // a schema that was made before there was an outbox has no such function
		return nil, fmt.Errorf("pgstore: open outbox: %w", err)
	}
	return b, nil
}

// Add adds messages in a transaction, of the same database: they are sent if and when it commits. The transaction may be
// that of [Store.Tx], which wakes the relays of this process when it has committed; after any other one call
// [Outbox.Wake], or leave it to their polling.
//
// An error wraps [outbox.ErrInvalid], [outbox.ErrDuplicate] or [outbox.ErrNoTx], or is the database's. After one of the
// database's, ErrDuplicate included, PostgreSQL refuses to commit the transaction.
func (b *Outbox) Add(ctx context.Context, tx pgx.Tx, messages ...outbox.Message) error {
	if tx == nil {
		return fmt.Errorf("pgstore: add: %w", outbox.ErrNoTx)
	}
	batch := &pgx.Batch{}
	err := b.each(messages, func(args []any) error {
		batch.Queue(b.store.sql.outboxAdd, args...)
		return nil
	})
	if err == nil && len(messages) > 0 {
		err = tx.SendBatch(ctx, batch).Close()
	}
	if err != nil {
		return fmt.Errorf("pgstore: add: %w", addError(err))
	}
	if l, ok := tx.(*lent); ok {
		l.t.rings = true
	}
	return nil
}

// AddSQL is [Outbox.Add] for a transaction of database/sql, whose driver may be any for PostgreSQL.
func (b *Outbox) AddSQL(ctx context.Context, tx *sql.Tx, messages ...outbox.Message) error {
	if tx == nil {
		return fmt.Errorf("pgstore: add: %w", outbox.ErrNoTx)
	}
	err := b.each(messages, func(args []any) error {
		_, err := tx.ExecContext(ctx, b.store.sql.outboxAdd, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("pgstore: add: %w", addError(err))
	}
	return nil
}

// each checks all messages, and then calls add with the arguments of each.
func (b *Outbox) each(messages []outbox.Message, add func(args []any) error) error {
	rows := make([]outbox.Row, len(messages))
	for i, m := range messages {
		var err error
		if rows[i], err = b.o.Row(m); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if err := add([]any{r.ID, r.Topic, r.Key, r.Tenant, r.Headers, r.Payload, r.Sealed, int64(r.Delay), b.o.Notify}); err != nil {
			return err
		}
	}
	return nil
}

// addError gives an error of an insert its kind.
func addError(err error) error {
	var pg interface{ SQLState() string } // of any driver
	switch {
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: %w", outbox.ErrNoTx, err)
	case errors.As(err, &pg) && pg.SQLState() == "23505":
		return fmt.Errorf("%w: %w", outbox.ErrDuplicate, err)
	}
	return noRoom(interpretError(err))
}

// Wake tells the relays of this process that there are messages. It is for transactions other than those of [Store.Tx],
// after their commit.
func (b *Outbox) Wake() { b.store.bell.Ring() }

// Changed implements [outbox.Store].
func (b *Outbox) Changed() <-chan struct{} { return b.store.bell.Next() }

// Listen implements [outbox.Listener], by LISTEN. Relays call it. Its connection is one of its own, and must not go
// through a pooler in transaction mode. Without OutboxOptions.Notify it fails at once, with an error that wraps
// [errors.ErrUnsupported].
func (b *Outbox) Listen(ctx context.Context) error {
	if !b.o.Notify {
		return fmt.Errorf("pgstore: listen: OutboxOptions.Notify is not set: %w", errors.ErrUnsupported)
	}
	err := b.store.listenTo(ctx, outboxChannel(b.store.schema), b.Wake, func(*pgconn.Notification) error {
		b.Wake()
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("pgstore: listen: %w", interpretError(err))
}

// outboxChannel is the channel of notifications for a schema. A name of a channel has at most 63 bytes, as that of a
// schema.
func outboxChannel(schema string) string {
	h := fnv.New64a()
	h.Write([]byte(schema))
	return fmt.Sprintf("semel_outbox_%016x", h.Sum64())
}
