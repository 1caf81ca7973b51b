package tieredtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver

	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/sqlitestore"
	"github.com/semelhq/semel/tieredstore"
)

var (
	ask    = verbs.Ask
	newID  = verbs.NewID
	finish = verbs.Finish
	load   = verbs.Load
)

// A durable store can be opened by several processes.
type durable interface {
	driver.Transactor
	driver.StepStore
	driver.Seizer
	driver.Lister
	driver.Auditor
	driver.Counter
}

// A kind is a kind of durable store. Each call makes one storage, and returns what opens it.
type kind struct {
	name string
	make func(t testing.TB) (open func() durable)
}

var kinds = []kind{{"sqlite", makeSQLite}, {"postgres", makePostgres}}

func makeSQLite(t testing.TB) func() durable {
	path := filepath.Join(t.TempDir(), "semel.db")
	return func() durable { return openSQLite(t, path, sqlitestore.Options{}) }
}

func openSQLite(t testing.TB, path string, o sqlitestore.Options) *sqlitestore.Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
	must(t, err)
	t.Cleanup(func() { db.Close() })
	s, err := sqlitestore.Open(context.Background(), db, o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

var made atomic.Int64

// newSchema returns the name of a schema that no other test uses.
func newSchema() string { return fmt.Sprintf("tiered_%d", made.Add(1)) }

func makePostgres(t testing.TB) func() durable {
	schema := newSchema()
	return func() durable {
		s, err := pgstore.Open(context.Background(), sharedPool(t), pgstore.Options{Schema: schema, MaxConns: 4})
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		return s
	}
}

var pool struct {
	once sync.Once
	*pgxpool.Pool
	err error
}

// sharedPool returns the application's pool, which lasts until the tests are over. Stores have their own connections.
func sharedPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool.once.Do(func() { pool.Pool, pool.err = pgxpool.New(context.Background(), postgres.Get(t).URL()) })
	must(t, pool.err)
	return pool.Pool
}

// The layers that a process may have.
type layers struct {
	name           string
	cached, memory bool
}

var (
	memoryOnly = layers{"memory", false, true}
	redisOnly  = layers{"redis", true, false}
	both       = layers{"both", true, true}
)

// options returns a process's options; c may be nil if it has no cache.
func (l layers) options(c tieredstore.Cache) (o tieredstore.Options) {
	if l.cached {
		o.Cache = c
		o.CacheTimeout = 30 * time.Second // a busy machine is not what is tested
	}
	if l.memory {
		o.Memory = tieredstore.Memory{Entries: 10_000}
	}
	return o
}

// newCache returns a cache of the test's own on the shared server.
func newCache(t testing.TB) *redisstore.Cache {
	t.Helper()
	return cacheOn(sharedClient(t), newPrefix())
}

// newPrefix returns a prefix that no other test uses.
func newPrefix() string { return fmt.Sprintf("tiered-%d:", made.Add(1)) }

var client struct {
	once sync.Once
	*redisclient.Client
	err error
}

// sharedClient returns a client of the shared server, which lasts until the tests are over.
func sharedClient(t testing.TB) *redisclient.Client {
	t.Helper()
	client.once.Do(func() { client.Client, client.err = redisclient.Open("redis://" + redis.Get(t).Addr()) })
	must(t, client.err)
	return client.Client
}

func cacheOn(c redisstore.Client, prefix string) *redisstore.Cache {
	return redisstore.NewCache(c, redisstore.CacheOptions{Prefix: prefix})
}

func connect(t testing.TB, addr string) *redisclient.Client {
	t.Helper()
	c, err := redisclient.Open("redis://" + addr)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// counted is a durable store that counts what it is asked. A gate, if there is one, is passed after each Load and refused
// Claim: what was read is on its way back.
type counted struct {
	durable
	asked atomic.Int64
	gate  func()
}

func (s *counted) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	s.asked.Add(1)
	rec, owned, err := s.durable.Claim(ctx, id, c)
	if s.gate != nil && err == nil && !owned {
		s.gate()
	}
	return rec, owned, err
}

func (s *counted) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	s.asked.Add(1)
	rec, err := s.durable.Load(ctx, id)
	if s.gate != nil && err == nil {
		s.gate()
	}
	return rec, err
}
