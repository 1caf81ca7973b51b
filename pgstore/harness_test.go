package pgstore

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/internal/verbs"
)

var (
	newID  = verbs.NewID
	ask    = verbs.Ask
	claim  = verbs.Claim
	settle = verbs.Settle
	load   = verbs.Load
	done   = verbs.Done
	retry  = verbs.Retry
)

// newPool returns a pool as an application has it.
func newPool(t testing.TB, url string, set ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	for _, f := range set {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openStore opens a store on the shared server, in a schema of its own unless the options name one.
func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	return openOn(t, newPool(t, server.URL()), o)
}

func openOn(t testing.TB, app *pgxpool.Pool, o Options) *Store {
	t.Helper()
	if o.Schema == "" {
		o.Schema = newSchema()
	}
	s, err := Open(context.Background(), app, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// exec executes SQL, in which {schema} stands for the store's.
func exec(t testing.TB, s *Store, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(context.Background(), inSchema(sql, s.schema), args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// value returns the single value that a query gives.
func value[T any](t testing.TB, s *Store, sql string, args ...any) (v T) {
	t.Helper()
	if err := s.pool.QueryRow(context.Background(), inSchema(sql, s.schema), args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// A mover moves the clock of a schema.
type mover struct {
	mu    sync.Mutex
	pool  *pgxpool.Pool
	shift time.Duration
}

func (m *mover) advance(schema string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shift += d
	_, err := m.pool.Exec(context.Background(), inSchema(fmt.Sprintf(
		`CREATE OR REPLACE FUNCTION {schema}.clock_1() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
		$$ SELECT (date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint + %d $$`, m.shift.Microseconds()), schema))
	if err != nil {
		panic(err)
	}
}

// asRole returns the address of a server for another role.
func asRole(t testing.TB, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}
