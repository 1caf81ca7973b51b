package tieredstore_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/storetest"
	"github.com/semelhq/semel/tieredstore"
)

// A store in front of another keeps every promise of it. Two processes see a Forget of each other at once, as the suite
// asks for, where no layer in the process is in between; with one they are one process here.
func TestR88_TheLayersKeepEveryPromise(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Storage {
				w := newWorld(t)
				one := w.process(l)
				return storetest.Storage{
					Open: func(*testing.T) driver.Store {
						if l.memory {
							return one
						}
						return w.process(l)
					},
					Advance: w.Advance,
				}
			})
		})
	}
}

// A cache can be wrong in many ways; none of them changes what the store promises.
func TestR88_ACacheThatFailsMakesNothingWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(*cache) tieredstore.Cache{
		"gets fail":       func(c *cache) tieredstore.Cache { return failing{c, "get"} },
		"fills fail":      func(c *cache) tieredstore.Cache { return failing{c, "fill"} },
		"fills are lost":  func(c *cache) tieredstore.Cache { return losing{c} },
		"it holds rubble": func(c *cache) tieredstore.Cache { return rubble{c} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Storage {
				w := newWorld(t)
				return storetest.Storage{
					Open: func(*testing.T) driver.Store {
						return tieredstore.New(w.durable, tieredstore.Options{Clock: w.Now, Cache: c(w.cache), CacheTimeout: patient})
					},
					Advance: w.Advance,
				}
			})
		})
	}
}

// failing is a cache of which one verb fails.
type failing struct {
	*cache
	verb string
}

func (f failing) Get(ctx context.Context, id driver.ID) (driver.Record, uint64, error) {
	rec, ticket, err := f.cache.Get(ctx, id)
	if f.verb == "get" {
		err = errDown
	}
	return rec, ticket, err
}

func (f failing) Fill(ctx context.Context, id driver.ID, rec driver.Record, ticket uint64) error {
	if f.verb == "fill" {
		return errDown
	}
	return f.cache.Fill(ctx, id, rec, ticket)
}

// losing is a cache that says that it has kept what it has not.
type losing struct{ *cache }

func (losing) Fill(context.Context, driver.ID, driver.Record, uint64) error { return nil }

// rubble is a cache that returns records which no fill has put there: of every state but done within its retention.
type rubble struct{ *cache }

func (r rubble) Get(ctx context.Context, id driver.ID) (driver.Record, uint64, error) {
	rec, ticket, err := r.cache.Get(ctx, id)
	if err != nil {
		return rec, ticket, err
	}
	r.mu.Lock()
	r.tick++
	n := r.tick
	r.mu.Unlock()
	now := driver.TimeOf(r.clock())
	switch n % 5 {
	case 0: // past its retention
		rec = driver.Record{State: driver.Done, Fence: 1, Settled: now.Add(-2), Retention: 2, Response: &driver.Response{Status: 200}}
	case 1:
		rec = driver.Record{State: driver.Running, Fence: 1 << 62, Token: driver.NewToken(), LeaseEnd: now.Add(1 << 40)}
	case 2:
		rec = driver.Record{State: driver.Free, Fence: 3, Settled: now}
	case 3:
		rec = driver.Record{State: driver.Unknown, Fence: 3, Settled: now}
	case 4:
		rec = driver.Record{State: 77, Settled: now, Retention: driver.Forever}
	}
	return rec, ticket, nil
}

// What the durable store is, the store in front of it is, and no more.
func TestOptionalInterfacesAreThoseOfTheDurableStore(t *testing.T) {
	t.Parallel()
	type caps struct{ seizes, lists, steps, audits, counts, transacts bool }
	of := func(s driver.Store) (c caps) {
		_, c.seizes = s.(driver.Seizer)
		_, c.lists = s.(driver.Lister)
		_, c.steps = s.(driver.StepStore)
		_, c.audits = s.(driver.Auditor)
		_, c.counts = s.(driver.Counter)
		_, c.transacts = s.(driver.Transactor)
		return c
	}
	type (
		seizer = struct {
			driver.Store
			driver.Seizer
		}
		lister = struct {
			driver.Store
			driver.Seizer
			driver.Lister
		}
		stepper = struct {
			driver.StepStore
			driver.Seizer
			driver.Lister
		}
		auditor = struct {
			driver.StepStore
			driver.Seizer
			driver.Lister
			driver.Auditor
		}
		counter = struct {
			driver.StepStore
			driver.Seizer
			driver.Lister
			driver.Auditor
			driver.Counter
		}
	)
	stores := []driver.Store{
		struct{ driver.Store }{},
		seizer{},
		lister{},
		stepper{},
		auditor{},
		counter{},
		struct{ driver.Transactor }{},
		struct {
			driver.Seizer
			driver.Transactor
		}{},
		struct {
			driver.Seizer
			driver.Lister
			driver.Transactor
		}{},
		struct {
			driver.Seizer
			driver.Lister
			steps
			driver.Transactor
		}{},
		struct {
			driver.Seizer
			driver.Lister
			steps
			driver.Auditor
			driver.Transactor
		}{},
		struct {
			driver.Seizer
			driver.Lister
			steps
			driver.Auditor
			driver.Counter
			driver.Transactor
		}{},
	}
	for _, durable := range stores {
		s := tieredstore.New(durable, tieredstore.Options{})
		if got, want := of(s), of(durable); got != want {
			t.Errorf("in front of a %T: %+v, want %+v", durable, got, want)
		}
		if _, ok := s.(tieredstore.Dropper); !ok {
			t.Errorf("in front of a %T: no Dropper", durable)
		}
	}
	// Each is there only with those before it.
	s := tieredstore.New(struct {
		driver.Store
		driver.Lister
	}{}, tieredstore.Options{})
	if got := of(s); got != (caps{}) {
		t.Errorf("in front of a Lister alone: %+v, want nothing", got)
	}
	s = tieredstore.New(struct {
		driver.Store
		driver.Seizer
		driver.Lister
		driver.Auditor
	}{}, tieredstore.Options{})
	if got := of(s); got != (caps{seizes: true, lists: true}) {
		t.Errorf("in front of a store without steps: %+v, want no trail either", got)
	}
}

