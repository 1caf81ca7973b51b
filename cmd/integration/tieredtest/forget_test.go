package tieredtest

import (
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"

	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/cmd/integration/faults"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/tieredstore"
)

// While the cache can't be reached an operator's Forget says that a copy may be left; repeated when it is back, it
// leaves none.
func TestAnOperatorsForgetSaysIfACopyIsLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		strike   func(*testing.T, *servers.Redis, *faults.Proxy)
		heal     func(*testing.T, *servers.Redis, *faults.Proxy)
		survives bool // the copy
	}{
		{
			"cut off",
			func(_ *testing.T, _ *servers.Redis, p *faults.Proxy) { p.Cut() },
			func(t *testing.T, _ *servers.Redis, p *faults.Proxy) { must(t, p.Restore()) },
			true,
		},
		{
			"bytes vanish",
			func(_ *testing.T, _ *servers.Redis, p *faults.Proxy) { p.BlackHole() },
			func(t *testing.T, _ *servers.Redis, p *faults.Proxy) { must(t, p.Restore()) },
			true,
		},
		{
			"paused",
			func(t *testing.T, r *servers.Redis, _ *faults.Proxy) { must(t, r.Pause()) },
			func(t *testing.T, r *servers.Redis, _ *faults.Proxy) { must(t, r.Resume()) },
			false, // once it goes on it executes the Forget that nobody waits for any more
		},
		{
			"killed",
			func(t *testing.T, r *servers.Redis, _ *faults.Proxy) { must(t, r.Kill()) },
			func(t *testing.T, r *servers.Redis, _ *faults.Proxy) { must(t, r.Start()) },
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			open, r := makeSQLite(t), ownRedis(t)
			way, err := faults.New(r.Addr())
			must(t, err)
			t.Cleanup(way.Close)
			o := both.options(cacheOn(connect(t, way.Addr()), "p:"))
			o.CacheTimeout = 2 * time.Second // waited for if nothing answers
			s := tieredstore.New(open(), o)
			other := tieredstore.New(open(), redisOnly.options(cacheOn(connect(t, r.Addr()), "p:")))
			id := newID()
			rec := finish(t, s, id, ask(semel.Hold))
			load(t, s, id)     // makes the copies
			load(t, other, id) // makes that in the cache if s was held up; and tells it the time: it would not serve a copy without

			tc.strike(t, r, way)
			_, err = s.(driver.Seizer).Forget(t.Context(), id, rec.Owner())
			if !errors.Is(err, tieredstore.ErrCopyLeft) {
				t.Fatalf("Forget: error %v, want ErrCopyLeft", err)
			}
			if got := load(t, s, id); got.State != driver.Absent {
				t.Errorf("the process that forgot it serves a record that is %s", got.State)
			}
			tc.heal(t, r, way)
			if got := load(t, other, id); tc.survives && got.State != driver.Done {
				t.Errorf("the copy that the error tells of is not there: %s", got.State)
			}
			for giveUp := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				if _, err = s.(driver.Seizer).Forget(t.Context(), id, rec.Owner()); err == nil {
					break
				}
				if time.Now().After(giveUp) {
					t.Fatalf("Forget, repeated: error %v", err)
				}
			}
			if got := load(t, other, id); got.State != driver.Absent {
				t.Errorf("after the repetition another process serves a record that is %s", got.State)
			}
		})
	}
}

// What operators do to a store they do to the one behind it, and to the copies.
func TestOperatorsWorkThroughTheLayers(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			open, prefix := k.make(t), newPrefix()
			s := tieredstore.New(open(), both.options(cacheOn(sharedClient(t), prefix)))
			other := tieredstore.New(open(), redisOnly.options(cacheOn(sharedClient(t), prefix)))
			desk, err := admin.New(s, admin.Options{})
			must(t, err)
			id := newID()
			finish(t, s, id, ask(semel.Hold))
			load(t, s, id)
			if got := load(t, other, id); got.State != driver.Done {
				t.Fatalf("the record is %s", got.State)
			}
			by := admin.Decision{Actor: "ann", Reason: "asked to"}
			if _, err := desk.Forget(t.Context(), id, by); err != nil {
				t.Fatal(err)
			}
			if got := load(t, other, id); got.State != driver.Absent {
				t.Errorf("after the Forget another process serves a record that is %s", got.State)
			}
			rec, trail, err := desk.Show(t.Context(), id)
			if err != nil || rec.State != driver.Absent || len(trail) != 2 {
				t.Errorf("shown is a record that is %s, with %d entries in the trail, error %v", rec.State, len(trail), err)
			}
			if c, err := s.(driver.Counter).Count(t.Context()); err != nil || c.Running != 0 {
				t.Errorf("counted %+v, error %v", c, err)
			}
		})
	}
}
