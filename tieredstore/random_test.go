package tieredstore_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/tieredstore"
)

// Two processes and their operators do what they like with a few keys. Each call of the durable store and of the cache
// waits until the schedule, which is drawn at random, comes to it, so that every reader may be overtaken between any
// two of its steps. Whatever the order:
//
//   - nothing is served that was forgotten before the reader began: neither from the cache, nor by the process that has
//     forgotten it, nor by another one later than Memory.Age;
//   - nothing is served past its retention;
//   - a run begins only where the operation before it was forgotten or is past.
func TestNoScheduleServesWhatWasForgotten(t *testing.T) {
	t.Parallel()
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	for _, l := range allLayers[1:] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			hits := 0
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					s := newSchedule(t, seed, l)
					for range 120 {
						s.turn(t)
					}
					s.finish(t)
					hits += s.hits
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if hits < 100 {
				t.Errorf("copies were served %d times: nothing was tried", hits)
			}
		})
	}
}

// A schedule lets one waiting call go on at a time. All that it holds changes only while everybody else waits.
type schedule struct {
	*rand.Rand
	layers    layers
	durable   *counted
	cache     *cache
	processes [2]driver.Store
	waiting   []chan struct{}
	busy      int
	ids       []driver.ID
	running   map[driver.ID]driver.Record // the last run that began, if it is not settled
	ended     map[driver.Token]*outcome
	arrivals  chan chan struct{}
	results   chan func(*testing.T)
	turns     int
	hits      int
}

func (s *schedule) now() moment { return moment{s.turns, time.Now()} }

// A moment is a place in the order of things, and its time.
type moment struct {
	turn int
	at   time.Time
}

// outcome is what became of a run that was settled as done.
type outcome struct {
	end       driver.Time // of its retention
	forgotten moment      // when its Forget had returned; zero if none has
	by        int         // the process that has forgotten it
}

func newSchedule(t *testing.T, seed uint64, l layers) *schedule {
	s := &schedule{
		Rand: rand.New(rand.NewPCG(seed, 9)), layers: l, ids: []driver.ID{newID(), newID()},
		running: map[driver.ID]driver.Record{}, ended: map[driver.Token]*outcome{},
		arrivals: make(chan chan struct{}, 100), results: make(chan func(*testing.T), 100),
	}
	s.durable, s.cache = newDurable(t, time.Now), newCache(time.Now)
	s.durable.gate = func(string) { s.wait() }
	s.cache.gate = func(_ context.Context, verb string, _ driver.ID) error {
		s.wait()
		return nil
	}
	for i := range s.processes {
		o := tieredstore.Options{CacheTimeout: time.Hour}
		if l.cached {
			o.Cache = gatedTwice{s.cache, s}
		}
		if l.memory {
			o.Memory = bigMemory
		}
		s.processes[i] = tieredstore.New(slowSeizer{s.durable, s}, o)
	}
	return s
}

// wait waits for the schedule to come to the caller.
func (s *schedule) wait() {
	turn := make(chan struct{})
	s.arrivals <- turn
	<-turn
}

// gatedTwice has the replies of a cache wait too.
type gatedTwice struct {
	*cache
	s *schedule
}

func (g gatedTwice) Get(ctx context.Context, id driver.ID) (driver.Record, uint64, error) {
	rec, ticket, err := g.cache.Get(ctx, id)
	g.s.wait()
	return rec, ticket, err
}

func (g gatedTwice) Forget(ctx context.Context, id driver.ID) error {
	err := g.cache.Forget(ctx, id)
	g.s.wait()
	return err
}

// slowSeizer has a Forget wait before and after it was executed.
type slowSeizer struct {
	*counted
	s *schedule
}

func (z slowSeizer) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	z.s.wait()
	forgotten, err := z.counted.Forget(ctx, id, by)
	z.s.wait()
	return forgotten, err
}

// settle lets everybody come to a gate or an end, and takes note of both.
func (s *schedule) settle(t *testing.T) {
	for {
		synctest.Wait()
		select {
		case turn := <-s.arrivals:
			s.waiting = append(s.waiting, turn)
		case note := <-s.results:
			s.busy--
			note(t)
		default:
			return
		}
	}
}

// turn does one thing: it begins a call, lets one go on, or has time pass.
func (s *schedule) turn(t *testing.T) {
	s.turns++
	switch n := s.IntN(20); {
	case n < 6 && s.busy < 6:
		s.begin()
	case n == 6:
		time.Sleep(time.Duration(s.IntN(4000)) * time.Millisecond)
	default:
		s.release()
	}
	s.settle(t)
}