// steps are what makes a store a StepStore.
type steps struct{}

func (steps) SaveStep(context.Context, driver.ID, driver.Owner, string, []byte) (bool, error) {
	return true, nil
}

func (steps) Steps(context.Context, driver.ID) (map[string][]byte, error) { return nil, nil }

// R-16 holds on the path of the layers: a key that was used for one request is refused to another, and the record and
// its copies stay as they are.
func TestR16_AnotherRequestIsRefusedByTheCopyToo(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers[1:] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			runs := 0
			serve := func(s driver.Store) http.Handler {
				g, err := semel.New(s, semel.SingleTenant, driver.Hold, semel.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					runs++
					w.WriteHeader(http.StatusCreated)
					w.Write([]byte("paid"))
				}))
			}
			first, second := serve(w.process(l)), serve(w.process(l))
			send(t, first, "k", "amount=5", http.StatusCreated, "paid")
			send(t, first, "k", "amount=5", http.StatusCreated, "paid") // makes the copies
			if !l.cached {
				second = first // copies are in one process
			}
			send(t, second, "k", "amount=5", http.StatusCreated, "paid") // asks the durable store for its clock
			w.durable.asked.Store(0)
			send(t, second, "k", "amount=6", http.StatusUnprocessableEntity, "")
			send(t, second, "k", "amount=5", http.StatusCreated, "paid")
			send(t, second, "k", "amount=6", http.StatusUnprocessableEntity, "")
			w.durable.none(t, "repeats and other requests")
			if runs != 1 {
				t.Errorf("the handler ran %d times, want once", runs)
			}
		})
	}
}

// While the durable store is down, repeats that a layer can answer are answered, and nothing else is.
func TestRepeatsAreAnsweredWhileTheDurableStoreIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true})
	c := ask(driver.Hold)
	id := newID()
	want := finish(t, s, id, c)
	refuse(t, s, id, retry(c))
	w.durable.down.Store(true)
	if got := refuse(t, s, id, retry(c)); got.Token != want.Token || got.Response == nil {
		t.Errorf("the repeat got %+v", got)
	}
	if _, _, err := s.Claim(t.Context(), newID(), c); !errors.Is(err, errDown) {
		t.Errorf("a new key: error %v, want that of the durable store", err)
	}
}

// What the durable store learns from other processes reaches the guard.
func TestWakeIsThatOfTheDurableStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	err := w.process(layers{}).(driver.Waker).Wake(t.Context(), nil)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("in front of a store that learns nothing: error %v, want errors.ErrUnsupported", err)
	}
	want, got := newID(), driver.ID{}
	s := tieredstore.New(waker{w.durable, want}, tieredstore.Options{})
	if err := s.(driver.Waker).Wake(t.Context(), func(id driver.ID) { got = id }); !errors.Is(err, errDown) || got != want {
		t.Errorf("woken for %s, error %v; want %s, %v", got, err, want, errDown)
	}
}

func TestAScanIsThatOfTheDurableStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.process(layers{}).(driver.Scanner).Scan(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("in front of a store that need not scan: error %v, want errors.ErrUnsupported", err)
	}
	s := tieredstore.New(scanner{w.durable}, tieredstore.Options{})
	if err := s.(driver.Scanner).Scan(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("the scan ended with %v, want %v", err, errDown)
	}
}

// scanner is a store whose scan fails.
type scanner struct{ *counted }

func (scanner) Scan(context.Context) error { return errDown }

// waker is a store that learns of one settle.
type waker struct {
	driver.Store
	id driver.ID
}

func (w waker) Wake(_ context.Context, settled func(driver.ID)) error {
	settled(w.id)
	return errDown
}
