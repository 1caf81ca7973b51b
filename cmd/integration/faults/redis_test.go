package faults

import (
	"context"
	"testing"

	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

func openRedis(t *testing.T, addr string) driver.Store {
	t.Helper()
	c, err := redisclient.Open("redis://" + addr)
	must(t, err)
	t.Cleanup(c.Close)
	s, err := redisstore.Open(context.Background(), c, redisstore.Options{})
	must(t, err)
	return s
}

// A Redis that has each write on its disk before it replies.
func TestR46_R48_Case02_Case06_Case07_Case43_RedisSurvives(t *testing.T) {
	t.Parallel()
	r := redis(t, "--appendonly", "yes", "--appendfsync", "always")
	f := newFleet(t, seat{server: r, addr: r.Addr(), open: openRedis}, newLedger())
	f.exhaust = func(t *testing.T) func() {
		t.Helper()
		w := dial(t, r.Addr())
		w.ask("CONFIG SET maxclients 1", "+OK")
		for _, i := range []*instance{f.a, f.b} {
			i.proxy.ResetAll()
		}
		return func() { w.ask("CONFIG SET maxclients 10000", "+OK") }
	}
	surviveAll(t, f, strikes)
}
