package shardtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/shardstore"
)

// The server that tests share. Shards are apart by schema.
var postgres = servers.Shared[*servers.Postgres]{Start: func() (*servers.Postgres, error) {
	return servers.NewPostgres(servers.PostgresOptions{Settings: map[string]string{"max_connections": "600"}})
}}

var pool struct {
	once sync.Once
	*pgxpool.Pool
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if pool.Pool != nil {
		pool.Close()
	}
	if err := postgres.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func sharedPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool.once.Do(func() { pool.Pool, pool.err = pgxpool.New(context.Background(), postgres.Get(t).URL()) })
	must(t, pool.err)
	return pool.Pool
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var made atomic.Int64

// newSchema returns the name of a schema that no other test uses.
func newSchema() string { return fmt.Sprintf("shard_%d", made.Add(1)) }

// shardsIn opens a shard in each schema. They end with the test.
func shardsIn(t *testing.T, p *pgxpool.Pool, schemas ...string) (shards []shardstore.Shard) {
	t.Helper()
	for i, schema := range schemas {
		s, err := pgstore.Open(context.Background(), p, pgstore.Options{Schema: schema, MaxConns: 2})
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		shards = append(shards, shardstore.Shard{Name: fmt.Sprint("p", i), Store: s})
	}
	return shards
}

func open(t *testing.T, shards []shardstore.Shard, c shardstore.Change) driver.Store {
	t.Helper()
	s, err := shardstore.New(shards, shardstore.Options{Change: c})
	must(t, err)
	return s
}
