package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

// Outbox is an [outbox.Store] in the database of a [Store]. It is safe for concurrent use. Relays in several processes
// of one machine may work on one file.
type Outbox struct {
	store *Store
	o     outbox.Options
}

var _ outbox.Store = (*Outbox)(nil)

// OpenOutbox returns the outbox of a store, which works as long as the store is open. It needs no end of its own.
func OpenOutbox(s *Store, o outbox.Options) (*Outbox, error) {
	if s == nil {
		return nil, errors.New("open sqlitestore's outbox: there is no store")
	}
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("open sqlitestore's outbox: %w", err)
	}
	return &Outbox{s, o}, nil
}

const (
	// tellTime moves the clock in the database on, so that no process adds, or leases, at an earlier time.
	tellTime      = "UPDATE semel_meta SET clock = max(clock, ?) RETURNING clock"
	insertMessage = `INSERT INTO semel_outbox (id, topic, tenant, key, payload, headers, sealed, state, open, head, attempts, error, since, due)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, 1,
	NOT EXISTS (SELECT 1 FROM semel_outbox WHERE open = 1 AND key <> '' AND topic = ?2 AND tenant = ?3 AND key = ?4),
	0, '', ?8, ?8) ON CONFLICT (id) DO NOTHING`
)

// Add adds messages in a transaction of the store's database, in their order: they are sent if it commits. It is the
// one that [Store.Tx] gives to its function, or the application's own. The database has one writer at a time, so from
// here to the end of the transaction no other one can write.
//
// After [Store.Tx] has committed, relays of this process look at once. After an application's own transaction they look
// within half a second, or at once if it calls [Outbox.Wake].
//
// An error wraps [outbox.ErrInvalid], [outbox.ErrDuplicate], or [outbox.ErrNoTx] for a transaction that is nil or has
// ended. After an error some of the messages may be in the transaction: roll it back.
func (b *Outbox) Add(ctx context.Context, tx *sql.Tx, messages ...outbox.Message) error {
	if tx == nil {
		return fmt.Errorf("sqlitestore: add to the outbox: %w", outbox.ErrNoTx)
	}
	rows := make([]outbox.Row, len(messages))
	for i, m := range messages {
		var err error
		if rows[i], err = b.o.Row(m); err != nil {
			return fmt.Errorf("sqlitestore: add to the outbox: %w", err)
		}
	}
	var now driver.Time
	err := tx.QueryRowContext(ctx, tellTime, int64(b.store.clock.tell())).Scan(&now)
	for i := range rows {
		if err == nil {
			err = add(ctx, tx, &rows[i], now)
		}
	}
	if errors.Is(err, sql.ErrTxDone) {
		err = fmt.Errorf("%w: %w", outbox.ErrNoTx, err)
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: add to the outbox: %w", interpretError(err))
	}
	return nil
}

func add(ctx context.Context, tx *sql.Tx, r *outbox.Row, now driver.Time) error {
	result, err := tx.ExecContext(ctx, insertMessage, r.ID, r.Topic, r.Tenant, r.Key, r.Payload, r.Headers, r.Sealed, int64(now.Add(r.Delay)))
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fmt.Errorf("%w: %s", outbox.ErrDuplicate, r.ID))
	}
	return nil
}

// Wake lets the relays of this process look at once.
func (b *Outbox) Wake() { b.store.messages.Ring() }

// Changed implements [outbox.Store].
func (b *Outbox) Changed() <-chan struct{} { return b.store.messages.Next() }

// messageColumns are what a message is read from.
const messageColumns = "seq, id, topic, tenant, key, payload, headers, sealed, state, open, attempts, error, since, due, token IS NOT NULL, ended"

// A messageRow is a message as it is stored.
type messageRow struct {
	outbox.Row
	seq        int64
	state      outbox.State
	open       bool
	attempts   int
	error      string
	since, due driver.Time
	leased     bool
	ended      sql.NullInt64
}

func scanMessage(rows *sql.Rows) (r messageRow, err error) {
	err = rows.Scan(&r.seq, &r.ID, &r.Topic, &r.Tenant, &r.Key, &r.Payload, &r.Headers, &r.Sealed, &r.state, &r.open,
		&r.attempts, &r.error, &r.since, &r.due, &r.leased, &r.ended)
	r.leased = r.leased && r.state == outbox.Pending
	return r, err
}

// entry returns the message as it is at a time.
func (b *Outbox) entry(r *messageRow, now driver.Time) outbox.Entry {
	e := outbox.Entry{
		State: r.state, Attempts: r.attempts, Error: r.error, Since: r.since.Time(), Leased: r.leased && r.due > now,
		Holds: r.open && r.state == outbox.Dead,
	}
	if r.state == outbox.Pending && !e.Leased && r.due > now {
		e.Due = r.due.Time()
	}
	if r.ended.Valid {
		e.Ended = driver.Time(r.ended.Int64).Time()
	}
	e.Message, e.Err = b.o.Message(r.Row)
	return e
}
