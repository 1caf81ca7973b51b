package pgstore

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
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

func newID() driver.ID {
	a, b, c := driver.NewToken(), driver.NewToken(), driver.NewToken()
	return driver.ID([]byte(string(a[:]) + string(b[:]) + string(c[:])))
}

func ask(p driver.LostPolicy) driver.Claim {
	return driver.Claim{
		Fingerprint: driver.Fingerprint{Raw: driver.NewToken()},
		Token:       driver.NewToken(),
		Lease:       time.Hour,
		Retention:   time.Hour,
		OnLost:      p,
		Operation:   "POST /payments",
		Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	}
}

// claim claims a record that must be owned.
func claim(t testing.TB, s driver.Store, id driver.ID, c driver.Claim) driver.Record {
	t.Helper()
	rec, owned, err := s.Claim(context.Background(), id, c)
	if err != nil || !owned {
		t.Fatalf("Claim: owned is %t, error %v", owned, err)
	}
	return rec
}

func settle(t testing.TB, s driver.Store, id driver.ID, by driver.Owner, o driver.Outcome) driver.Record {
	t.Helper()
	rec, owned, err := s.Settle(context.Background(), id, by, o)
	if err != nil || !owned {
		t.Fatalf("Settle: owned is %t, error %v", owned, err)
	}
	return rec
}

func load(t testing.TB, s driver.Store, id driver.ID) driver.Record {
	t.Helper()
	rec, err := s.Load(context.Background(), id)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return rec
}

func done(body string) driver.Outcome {
	return driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 201, Body: []byte(body)}}
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
