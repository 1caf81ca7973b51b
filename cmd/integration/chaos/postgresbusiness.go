package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/history"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/tieredstore"
)

// The table of effects has no constraint that would keep a second one out. Accounts are what payments wait for each
// other at.
const postgresTables = `
BEGIN;
SELECT pg_advisory_xact_lock(1);
CREATE TABLE IF NOT EXISTS public.effects (
	n bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL, key text NOT NULL, request text NOT NULL, front text NOT NULL,
	operation text NOT NULL, attempt integer NOT NULL, fence bigint NOT NULL, began bigint NOT NULL, at bigint NOT NULL);
CREATE TABLE IF NOT EXISTS public.accounts (n integer PRIMARY KEY, payments bigint NOT NULL);
INSERT INTO public.accounts SELECT n, 0 FROM generate_series(1, 4) n ON CONFLICT DO NOTHING;
COMMIT`

const accounts = 4

// postgresBusiness has its tables in the store's database.
type postgresBusiness struct {
	app    *pgxpool.Pool
	in     *pgstore.Store
	layers driver.Store // over in
}

func (a *actor) openPostgresBusiness(ctx context.Context) (business, error) {
	address, err := a.watched(a.Store)
	if err != nil {
		return nil, err
	}
	c, err := poolConfig(address)
	if err != nil {
		return nil, err
	}
	return persist(ctx, func(ctx context.Context) (business, error) {
		app, err := pgxpool.NewWithConfig(ctx, c.Copy())
		if err != nil {
			return nil, err
		}
		b, err := a.openLayers(ctx, app)
		if err != nil {
			go app.Close() // it waits for a server that may not answer
		}
		return b, err
	})
}

// poolConfig reads an address as stores.Open does, for connections of the application.
func poolConfig(address string) (*pgxpool.Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the store: %w", err)
	}
	u.RawQuery = url.Values{"sslmode": {"disable"}, "pool_max_conns": {"8"}}.Encode()
	return pgxpool.ParseConfig(u.String())
}

func (a *actor) openLayers(ctx context.Context, app *pgxpool.Pool) (business, error) {
	if _, err := app.Exec(ctx, postgresTables, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("create tables: %w", err)
	}
	store, err := pgstore.Open(ctx, app, pgstore.Options{Schema: schema, MaxConns: 6, Log: errorLog()})
	if err != nil {
		return nil, err
	}
	b := &postgresBusiness{app: app, in: store, layers: store}
	if a.Cache == "" {
		return b, nil
	}
	client, err := redisclient.Open(a.cacheURL())
	if err != nil {
		go store.Close() //nolint:errcheck // it waits for a server that may not answer
		return nil, err
	}
	b.layers = tieredstore.New(store, tieredstore.Options{
		Cache: redisstore.NewCache(client, redisstore.CacheOptions{}), Memory: tieredstore.Memory{Entries: 1000},
		Breaker: breaker.New(breaker.Options{Name: "cache"}), Clock: func() time.Time { return time.Now().Add(a.Skew) },
	})
	return b, nil
}

// cacheURL returns the cache's address without what only stores.Open knows.
func (a *actor) cacheURL() string {
	u, err := url.Parse(a.Cache)
	if err != nil {
		return a.Cache
	}
	u.RawQuery = ""
	return u.String()
}

func (b *postgresBusiness) store() driver.Store { return b.layers }

func (b *postgresBusiness) tx(ctx context.Context, p payment, fn func(booking) error) error {
	return b.in.TxWith(ctx, pgx.TxOptions{IsoLevel: p.Isolation}, func(ctx context.Context, tx pgx.Tx) error {
		return fn(func(e effect) error {
			for _, n := range p.Accounts {
				if _, err := tx.Exec(ctx, `UPDATE public.accounts SET payments = payments + 1 WHERE n = $1`, n); err != nil {
					return fmt.Errorf("account %d: %w", n, err)
				}
			}
			return book(ctx, tx, e)
		})
	})
}

func (b *postgresBusiness) apart(ctx context.Context, e effect) error { return book(ctx, b.app, e) }

// book writes the effect, in a transaction or without one.
func book(ctx context.Context, in interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, e effect,
) error {
	const insert = `INSERT INTO public.effects (id, key, request, front, operation, attempt, fence, began, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	args := []any{e.ID, e.Key, e.Request, e.Front, e.Operation, e.Attempt, int64(e.Fence), e.Began, e.At}
	if _, err := in.Exec(ctx, insert, args...); err != nil {
		return fmt.Errorf("book the effect: %w", err)
	}
	return nil
}

// readPostgres returns the committed effects, in the order of their writes.
func readPostgres(ctx context.Context, url string) ([]effect, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // it was only read
	const all = `SELECT id, key, request, front, operation, attempt, fence, began, at FROM public.effects ORDER BY n`
	rows, err := conn.Query(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	effects, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e effect, err error) {
		err = row.Scan(&e.ID, &e.Key, &e.Request, &e.Front, &e.Operation, &e.Attempt, &e.Fence, &e.Began, &e.At)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	return effects, nil
}

// balance compares what was paid to the accounts with the effects: a transaction is there with all it did, or not at
// all.
func balance(ctx context.Context, url string, effects []effect) ([]history.Violation, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("read accounts: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // it was only read
	var paid, told int
	if err := conn.QueryRow(ctx, `SELECT sum(payments) FROM public.accounts`).Scan(&paid); err != nil {
		return nil, fmt.Errorf("read accounts: %w", err)
	}
	for _, e := range effects {
		var p payment
		if err := json.Unmarshal([]byte(e.Request), &p); err != nil {
			return nil, fmt.Errorf("read effects: %w", err)
		}
		told += len(p.Accounts)
	}
	if paid == told {
		return nil, nil
	}
	return []history.Violation{{Key: "all", What: fmt.Sprintf("%d payments to accounts, and %d in effects", paid, told)}}, nil
}