func (s *schedule) release() {
	if len(s.waiting) == 0 {
		return
	}
	i := s.IntN(len(s.waiting))
	close(s.waiting[i])
	s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
}

func (s *schedule) finish(t *testing.T) {
	for s.settle(t); s.busy > 0; s.settle(t) {
		s.release()
	}
}

// call makes a call of a process on a goroutine of its own; what it returns is noted when the schedule comes to it.
func (s *schedule) call(do func(ctx context.Context) func(*testing.T)) {
	s.busy++
	go func() { s.results <- do(context.Background()) }()
}

func (s *schedule) begin() {
	p, id := s.IntN(len(s.processes)), s.ids[s.IntN(len(s.ids))]
	process, began := s.processes[p], s.now()
	switch s.IntN(8) {
	case 0, 1, 2:
		s.call(func(ctx context.Context) func(*testing.T) {
			rec, err := process.Load(ctx, id)
			return func(t *testing.T) { s.served(t, p, began, &rec, err) }
		})
	case 3, 4:
		c := s.ask()
		s.call(func(ctx context.Context) func(*testing.T) {
			rec, owned, err := process.Claim(ctx, id, c)
			if !owned {
				return func(t *testing.T) { s.served(t, p, began, &rec, err) }
			}
			return func(t *testing.T) { s.began(t, id, &rec) }
		})
	case 5:
		rec, ok := s.running[id]
		if !ok {
			return
		}
		delete(s.running, id)
		s.call(func(ctx context.Context) func(*testing.T) {
			rec, owned, err := process.Settle(ctx, id, rec.Owner(), done("paid"))
			return func(t *testing.T) {
				if err != nil || !owned {
					t.Errorf("the only run of an operation was not settled: %t, %v", owned, err)
				}
				s.ended[rec.Token] = &outcome{end: rec.Settled.Add(rec.Retention)}
			}
		})
	case 6:
		rec, err := s.durable.Store.Load(context.Background(), id)
		if err != nil || rec.State != driver.Done || s.ended[rec.Token] == nil {
			return
		}
		s.call(func(ctx context.Context) func(*testing.T) {
			forgotten, err := process.(driver.Seizer).Forget(ctx, id, rec.Owner())
			return func(t *testing.T) {
				if o := s.ended[rec.Token]; err == nil && forgotten && o.forgotten.turn == 0 {
					o.forgotten, o.by = s.now(), p
				}
			}
		})
	case 7:
		s.call(func(ctx context.Context) func(*testing.T) {
			_, err := process.Sweep(ctx, 10)
			return func(t *testing.T) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func (s *schedule) ask() driver.Claim {
	return driver.Claim{
		Token: driver.NewToken(), Lease: time.Hour, OnLost: driver.Hold, Retention: time.Duration(1+s.IntN(20)) * time.Second,
	}
}

// began notes a run.
func (s *schedule) began(t *testing.T, id driver.ID, rec *driver.Record) {
	if r, ok := s.running[id]; ok {
		t.Errorf("two runs at once: %s and %s", r.Token, rec.Token)
	}
	s.running[id] = *rec
}

// served checks a record that a process has returned to a call that began at the given time.
func (s *schedule) served(t *testing.T, p int, began moment, rec *driver.Record, err error) {
	o := s.ended[rec.Token]
	switch {
	case err != nil:
		t.Error(err)
		return
	case rec.State != driver.Done || o == nil: // nil: a settle of which nobody has taken note yet
		return
	case rec.Reads(driver.Hold) != driver.ReadsDone:
		return // as the durable store had it
	}
	s.hits++
	if at := driver.TimeOf(began.at); at >= o.end {
		t.Errorf("served %s past its retention", at.Sub(o.end))
	}
	if rec.Now >= o.end {
		t.Errorf("the answer says of itself that it is past its retention by %s", rec.Now.Sub(o.end))
	}
	if o.forgotten.turn == 0 || began.turn <= o.forgotten.turn {
		return
	}
	since := began.at.Sub(o.forgotten.at)
	if !s.layers.memory || p == o.by || since >= tieredstore.MaxMemoryAge {
		t.Errorf("process %d served, %s later, what process %d had forgotten", p, since, o.by)
	}
}
