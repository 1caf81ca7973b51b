package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/tieredstore"
)

const postgresCallers = 64

// A postgresServer is a durable server of its own, with a pool that has a connection for each caller.
type postgresServer struct {
	*servers.Postgres
	pool *pgxpool.Pool
}

func newPostgresServer(ctx context.Context) (*postgresServer, error) {
	server, err := servers.NewPostgres(servers.PostgresOptions{Durable: true, Settings: map[string]string{
		"max_connections": "200", "shared_buffers": "512MB", "checkpoint_timeout": "30min", "max_wal_size": "16GB", // no checkpoint falls into one round only
	}})
	if err != nil {
		return nil, err
	}
	p := &postgresServer{Postgres: server}
	if p.pool, err = p.connect(ctx, pgx.QueryExecModeCacheStatement); err == nil {
		_, err = p.pool.Exec(ctx, "CREATE TABLE payments (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account bigint NOT NULL, request bytea NOT NULL)")
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("set up PostgreSQL: %w", err)
	}
	return p, nil
}

// newPostgresStore is newPostgresServer with a store in the server's database.
func newPostgresStore(ctx context.Context) (*postgresServer, *pgstore.Store, error) {
	p, err := newPostgresServer(ctx)
	if err != nil {
		return nil, nil, err
	}
	store, err := pgstore.Open(ctx, p.pool, pgstore.Options{})
	if err != nil {
		p.close()
		return nil, nil, err
	}
	return p, store, nil
}

func (p *postgresServer) connect(ctx context.Context, mode pgx.QueryExecMode) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(p.URL())
	if err != nil {
		return nil, err
	}
	c.MaxConns = postgresCallers
	c.ConnConfig.DefaultQueryExecMode = mode
	return pgxpool.NewWithConfig(ctx, c)
}

func (p *postgresServer) close() {
	if p.pool != nil {
		p.pool.Close()
	}
	p.Close() //nolint:errcheck // its files are temporary
}

// insert is the business of all handlers.
func insert(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, insertPayment, int64(17), body200)
	return err
}

const insertPayment = "INSERT INTO payments (account, request) VALUES ($1, $2)"

// payAlone is the effect's transaction, and nothing else.
func (p *postgresServer) payAlone(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return insert(ctx, tx) })
}

// paying is the work of callers that do nothing else.
func (p *postgresServer) paying(ctx context.Context, limit int) work {
	return func(n int) {
		callers(limit, n, func(int) {
			if err := p.payAlone(ctx); err != nil {
				panic(fmt.Sprint("pay alone: ", err))
			}
		})
	}
}

// A transact runs a function in a transaction.
type transact func(ctx context.Context, fn func(context.Context, pgx.Tx) error) error

// payIn is the handler: it inserts and answers in one transaction.
func payIn(in transact) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // in memory
		err := in(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
			if err := insert(ctx, tx); err != nil {
				return err
			}
			w.Header()["Content-Type"] = []string{"application/json"}
			w.WriteHeader(http.StatusCreated)
			_, err := w.Write(answer200)
			return err
		})
		if err != nil {
			panic(fmt.Sprint("pay: ", err))
		}
	})
}

// guardedPayments returns work that sends requests to the handler, behind a guard of the store, with new keys that
// begin with the prefix.
func guardedPayments(prefix string, s driver.Store, p semel.Policy, in transact) (work, error) {
	h, err := guardedHandler(s, p, in)
	if err != nil {
		return nil, err
	}
	var all [postgresCallers]*caller
	for i := range all {
		all[i] = newCaller(h, body200, fresh(prefix+strconv.Itoa(i)+"-"))
		all[i].busy = true
	}
	return func(n int) { callers(postgresCallers, n, func(i int) { all[i].work(1) }) }, nil
}

