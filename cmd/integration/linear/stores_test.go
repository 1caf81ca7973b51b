package linear

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver

	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/sqlitestore"
	"github.com/semelhq/semel/tieredstore"
)

// seed returns one for a run, which a test that fails tells. SEMEL_SEED repeats the clients' choices, but not when they
// meet.
func seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SEMEL_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("SEMEL_SEED=%d", seed)
		}
	})
	return seed
}

// Whatever concurrent clients do to a few records, with requests and replies that are lost or late, there is an order
// in which the rules give the same replies: of two claims one owns, a late owner changes nothing, and no
// reader sees what was before an acknowledged write.
func TestR26_R48_R88_VerbsAreAtomic(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name   string
		rounds int // as many as the storage does in a second or two
		layers bool
		open   func(t *testing.T) (handles []driver.Store)
	}{
		{"memory", 100, false, func(*testing.T) []driver.Store { return []driver.Store{memstore.New()} }},
		{"sqlite", 40, false, func(t *testing.T) []driver.Store {
			path := filepath.Join(t.TempDir(), "semel.db")
			return []driver.Store{openSQLite(t, path), openSQLite(t, path)}
		}},
		{"postgres", 40, false, func(t *testing.T) []driver.Store {
			schema := newName()
			return []driver.Store{openPostgres(t, schema), openPostgres(t, schema)}
		}},
		{"postgres in one process, whose verbs go in groups", 40, false, func(t *testing.T) []driver.Store {
			return []driver.Store{openPostgres(t, newName())}
		}},
		{"redis", 40, false, func(t *testing.T) []driver.Store {
			prefix := newName()
			return []driver.Store{openRedis(t, prefix), openRedis(t, prefix)}
		}},
		{"postgres behind a cache in redis", 40, true, func(t *testing.T) []driver.Store {
			name := newName()
			return []driver.Store{openTiered(t, name, tieredstore.Memory{}), openTiered(t, name, tieredstore.Memory{})}
		}},
		{"postgres behind a cache in redis and one in the process", 40, true, func(t *testing.T) []driver.Store {
			return []driver.Store{openTiered(t, newName(), tieredstore.Memory{Entries: 1000})}
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := Run{Handles: s.open(t), Layers: s.layers, Seed: seed(t), Rounds: s.rounds, Clients: 6, Verbs: 20, Records: 3}
			trace, err := r.Do(t.Context())
			must(t, err)
			if err := trace.Check(os.TempDir()); err != nil {
				t.Error(err)
			}
			enough(t, trace)
		})
	}
}

// enough fails if a trace can't have shown much.
func enough(t *testing.T, trace *Trace) {
	t.Helper()
	var owned, refused [verbs]int
	all, lost, takeovers := 0, 0, 0
	for _, operations := range trace.records {
		for _, o := range operations {
			c, r := o.Input.(call), o.Output.(reply)
			all++
			switch {
			case c.verb == drop:
			case r.lost:
				lost++
			case r.owned, c.verb == seize && r.rec.Token == c.token, c.verb == load && r.rec.State != driver.Absent:
				owned[c.verb]++
				if c.verb == claim && r.rec.Maybe {
					takeovers++
				}
			default:
				refused[c.verb]++
			}
		}
	}
	t.Logf("%d verbs, %d lost; owned %v, refused %v; %d runs after one that was lost", all, lost, owned, refused, takeovers)
	if all < 3000 || lost < 100 || takeovers < 10 {
		t.Error("too little was done to have shown anything")
	}
	for v := range verbs {
		if owned[v] < 10 || refused[v] < 10 {
			t.Errorf("%s: too few owned, or refused, to have shown anything", verbNames[v])
		}
	}
}

var names atomic.Int64

// newName returns the name of a storage that no other test has.
func newName() string { return fmt.Sprintf("linear_%d", names.Add(1)) }

func openSQLite(t *testing.T, path string) *sqlitestore.Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
	must(t, err)
	t.Cleanup(func() { db.Close() })
	s, err := sqlitestore.Open(context.Background(), db, sqlitestore.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func openPostgres(t *testing.T, schema string) *pgstore.Store {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), postgres.Get(t).URL())
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := pgstore.Open(context.Background(), pool, pgstore.Options{Schema: schema, MaxConns: 4})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func openRedis(t *testing.T, prefix string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(context.Background(), connect(t), redisstore.Options{Prefix: prefix + ":"})
	must(t, err)
	return s
}

func connect(t *testing.T) *redisclient.Client {
	t.Helper()
	c, err := redisclient.Open("redis://" + redis.Get(t).Addr())
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// openTiered opens a process's handle: a durable store and a client of its own, and the cache that all share.
func openTiered(t *testing.T, name string, m tieredstore.Memory) driver.Store {
	t.Helper()
	return tieredstore.New(openPostgres(t, name), tieredstore.Options{
		Cache:        redisstore.NewCache(connect(t), redisstore.CacheOptions{Prefix: name + ":"}),
		CacheTimeout: time.Minute, // a busy machine is not what is tested
		Memory:       m,
	})
}
