package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/tieredstore"
)

// cacheStrikes are faults of the fast layer.
func cacheStrikes(cache *servers.Redis, way *Proxy) []strike {
	at := []moment{atClaim, atSettle}
	return []strike{
		{
			"cache restarted empty", at, false,
			func(t *testing.T, _ *fleet) { must(t, cache.Kill()) },
			func(t *testing.T, _ *fleet, _ func()) { must(t, cache.Start()) },
		},
		{
			"cache paused", at, false,
			func(t *testing.T, _ *fleet) { must(t, cache.Pause()) },
			func(t *testing.T, _ *fleet, _ func()) { time.Sleep(dark); must(t, cache.Resume()) },
		},
		{
			"cache cut off", at, false,
			func(*testing.T, *fleet) { way.Cut() },
			func(t *testing.T, _ *fleet, _ func()) { time.Sleep(short); must(t, way.Restore()) },
		},
		{
			"replies of the cache lost", at, false,
			func(*testing.T, *fleet) { way.DropReplies() },
			func(t *testing.T, _ *fleet, _ func()) { time.Sleep(dark); must(t, way.Restore()) },
		},
		{
			"slow cache", at, false,
			func(*testing.T, *fleet) { way.Slow(time.Second) },
			func(t *testing.T, _ *fleet, _ func()) { time.Sleep(dark); must(t, way.Restore()) },
		},
	}
}

// The durable store decides: whatever becomes of the fast one, nothing is lost, and nothing runs again.
func TestR46_R48_Case02_Case06_Case07_Case43_TieredSurvives(t *testing.T) {
	t.Parallel()
	p, cache := postgres(t, nil), redis(t)
	way := proxyTo(t, cache.Addr())
	hour := time.Hour
	open := func(t *testing.T, addr string) driver.Store {
		c, err := redisclient.Open("redis://" + way.Addr())
		must(t, err)
		t.Cleanup(c.Close)
		hour = -hour // the instances' clocks are off by two hours from each other
		by := hour
		return tieredstore.New(openPG(t, urlOf(addr)), tieredstore.Options{
			Cache: redisstore.NewCache(c, redisstore.CacheOptions{}), Memory: tieredstore.Memory{Entries: 50},
			Clock: func() time.Time { return time.Now().Add(by) },
		})
	}
	f := newFleet(t, seat{server: p, addr: p.Addr(), open: open, witness: openPG(t, p.URL())}, newLedger())
	surviveAll(t, f, slices.Concat(cacheStrikes(cache, way), only(
		"server killed", "server killed between execution and reply", "connections reset between execution and reply",
		"server paused for longer than a lease")))

	t.Run("repeats are answered while the durable store is away", func(t *testing.T) {
		key := f.key("away")
		f.settled(t, key)
		f.settled(t, key) // by now each instance has a copy
		must(t, p.Pause())
		defer func() { must(t, p.Resume()) }()
		want, err := f.world.effects(key)
		must(t, err)
		for _, i := range []*instance{f.a, f.b} {
			if got, body := ask(i.hold, key); got != success || body != want[0] {
				t.Errorf("%s: %s", got, body)
			}
		}
	})
}
