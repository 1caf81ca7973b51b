package faults

import (
	"testing"

	"github.com/semelhq/semel/driver"
)

// A Redis that keeps nothing on its disk forgets with its restart: that is its documented limit, and what tieredstore
// is for.
func TestR48_RedisRestartedEmpty(t *testing.T) {
	t.Parallel()
	r := redis(t)
	f := newFleet(t, seat{server: r, addr: r.Addr(), open: openRedis}, newLedger())
	restart := func() {
		must(t, r.Kill())
		must(t, r.Start())
	}

	t.Run("an operation that was done runs again", func(t *testing.T) {
		key := f.key("done")
		pursue(t, key, f.a.hold)
		before, err := f.load(key)
		must(t, err)
		restart()
		pursue(t, key, f.a.hold)
		f.await(t, key, func(rec driver.Record) bool { return rec.State == driver.Done && rec.Fence > before.Fence })
		if effects, _ := f.world.effects(key); len(effects) != 2 {
			t.Errorf("effects %q: what is documented to be lost was not", effects)
		}
	})

	t.Run("a stale owner is kept out all the same", func(t *testing.T) {
		key := f.key("running")
		f.world.stage(key, script{after: func() {
			restart()
			pursue(t, key, f.b.hold)
		}})
		first := pursue(t, key, f.a.hold)
		second := pursue(t, key, f.b.hold)
		effects, _ := f.world.effects(key)
		if len(effects) != 2 || first != effects[1] || second != effects[1] {
			t.Errorf("effects %q, told %q to the stale owner's client, %q to the other", effects, first, second)
		}
	})
}
