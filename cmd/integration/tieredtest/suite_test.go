package tieredtest

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/sqlitestore"
	"github.com/semelhq/semel/storetest"
	"github.com/semelhq/semel/tieredstore"
)

// A moved clock is that of a machine, which tests move, so that nothing has to be waited for.
type movedClock struct{ ns atomic.Int64 }

func newMovedClock() *movedClock {
	c := new(movedClock)
	c.ns.Store(time.Now().UnixNano())
	return c
}

func (c *movedClock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *movedClock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// Every durable store keeps every promise behind layers. In the short form it is in one of these ways, by chance.
func TestR88_R53_TheStoreKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	for _, way := range proof.Some(1,
		way{"one process, on SQLite, behind memory", oneProcessOnSQLite(memoryOnly)},
		way{"one process, on SQLite, behind both", oneProcessOnSQLite(both)},
		way{"one process, on PostgreSQL, behind both", oneProcessOnPostgres},
		way{"two processes, on PostgreSQL, behind Redis", twoProcessesOnPostgres},
		way{"two processes, on SQLite, behind Redis, by a clock that is moved", twoProcessesOnSQLite},
	) {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, way.storages(t))
		})
	}
}

type way struct {
	name     string
	storages func(*testing.T) func(*testing.T) storetest.Storage
}

// Handles are one process in these two: another one would see a Forget only when its own copies end.
func oneProcessOnSQLite(l layers) func(*testing.T) func(*testing.T) storetest.Storage {
	return func(*testing.T) func(*testing.T) storetest.Storage {
		return func(t *testing.T) storetest.Storage {
			clock := newMovedClock()
			o := l.options(cacheFor(t, l))
			o.Clock = clock.now
			path := filepath.Join(t.TempDir(), "semel.db")
			one := tieredstore.New(openSQLite(t, path, sqlitestore.Options{Clock: clock.now}), o)
			return storetest.Storage{Open: func(t *testing.T) driver.Store { return one }, Advance: clock.advance}
		}
	}
}

func oneProcessOnPostgres(outer *testing.T) func(*testing.T) storetest.Storage {
	storages := &postgresStorages{outer: outer}
	return func(t *testing.T) storetest.Storage {
		one := tieredstore.New(storages.next(t)(), both.options(cacheFor(t, both)))
		return storetest.Storage{Open: func(t *testing.T) driver.Store { return one }}
	}
}

func cacheFor(t testing.TB, l layers) *redisstore.Cache {
	if !l.cached {
		return nil
	}
	return newCache(t)
}

// Here each handle is a process: it has a durable store and a client of its own, and shares the cache.
func twoProcessesOnPostgres(outer *testing.T) func(*testing.T) storetest.Storage {
	other := connect(outer, redis.Get(outer).Addr())
	storages := &postgresStorages{outer: outer}
	return func(t *testing.T) storetest.Storage {
		open, prefix := storages.next(t), newPrefix()
		opened := 0
		return storetest.Storage{Open: func(t *testing.T) driver.Store {
			c := sharedClient(t)
			if opened++; opened%2 == 0 {
				c = other
			}
			return tieredstore.New(open(), redisOnly.options(cacheOn(c, prefix)))
		}}
	}
}

// With a clock that is moved retentions end at once, for the durable store and for the copies, but not in Redis, which
// goes by its own.
func twoProcessesOnSQLite(*testing.T) func(*testing.T) storetest.Storage {
	return func(t *testing.T) storetest.Storage {
		clock := newMovedClock()
		path, prefix := filepath.Join(t.TempDir(), "semel.db"), newPrefix()
		return storetest.Storage{
			Open: func(t *testing.T) driver.Store {
				o := redisOnly.options(cacheOn(sharedClient(t), prefix))
				o.Clock = clock.now
				return tieredstore.New(openSQLite(t, path, sqlitestore.Options{Clock: clock.now}), o)
			},
			Advance: clock.advance,
		}
	}
}
