package tieredtest

import (
	"context"
	"testing"
	"time"

	"github.com/semelhq/semel"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/tieredstore"
)

// A reader has read a record from the durable store and not made its copy yet. Meanwhile the record is forgotten, and
// perhaps the cache loses all that it knew: the reader brings no copy into it.
func TestASlowReaderThatRefillsAfterAForgetIsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		meanwhile func(t *testing.T, r *servers.Redis, s driver.Store, id driver.ID)
	}{
		{"forgotten", func(*testing.T, *servers.Redis, driver.Store, driver.ID) {}},
		{"forgotten, and missed by another reader", func(t *testing.T, _ *servers.Redis, s driver.Store, id driver.ID) {
			if got := load(t, s, id); got.State != driver.Absent {
				t.Errorf("after the Forget the record is %s", got.State)
			}
		}},
		{"forgotten, and the cache restarted empty", func(t *testing.T, r *servers.Redis, _ driver.Store, _ driver.ID) {
			must(t, r.Kill())
			must(t, r.Start())
		}},
		{"forgotten, and the cache restarted empty and asked", func(t *testing.T, r *servers.Redis, s driver.Store, id driver.ID) {
			must(t, r.Kill())
			must(t, r.Start())
			if got := load(t, s, id); got.State != driver.Absent {
				t.Errorf("after the Forget the record is %s", got.State)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			open, r := makeSQLite(t), ownRedis(t)
			slow := &counted{durable: open()}
			reading := tieredstore.New(slow, redisOnly.options(cacheOn(connect(t, r.Addr()), "p:")))
			forgetting := tieredstore.New(open(), redisOnly.options(cacheOn(connect(t, r.Addr()), "p:")))
			id := newID()
			rec := finish(t, forgetting, id, ask(semel.Hold))

			held, release := make(chan struct{}), make(chan struct{})
			slow.gate = func() {
				close(held)
				<-release
			}
			ended := make(chan driver.Record)
			go func() {
				got, _ := reading.Load(context.Background(), id)
				ended <- got
			}()
			<-held
			forgotten, err := forgetting.(driver.Seizer).Forget(t.Context(), id, rec.Owner())
			if err != nil || !forgotten {
				t.Fatalf("Forget: %t, error %v", forgotten, err)
			}
			tc.meanwhile(t, r, forgetting, id)
			close(release)
			if got := <-ended; got.State != driver.Done {
				t.Fatalf("the reader got a record that is %s", got.State)
			}
			slow.gate = nil
			for name, s := range map[string]driver.Store{"of the reader": reading, "that forgot it": forgetting} {
				if got := load(t, s, id); got.State != driver.Absent {
					t.Errorf("the process %s serves a record that is %s", name, got.State)
				}
			}
		})
	}
}

// Nobody forgets anything here: a reader whose ticket is lost with the cache makes no copy, and the next one does.
func TestAfterTheCacheWasRestartedEmptyItFillsAgain(t *testing.T) {
	t.Parallel()
	r := ownRedis(t)
	d := &counted{durable: makeSQLite(t)()}
	s := tieredstore.New(d, redisOnly.options(cacheOn(connect(t, r.Addr()), "p:")))
	c, id := ask(semel.Hold), newID()
	want := finish(t, s, id, c)
	fast(t, d, s, id, want)
	must(t, r.Kill())
	if got := load(t, s, id); got.Token != want.Token {
		t.Errorf("while the cache is down the record is %s", got.State)
	}
	must(t, r.Start())
	fast(t, d, s, id, want)
}

// fast fails unless repeats come to be answered without the durable store, and rightly all the time.
func fast(t *testing.T, d *counted, s driver.Store, id driver.ID, want driver.Record) {
	t.Helper()
	for giveUp := time.Now().Add(time.Minute); ; {
		asked := d.asked.Load()
		if got := load(t, s, id); got.State != driver.Done || got.Token != want.Token || got.Response == nil {
			t.Fatalf("a repeat got a record that is %s, with the answer %v", got.State, got.Response)
		}
		if d.asked.Load() == asked {
			return
		}
		if time.Now().After(giveUp) {
			t.Fatal("repeats are answered by the durable store")
		}
	}
}
