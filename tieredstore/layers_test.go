package tieredstore_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/tieredstore"
)

// The first repeat is answered by the durable store and makes the copies; the others don't ask it.
func TestRepeatsAreAnsweredWithoutTheDurableStore(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers[1:] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.process(l)
			c := ask(driver.Hold)
			id := newID()
			want := finish(t, s, id, c)
			if w.cache.holds(id) {
				t.Error("a copy was made of an operation that nobody repeated")
			}
			first := refuse(t, s, id, retry(c))
			w.durable.asked.Store(0)
			for range 3 {
				w.Advance(time.Millisecond)
				loaded, refused := load(t, s, id), refuse(t, s, id, retry(c))
				for _, got := range []driver.Record{loaded, refused} {
					if got.Token != want.Token || got.Fence != want.Fence || !reflect.DeepEqual(got.Response, first.Response) {
						t.Errorf("a repeat got %+v, want %+v", got, want)
					}
					if now := driver.TimeOf(w.Now()); got.Now != now {
						t.Errorf("Now is %s, want %s", got.Now.Time(), now.Time())
					}
				}
			}
			w.durable.none(t, "repeats")
			if !l.cached {
				return
			}
			other := w.process(l)
			load(t, other, newID()) // tells it the time
			w.durable.asked.Store(0)
			if got := refuse(t, other, id, retry(c)); got.Token != want.Token {
				t.Errorf("a repeat in another process got %+v", got)
			}
			w.durable.none(t, "a repeat in another process")
		})
	}
}

// Copies are of finished records only.
func TestNothingIsKeptOfRecordsThatAreNotDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true, memory: true})
	running, free, unknown, begun := newID(), newID(), newID(), newID()
	rec, _, err := s.Claim(t.Context(), begun, ask(driver.Rerun))
	if err != nil {
		t.Fatal(err)
	}
	if owned, err := s.Extend(t.Context(), begun, rec.Owner(), driver.Extension{Lease: 1, Begun: true}); err != nil || !owned {
		t.Fatal(owned, err)
	}
	w.Advance(time.Second) // it reads as done, and may still be settled with its answer
	for _, id := range []driver.ID{running, free, unknown} {
		rec, _, err := s.Claim(t.Context(), id, ask(driver.Rerun))
		if err != nil {
			t.Fatal(err)
		}
		o := map[driver.ID]driver.State{free: driver.Free, unknown: driver.Unknown}[id]
		if o == driver.Absent {
			continue
		}
		if _, owned, err := s.Settle(t.Context(), id, rec.Owner(), driver.Outcome{State: o}); err != nil || !owned {
			t.Fatal(owned, err)
		}
	}
	for _, id := range []driver.ID{running, free, unknown, begun, newID()} {
		for range 2 {
			w.durable.asked.Store(0)
			rec := load(t, s, id)
			if w.durable.asked.Load() != 1 || w.cache.holds(id) {
				t.Errorf("a record that is %s was kept", rec.State)
			}
		}
	}
	if w.cache.called("fill") != 0 {
		t.Error("the cache was filled")
	}
}

// A copy is not served at its retention's end or later, whatever the clocks of cache and process are, and however slow
// the replies.
func TestR53_NoCopyIsServedPastItsRetention(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers[1:] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cache.clock = func() time.Time { return time.Time{} } // stands still: nothing there ends
			s := w.process(l)
			c := ask(driver.Hold)
			c.Retention = 3 * time.Second
			id := newID()
			rec := finish(t, s, id, c)
			w.Advance(time.Second)
			load(t, s, id)
			end := rec.Settled.Add(c.Retention)
			w.Advance(end.Sub(driver.TimeOf(w.Now())) - time.Microsecond)
			w.durable.asked.Store(0)
			if got := load(t, s, id); got.Reads(driver.Hold) != driver.ReadsDone {
				t.Errorf("a microsecond before its end it reads as %s", got.Reads(driver.Hold))
			}
			w.durable.none(t, "before its end")
			w.Advance(time.Microsecond)
			next, owned, err := s.Claim(t.Context(), id, ask(driver.Hold))
			if err != nil || !owned || next.Attempt != 1 {
				t.Fatalf("at the end of its retention: owned is %t, error %v, attempt %d", owned, err, next.Attempt)
			}
		})
	}
}

// The age of a copy counts from before it was read, however long its way was.
func TestACopysAgeCountsFromBeforeItWasRead(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"durable", "cache"} {
		w := newWorld(t)
		s := w.process(layers{cached: true, memory: true})
		id := newID()
		finish(t, s, id, ask(driver.Hold))
		const takes = 3 * time.Second
		if slow == "durable" {
			w.durable.gate = func(string) { w.Advance(takes) }
		} else {
			load(t, w.process(layers{cached: true}), id) // makes the copy there
			w.cache.gate = func(context.Context, string, driver.ID) error { w.Advance(takes); return nil }
		}
		load(t, s, id)
		w.durable.gate, w.cache.gate = nil, nil
		gets := w.cache.called("get")
		w.Advance(tieredstore.MaxMemoryAge - takes - 1)
		if load(t, s, id); w.cache.called("get") != gets {
			t.Errorf("read from a slow %s: its copy ended before its age", slow)
		}
		w.Advance(1)
		if load(t, s, id); w.cache.called("get") == gets {
			t.Errorf("read from a slow %s: its copy is served past its age", slow)
		}
	}
}

// A process that has not heard from the durable store for long does not know its clock, and asks.
func TestAProcessThatDoesNotKnowTheTimeAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true})
	c := ask(driver.Hold)
	c.Retention = driver.Forever
	id := newID()
	finish(t, s, id, c)
	load(t, s, id)
	for _, step := range []struct {
		passes time.Duration
		asks   int64
	}{{59 * time.Minute, 0}, {time.Minute, 1}, {time.Minute, 0}} {
		w.Advance(step.passes)
		w.durable.asked.Store(0)
		load(t, s, id)
		if n := w.durable.asked.Load(); n != step.asks {
			t.Errorf("after %s more the durable store was asked %d times, want %d", step.passes, n, step.asks)
		}
	}
}

// The store's own records are read from the durable store, or a cache that belongs to another one would speak for it.
func TestReservedRecordsAreNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true, memory: true})
	for range 3 {
		if err := identity.Check(t.Context(), s, []byte("0123456789abcdef")); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.cache.called("get") + w.cache.called("fill"); n != 0 {
		t.Errorf("the cache was asked %d times, want never", n)
	}
	fresh := tieredstore.New(newDurable(t, w.Now), tieredstore.Options{Clock: w.Now, Cache: w.cache})
	if err := identity.Check(t.Context(), fresh, []byte("another secret....")); err != nil {
		t.Errorf("another storage, with another secret: %v", err)
	}
}

// Also where a copy would answer, a context that has ended is an error.
func TestAnEndedContextIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{memory: true})
	c := ask(driver.Hold)
	id := newID()
	finish(t, s, id, c)
	load(t, s, id)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Load(ctx, id); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: error %v", err)
	}
	if _, _, err := s.Claim(ctx, id, retry(c)); !errors.Is(err, context.Canceled) {
		t.Errorf("Claim: error %v", err)
	}
}
