package tieredstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/tieredstore"
)

// The gates at which a reader can be held: after each thing that it does on its way to a copy.
var readerGates = []struct{ where, verb string }{
	{"cache", "get"},    // before it looks into the cache: it has a ticket of the memory only
	{"durable", "read"}, // after it has read the record
	{"cache", "fill"},   // before it makes the copy
}

// A reader that read a record before it was forgotten, and makes its copy afterwards, brings nothing back: not in the
// cache, not in the process that forgot, and for no longer than Memory.Age in its own.
func TestASlowReaderThatRefillsAfterAForgetIsRefused(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers[1:] {
		for _, gate := range readerGates {
			for _, verb := range []string{"load", "claim"} {
				if gate.where == "cache" && !l.cached {
					continue
				}
				t.Run(l.name+", held at "+gate.verb+", "+verb, func(t *testing.T) {
					t.Parallel()
					slowReader(t, l, gate.where, gate.verb, verb)
				})
			}
		}
	}
}

func slowReader(t *testing.T, l layers, where, gate, verb string) {
	w := newWorld(t)
	forgetting, reading := w.process(l), w.process(l)
	c := ask(driver.Hold)
	id := newID()
	rec := finish(t, forgetting, id, c)

	held, release := make(chan struct{}), make(chan struct{})
	hold := func() {
		close(held)
		<-release
	}
	if where == "cache" {
		w.cache.gate = func(_ context.Context, verb string, _ driver.ID) error {
			if verb == gate {
				hold()
			}
			return nil
		}
	} else {
		w.durable.gate = func(string) { hold() }
	}
	ended := make(chan driver.Record)
	go func() {
		var got driver.Record
		if verb == "load" {
			got, _ = reading.Load(context.Background(), id)
		} else {
			got, _, _ = reading.Claim(context.Background(), id, retry(c))
		}
		ended <- got
	}()
	<-held
	w.cache.gate, w.durable.gate = nil, nil // for the others; the reader has passed
	forget(t, forgetting, id, rec.Owner())
	close(release)
	got := <-ended
	if late := gate != "get"; late != (got.State == driver.Done) {
		t.Fatalf("the reader got a record that is %s", got.State)
	}
	if verb == "claim" && got.State == driver.Running {
		if got.Token == rec.Token {
			t.Fatal("the reader's claim took the forgotten run over")
		}
		return // it ran as new: the record is its own
	}
	if w.cache.holds(id) {
		t.Error("the cache holds a copy of a record that was forgotten")
	}
	if got := load(t, forgetting, id); got.State != driver.Absent {
		t.Errorf("the process that forgot it serves a record that is %s", got.State)
	}
	if l.memory {
		w.Advance(tieredstore.MaxMemoryAge)
	}
	if got := load(t, reading, id); got.State != driver.Absent {
		t.Errorf("the process of the reader serves a record that is %s", got.State)
	}
}

// The same within one process: it forgets while a reader of its own is on the way, and serves no copy afterwards.
func TestASlowReaderOfTheSameProcessBringsNothingBack(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers[1:] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.process(l)
			id := newID()
			rec := finish(t, s, id, ask(driver.Hold))
			held, release := make(chan struct{}), make(chan struct{})
			w.durable.gate = func(string) {
				close(held)
				<-release
			}
			ended := make(chan driver.Record)
			go func() { got, _ := s.Load(context.Background(), id); ended <- got }()
			<-held
			w.durable.gate = nil
			forget(t, s, id, rec.Owner())
			close(release)
			if got := <-ended; got.State != driver.Done {
				t.Fatalf("the reader got a record that is %s", got.State)
			}
			if got := load(t, s, id); got.State != driver.Absent {
				t.Errorf("after the Forget it serves a record that is %s", got.State)
			}
		})
	}
}

// A copy that a reader has taken out of the cache does not get into the memory after a Forget.
func TestASlowReaderOfTheCacheBringsNothingIntoTheMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, release := make(chan struct{}), make(chan struct{})
	slow := &lateGet{cache: w.cache}
	s := tieredstore.New(w.durable, tieredstore.Options{Clock: w.Now, Cache: slow, CacheTimeout: patient, Memory: bigMemory})
	id := newID()
	rec := finish(t, s, id, ask(driver.Hold))
	other := w.process(layers{cached: true})
	load(t, other, id) // makes the copy in the cache
	slow.gate = func() {
		close(held)
		<-release
	}
	ended := make(chan driver.Record)
	go func() { got, _ := s.Load(context.Background(), id); ended <- got }()
	<-held
	slow.gate = nil
	forget(t, s, id, rec.Owner())
	close(release)
	if got := <-ended; got.State != driver.Done {
		t.Fatalf("the reader got a record that is %s", got.State)
	}
	if got := load(t, s, id); got.State != driver.Absent {
		t.Errorf("after the Forget it serves a record that is %s", got.State)
	}
}

// lateGet is a cache whose Get has its reply pass a gate.
type lateGet struct {
	*cache
	gate func()
}

func (c *lateGet) Get(ctx context.Context, id driver.ID) (driver.Record, uint64, error) {
	gate := c.gate
	rec, ticket, err := c.cache.Get(ctx, id)
	if gate != nil {
		gate()
	}
	return rec, ticket, err
}

