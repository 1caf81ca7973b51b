package tieredstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/tieredstore"
)

var (
	newID    = verbs.NewID
	retry    = verbs.Retry
	load     = verbs.Load
	newClock = verbs.NewClock
)

// A cache is a [tieredstore.Cache] in memory. A gate, if there is one, is passed before each call, and may wait or
// fail.
type cache struct {
	clock func() time.Time
	gate  func(ctx context.Context, verb string, id driver.ID) error

	mu     sync.Mutex
	tick   uint64 // grows with each ticket and each forget
	copies map[driver.ID]kept
	forgot map[driver.ID]uint64
	calls  map[string]int
}

type kept struct {
	rec   driver.Record
	until time.Time
}

func newCache(now func() time.Time) *cache {
	return &cache{clock: now, copies: map[driver.ID]kept{}, forgot: map[driver.ID]uint64{}, calls: map[string]int{}}
}

func (c *cache) enter(ctx context.Context, verb string, id driver.ID) error {
	if c.gate != nil {
		if err := c.gate(ctx, verb, id); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[verb]++
	return ctx.Err()
}

func (c *cache) Get(ctx context.Context, id driver.ID) (driver.Record, uint64, error) {
	if err := c.enter(ctx, "get", id); err != nil {
		return driver.Record{}, 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.copies[id]; ok && c.clock().Before(k.until) {
		rec := k.rec
		rec.Now = 0 // what a cache makes of it must not matter
		return rec, 0, nil
	}
	c.tick++
	return driver.Record{}, c.tick, nil
}

func (c *cache) Fill(ctx context.Context, id driver.ID, rec driver.Record, ticket uint64) error {
	if err := c.enter(ctx, "fill", id); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ticket == 0 || ticket > c.tick {
		return errors.New("no ticket of this cache")
	}
	if c.forgot[id] >= ticket {
		return nil
	}
	c.copies[id] = kept{rec, c.clock().Add(rec.Settled.Add(rec.Retention).Sub(rec.Now))}
	return nil
}

func (c *cache) Forget(ctx context.Context, id driver.ID) error {
	if err := c.enter(ctx, "forget", id); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick++
	c.forgot[id] = c.tick
	delete(c.copies, id)
	return nil
}

// holds reports whether there is a copy.
func (c *cache) holds(id driver.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.copies[id]
	return ok
}

func (c *cache) called(verb string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[verb]
}

// counted is a durable store that counts what it is asked. A gate, if there is one, is passed after each Claim and
// Load: what was read is on its way back.
type counted struct {
	*memstore.Store
	asked atomic.Int64
	gate  func(verb string)
	down  atomic.Bool
}

var errDown = errors.New("connection refused")

func newDurable(t testing.TB, now func() time.Time) *counted {
	t.Helper()
	s, err := memstore.Open(memstore.Options{Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	return &counted{Store: s}
}

func (s *counted) pass(verb string) {
	s.asked.Add(1)
	if s.gate != nil {
		s.gate(verb)
	}
}

func (s *counted) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if s.down.Load() {
		return driver.Record{}, false, errDown
	}
	rec, owned, err := s.Store.Claim(ctx, id, c)
	s.pass("claim")
	return rec, owned, err
}

func (s *counted) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if s.down.Load() {
		return driver.Record{}, errDown
	}
	rec, err := s.Store.Load(ctx, id)
	s.pass("load")
	return rec, err
}

// none fails unless nothing was asked since it was last called.
func (s *counted) none(t testing.TB, what string) {
	t.Helper()
	if n := s.asked.Swap(0); n != 0 {
		t.Errorf("%s: the durable store was asked %d times, want never", what, n)
	}
}

// A world is a durable store and a cache, with processes in front that share nothing else.
type world struct {
	*verbs.Clock
	durable *counted
	cache   *cache
}

func newWorld(t testing.TB) *world {
	t.Helper()
	c := newClock()
	return &world{c, newDurable(t, c.Now), newCache(c.Now)}
}

// The layers that a process may have.
type layers struct {
	name           string
	cached, memory bool
}

var allLayers = []layers{
	{"none", false, false},
	{"memory", false, true},
	{"cache", true, false},
	{"both", true, true},
}

// patient is a timeout of the cache that does not pass while a test is held up.
const patient = time.Hour

var bigMemory = tieredstore.Memory{Entries: 10_000}

// process returns one more process.
func (w *world) process(l layers) driver.Store {
	o := tieredstore.Options{Clock: w.Now}
	if l.cached {
		o.Cache, o.CacheTimeout = w.cache, patient
	}
	if l.memory {
		o.Memory = bigMemory
	}
	return tieredstore.New(w.durable, o)
}

func ask(p driver.LostPolicy) driver.Claim {
	return driver.Claim{
		Fingerprint: driver.Fingerprint{Raw: driver.NewToken()}, Token: driver.NewToken(), Lease: time.Minute, Retention: time.Hour,
		OnLost: p, Operation: "POST /payments", Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	}
}

func done(body string) driver.Outcome {
	return driver.Outcome{State: driver.Done, Response: &driver.Response{
		Status: 201, Header: map[string][]string{"Location": {"/payments/7"}}, Body: []byte(body),
	}}
}

// finish runs an operation to its end.
func finish(t testing.TB, s driver.Store, id driver.ID, c driver.Claim) driver.Record {
	t.Helper()
	rec, owned, err := s.Claim(context.Background(), id, c)
	if err != nil || !owned {
		t.Fatalf("Claim: owned is %t, error %v", owned, err)
	}
	rec, owned, err = s.Settle(context.Background(), id, rec.Owner(), done("paid"))
	if err != nil || !owned {
		t.Fatalf("Settle: owned is %t, error %v", owned, err)
	}
	return rec
}

// refuse claims and must not own.
func refuse(t testing.TB, s driver.Store, id driver.ID, c driver.Claim) driver.Record {
	t.Helper()
	rec, owned, err := s.Claim(context.Background(), id, c)
	if err != nil || owned {
		t.Fatalf("Claim: owned is %t, error %v; want a refusal", owned, err)
	}
	return rec
}

func forget(t testing.TB, s driver.Store, id driver.ID, by driver.Owner) {
	t.Helper()
	if forgotten, err := s.(driver.Seizer).Forget(context.Background(), id, by); err != nil || !forgotten {
		t.Fatalf("Forget: %t, error %v", forgotten, err)
	}
}
