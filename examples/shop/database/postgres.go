package database

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/pgstore"
)

type postgresBackend struct {
	pool   *pgxpool.Pool
	store  *pgstore.Store
	outbox *pgstore.Outbox
}

func openPostgres(ctx context.Context, address, schema string) (*DB, error) {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	b := &postgresBackend{pool: pool}
	if b.store, err = pgstore.Open(ctx, pool, pgstore.Options{}); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open PostgreSQL: %w", err)
	}
	if b.outbox, err = pgstore.OpenOutbox(ctx, b.store, pgstore.OutboxOptions{}); err == nil {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			// Two that make the same table at once would disturb each other.
			_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7305)")
			if err == nil {
				_, err = tx.Exec(ctx, schema)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL: %w", errors.Join(err, b.Close()))
	}
	return &DB{Queries: postgresQueries{pool}, Store: b.store, Outbox: b.outbox, Postgres: true, backend: b}, nil
}

func (b *postgresBackend) Tx(ctx context.Context, fn func(context.Context, Tx) error) error {
	return b.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, postgresQueries{tx}) })
}

func (b *postgresBackend) Write(ctx context.Context, fn func(Tx) error) error {
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return fn(postgresQueries{tx}) })
	if err == nil {
		b.outbox.Wake()
	}
	return err
}

func (b *postgresBackend) Send(ctx context.Context, tx Tx, messages ...outbox.Message) error {
	return b.outbox.Add(ctx, tx.(postgresQueries).on.(pgx.Tx), messages...)
}

func (b *postgresBackend) Inbox(ctx context.Context, c *consumer.Consumer, m consumer.Message, fn func(context.Context, Tx, consumer.Message) error) consumer.Result {
	return pgstore.Inbox(ctx, c, b.store, m, func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		return fn(ctx, postgresQueries{tx}, m)
	})
}

func (b *postgresBackend) Close() error {
	err := b.store.Close()
	b.pool.Close()
	return err
}

// postgresQueries runs statements on a *pgxpool.Pool or a pgx.Tx.
type postgresQueries struct {
	on interface {
		Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
		QueryRow(ctx context.Context, query string, args ...any) pgx.Row
	}
}

func (q postgresQueries) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := q.on.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (q postgresQueries) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	return q.on.Query(ctx, query, args...)
}

func (q postgresQueries) QueryRow(ctx context.Context, query string, args ...any) interface{ Scan(to ...any) error } {
	return q.on.QueryRow(ctx, query, args...)
}