// Another process may serve its own copy of a forgotten record, for as long as Memory.Age and no longer.
func TestAForgetReachesOtherProcessesWithinTheAgeOfTheirCopies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.process(allLayers[3]), w.process(allLayers[3])
	c := ask(driver.Hold)
	id := newID()
	rec := finish(t, a, id, c)
	load(t, b, id)
	w.Advance(time.Second)
	forget(t, a, id, rec.Owner())
	if w.cache.holds(id) {
		t.Error("the cache holds a copy of a record that was forgotten")
	}
	if got := load(t, a, id); got.State != driver.Absent {
		t.Errorf("the process that forgot it serves a record that is %s", got.State)
	}
	w.Advance(tieredstore.MaxMemoryAge - time.Second - 1)
	if got := load(t, b, id); got.State != driver.Done {
		t.Errorf("the other process has no copy: its record is %s", got.State)
	}
	w.Advance(1)
	if got := load(t, b, id); got.State != driver.Absent {
		t.Errorf("%s after it was read the other process serves a record that is %s", tieredstore.MaxMemoryAge, got.State)
	}
	if rec, owned, err := b.Claim(t.Context(), id, retry(c)); err != nil || !owned {
		t.Errorf("the key is not new in the other process: %s, %v", rec.State, err)
	}
}

// A Forget that the durable store has executed, and of which the cache can't be told, says so. It is tried a few times,
// whatever the breaker says, and can be repeated.
func TestAForgetThatCannotReachTheCacheSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		durable, c := newDurable(t, time.Now), newCache(time.Now)
		log := &breaker{refuses: true}
		s := tieredstore.New(durable, tieredstore.Options{Cache: c, Memory: bigMemory, Breaker: log})
		other := tieredstore.New(durable, tieredstore.Options{Cache: c})
		id := newID()
		rec := finish(t, s, id, ask(driver.Hold))
		load(t, other, id) // makes the copy
		down := true
		c.gate = func(_ context.Context, verb string, _ driver.ID) error {
			if down && verb == "forget" {
				return errDown
			}
			return nil
		}
		_, err := s.(driver.Seizer).Forget(t.Context(), id, rec.Owner())
		if !errors.Is(err, tieredstore.ErrCopyLeft) || !errors.Is(err, errDown) {
			t.Fatalf("error %v, want one that is ErrCopyLeft and has the reason", err)
		}
		if !strings.Contains(err.Error(), id.String()) {
			t.Errorf("the error does not name the operation: %v", err)
		}
		if got := load(t, s, id); got.State != driver.Absent {
			t.Errorf("the process serves its own copy: %s", got.State)
		}
		if got := load(t, other, id); got.State != driver.Done {
			t.Errorf("the copy that the error tells of is not there: %s", got.State)
		}
		down = false
		if forgotten, err := s.(driver.Seizer).Forget(t.Context(), id, rec.Owner()); err != nil || forgotten {
			t.Errorf("Forget, repeated: %t, error %v; want a refusal, since it is forgotten", forgotten, err)
		}
		if got := load(t, other, id); got.State != driver.Absent {
			t.Errorf("after the repetition there is still a copy: %s", got.State)
		}
	})
}

func TestAForgetTriesTheCacheAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		durable, c := newDurable(t, time.Now), newCache(time.Now)
		s := tieredstore.New(durable, tieredstore.Options{Cache: c})
		id := newID()
		rec := finish(t, s, id, ask(driver.Hold))
		load(t, s, id)
		tries := 0
		c.gate = func(ctx context.Context, verb string, _ driver.ID) error {
			if tries++; tries < 3 {
				<-ctx.Done() // no reply
				return ctx.Err()
			}
			return nil
		}
		forget(t, s, id, rec.Owner())
		if tries != 3 || c.holds(id) {
			t.Errorf("%d tries; a copy is left: %t", tries, c.holds(id))
		}
	})
}

// What was not forgotten, because the durable store failed, keeps its copies; what an operator decides goes to the
// durable store.
func TestAFailedForgetChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true})
	id := newID()
	rec := finish(t, s, id, ask(driver.Hold))
	load(t, s, id)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if forgotten, err := s.(driver.Seizer).Forget(ended, id, rec.Owner()); err == nil || forgotten {
		t.Errorf("Forget with a context that has ended: %t, error %v", forgotten, err)
	}
	if !w.cache.holds(id) || w.cache.called("forget") != 0 {
		t.Error("its copy was dropped")
	}
}

// Drop is for those who change a record by other means.
func TestADropReachesAllCopies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true, memory: true})
	id := newID()
	rec := finish(t, s, id, ask(driver.Hold))
	load(t, s, id)
	forget(t, w.durable, id, rec.Owner())
	if got := load(t, s, id); got.State != driver.Done {
		t.Fatalf("there was no copy: %s", got.State)
	}
	if err := s.(tieredstore.Dropper).Drop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := load(t, s, id); got.State != driver.Absent {
		t.Errorf("after Drop it serves a record that is %s", got.State)
	}
}
