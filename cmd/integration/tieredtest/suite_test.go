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

// Every durable store keeps every promise behind layers in the process. Handles are one process here: another one would
// see a Forget only when its own copies end.
func TestR88_OneProcessKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	for _, l := range proof.Of([]layers{both}, []layers{memoryOnly, both}) {
		t.Run("sqlite and "+l.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Storage {
				clock := newMovedClock()
				o := l.options(cacheFor(t, l))
				o.Clock = clock.now
				path := filepath.Join(t.TempDir(), "semel.db")
				one := tieredstore.New(openSQLite(t, path, sqlitestore.Options{Clock: clock.now}), o)
				return storetest.Storage{Open: func(t *testing.T) driver.Store { return one }, Advance: clock.advance}
			})
		})
	}
	if !proof.Long {
		return // a layer does not know which store is below it; below two processes it is PostgreSQL
	}
	t.Run("postgres and "+both.name, func(t *testing.T) {
		t.Parallel()
		storages := &postgresStorages{outer: t}
		storetest.Run(t, func(t *testing.T) storetest.Storage {
			one := tieredstore.New(storages.next(t)(), both.options(cacheFor(t, both)))
			return storetest.Storage{Open: func(t *testing.T) driver.Store { return one }}
		})
	})
}

func cacheFor(t testing.TB, l layers) *redisstore.Cache {
	if !l.cached {
		return nil
	}
	return newCache(t)
}

// Here each handle is a process: it has a durable store and a client of its own, and shares the cache.
func TestR88_TwoProcessesOnOneCacheKeepEveryPromise(t *testing.T) {
	t.Parallel()
	other := connect(t, redis.Get(t).Addr())
	storages := &postgresStorages{outer: t}
	storetest.Run(t, func(t *testing.T) storetest.Storage {
		open, prefix := storages.next(t), newPrefix()
		opened := 0
		return storetest.Storage{Open: func(t *testing.T) driver.Store {
			c := sharedClient(t)
			if opened++; opened%2 == 0 {
				c = other
			}
			return tieredstore.New(open(), redisOnly.options(cacheOn(c, prefix)))
		}}
	})
}

// Two processes on SQLite. With a clock that is moved retentions end at once, for the durable store and for the copies,
// but not in Redis, which goes by its own.
func TestR53_CopiesEndByTheDurableStoresClock(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Storage {
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
	})
}