func guardedHandler(s driver.Store, p semel.Policy, in transact) (http.Handler, error) {
	g, err := semel.New(s, semel.SingleTenant, semel.Hold, semel.Options{Policy: p, IdentitySecret: secret, MaxAttempts: -1, MaxKeys: -1})
	if err != nil {
		return nil, err
	}
	return g.Wrap(payIn(in)), nil
}

// guardedPayment returns one caller, of a guard of its own.
func guardedPayment(prefix string, s driver.Store, p semel.Policy, in transact) (*caller, error) {
	h, err := guardedHandler(s, p, in)
	if err != nil {
		return nil, err
	}
	c := newCaller(h, body200, fresh(prefix))
	c.busy = true
	return c, nil
}

// postgresOneCommit measures P-8, through ServeHTTP.
func postgresOneCommit(ctx context.Context, m *meter) ([]row, error) {
	p, store, err := newPostgresStore(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	defer store.Close() //nolint:errcheck // a temporary server
	ours, err := guardedPayments("one-", store, semel.Policy{OneCommit: true}, store.Tx)
	if err != nil {
		return nil, err
	}
	c := m.each(postgresCallers).compare(p.paying(ctx, postgresCallers), ours) // the floor first: the goal is a share of its throughput
	what := fmt.Sprintf("PostgreSQL, one-commit mode beside begin, insert, commit, %d callers", postgresCallers)
	return []row{{"P-8", what, perOp(c.b), perOp(c.a), times(c.ratio), "≥ 0.55×"}}, nil
}

// postgresLeased measures P-8a: two verbs, each with a commit, beside one transaction of the floor's.
func postgresLeased(ctx context.Context, m *meter) ([]row, error) {
	p, store, err := newPostgresStore(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	defer store.Close() //nolint:errcheck // a temporary server
	var serial atomic.Uint64
	var rows []row
	for _, load := range []struct {
		callers int
		goal    string
	}{{1, "shown"}, {postgresCallers, "≥ 1×"}, {4 * postgresCallers, "≥ 1.3×"}} {
		ours := func(n int) { callers(load.callers, n, func(int) { claimAndSettle(store, serial.Add(1)) }) }
		c := m.each(load.callers).compare(p.paying(ctx, load.callers), ours) // the floor first: the goal is a share of its throughput
		what := fmt.Sprintf("PostgreSQL, leased claim and settle beside begin, insert, commit, %d callers", load.callers)
		rows = append(rows, row{"P-8a", what, perOp(c.b), perOp(c.a), times(c.ratio), load.goal})
	}
	return rows, nil
}

// postgresJoined measures P-9, through ServeHTTP. The peer is a guard with a handler that commits by itself, between the
// claim and the settle, and a store for each caller, so that no verb goes in a group.
func postgresJoined(ctx context.Context, m *meter) ([]row, error) {
	p, store, err := newPostgresStore(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	defer store.Close() //nolint:errcheck // a temporary server
	joined, err := guardedPayments("joined-", store, semel.Policy{}, store.Tx)
	if err != nil {
		return nil, err
	}
	alone := func(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
		return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return fn(ctx, tx) })
	}
	var each [postgresCallers]*caller
	for i := range each {
		own, err := pgstore.Open(ctx, p.pool, pgstore.Options{MaxConns: 1})
		if err != nil {
			return nil, err
		}
		defer own.Close() //nolint:errcheck // a temporary server
		if each[i], err = guardedPayment("apart-"+strconv.Itoa(i)+"-", own, semel.Policy{}, alone); err != nil {
			return nil, err
		}
	}
	apart := func(n int) { callers(postgresCallers, n, func(i int) { each[i].work(1) }) }
	c := m.each(postgresCallers).compare(apart, joined)
	alongside := m.each(postgresCallers).compare(p.paying(ctx, postgresCallers), joined)
	what := fmt.Sprintf("PostgreSQL, leased mode, settle joined, beside %%s, %d callers", postgresCallers)
	return []row{
		{"P-9", fmt.Sprintf(what, "three commits, none in a group"), perOp(c.b), perOp(c.a), times(c.ratio), "≥ 1.5×"},
		{"P-9", fmt.Sprintf(what, "the business transaction alone"), perOp(alongside.b), perOp(alongside.a), times(alongside.ratio), "≥ 0.4×"},
	}, nil
}

// postgresReplay measures P-10.
func postgresReplay(ctx context.Context, m *meter) ([]row, error) {
	p, err := newPostgresServer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	store, err := pgstore.Open(ctx, p.pool, pgstore.Options{MaxConns: postgresCallers})
	if err != nil {
		return nil, err
	}
	defer store.Close() //nolint:errcheck // a temporary server
	r, err := newRedisServer()
	if err != nil {
		return nil, err
	}
	defer r.close()
	tiered := tieredstore.New(store, tieredstore.Options{
		Cache:        redisstore.NewCache(rueidisClient{r.client}, redisstore.CacheOptions{}),
		CacheTimeout: time.Minute, // a machine that is busy must not let it pass by the cache
	})

	plain, err := p.connect(ctx, pgx.QueryExecModeExec) // as in the store's own pool
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	if _, err := plain.Exec(ctx, "CREATE TABLE plain (id bytea PRIMARY KEY, record bytea NOT NULL)"); err != nil {
		return nil, err
	}
	var serial atomic.Uint64
	callers(postgresCallers, keptKeys, func(int) {
		n := serial.Add(1) % keptKeys
		claimAndSettle(store, n)
		replayOf(tiered, n) // which fills the cache
		id := idOf(n)
		rec, err := store.Load(ctx, id)
		if err != nil {
			panic(fmt.Sprint("load: ", err))
		}
		b, err := rec.AppendBinary(nil)
		if err != nil {
			panic(fmt.Sprint("encode: ", err))
		}
		if _, err := plain.Exec(ctx, "INSERT INTO plain (id, record) VALUES ($1, $2)", id[:], b); err != nil {
			panic(fmt.Sprint("INSERT: ", err))
		}
	})
	if _, err := plain.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return nil, err
	}
	next := func() uint64 { return serial.Add(1) % keptKeys }
	replays := func(s driver.Store, limit int) work {
		return func(n int) { callers(limit, n, func(int) { replayOf(s, next()) }) }
	}
	selects := func(pool *pgxpool.Pool) work {
		return func(n int) {
			callers(postgresCallers, n, func(int) {
				id := idOf(next())
				var record []byte
				if err := pool.QueryRow(ctx, "SELECT record FROM plain WHERE id = $1", id[:]).Scan(&record); err != nil {
					panic(fmt.Sprint("SELECT: ", err))
				}
			})
		}
	}
	gets := func(n int) {
		callers(redisCallers, n, func(int) {
			if r.get(recordKey("semel:cache:", idOf(next()))) == "" {
				panic("GET: there is nothing")
			}
		})
	}
	// The floors first: the goal is a share of their throughput.
	same := m.each(postgresCallers).compare(selects(plain), replays(store, postgresCallers))
	prepared := m.each(postgresCallers).compare(selects(p.pool), replays(store, postgresCallers))
	cached := m.each(redisCallers).compare(gets, replays(tiered, redisCallers))
	what := fmt.Sprintf("PostgreSQL, replay beside SELECT of the same bytes by primary key, %d callers", postgresCallers)
	behind := fmt.Sprintf("PostgreSQL behind Redis, replay beside GET of the same entry, %d callers", redisCallers)
	return []row{
		{"P-10", what, perOp(same.b), perOp(same.a), times(same.ratio), "≥ 0.85×"},
		{"P-10", what + ", prepared", perOp(prepared.b), perOp(prepared.a), times(prepared.ratio), "shown"},
		{"P-10", behind, perOp(cached.b), perOp(cached.a), times(cached.ratio), "≥ 0.85×"},
	}, nil
}
