package shardstore_test

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/shardstore"
	"github.com/semelhq/semel/storetest"
)

// Shards keep every promise of a store, and in both steps of a change too: 4 of 5 operations have one shard there, the
// others two.
func TestR88_ShardsKeepEveryPromise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		all, stays int
		change     shardstore.Change
	}{
		{"one shard", 1, 1, shardstore.None},
		{"four shards", 4, 4, shardstore.None},
		{"one shard becomes five, prepared", 5, 1, shardstore.Prepare},
		{"one shard becomes five, moved", 5, 1, shardstore.Move},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Storage {
				s := newSite(t, c.all)
				return storetest.Storage{
					Open:    func(t *testing.T) driver.Store { return open(t, s.shards(c.stays), c.change) },
					Advance: s.Advance,
				}
			})
		})
	}
}

// What all shards are the store is, and no more.
func TestOptionalInterfacesAreThoseOfAllShards(t *testing.T) {
	t.Parallel()
	type caps struct{ seizes, lists, steps, audits, counts, transacts, wakes, changes bool }
	of := func(s driver.Store) (c caps) {
		_, c.seizes = s.(driver.Seizer)
		_, c.lists = s.(driver.Lister)
		_, c.steps = s.(driver.StepStore)
		_, c.audits = s.(driver.Auditor)
		_, c.counts = s.(driver.Counter)
		_, c.transacts = s.(driver.Transactor)
		_, c.wakes = s.(driver.Waker)
		_, c.changes = s.(shardstore.Changer)
		return c
	}
	var all full = newSite(t, 1).servers[0]
	for _, c := range []struct {
		shard driver.Store
		want  caps
	}{
		{struct{ driver.Store }{all}, caps{}},
		{struct {
			driver.Store
			driver.Lister
		}{all, all}, caps{}},
		{struct {
			driver.Store
			driver.Seizer
		}{all, all}, caps{seizes: true}},
		{struct {
			driver.Store
			driver.Seizer
			driver.Lister
			driver.Counter
		}{all, all, all, all}, caps{seizes: true, lists: true}},
		{struct {
			driver.StepStore
			driver.Seizer
			driver.Lister
		}{all, all, all}, caps{seizes: true, lists: true, steps: true}},
		{struct {
			driver.StepStore
			driver.Seizer
			driver.Lister
			driver.Auditor
		}{all, all, all, all}, caps{seizes: true, lists: true, steps: true, audits: true}},
		{all, caps{seizes: true, lists: true, steps: true, audits: true, counts: true}},
	} {
		c.want.wakes, c.want.changes = true, true
		s, err := shardstore.New([]shardstore.Shard{{Name: "a", Store: all}, {Name: "b", Store: c.shard}}, shardstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := of(s); got != c.want {
			t.Errorf("over a %T: %+v, want %+v", c.shard, got, c.want)
		}
	}
}
