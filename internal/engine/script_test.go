package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// A script is a store that does what a test says before, or in place of, a verb.
type script struct {
	*memstore.Store
	mu     sync.Mutex
	before map[string]func() error // by verb; an error is the verb's reply
	asked  map[string]int
}

func newScript() *script {
	return &script{Store: memstore.New(), before: map[string]func() error{}, asked: map[string]int{}}
}

// on has f called before each verb of a name; nil for nothing.
func (s *script) on(verb string, f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[verb] = f
}

func (s *script) count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[verb]
}

func (s *script) ask(verb string) error {
	s.mu.Lock()
	s.asked[verb]++
	f := s.before[verb]
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}

func (s *script) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if err := s.ask("claim"); err != nil {
		return driver.Record{}, false, err
	}
	return s.Store.Claim(ctx, id, c)
}

func (s *script) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if err := s.ask("extend"); err != nil {
		return false, err
	}
	return s.Store.Extend(ctx, id, by, x)
}

func (s *script) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if err := s.ask("settle"); err != nil {
		return driver.Record{}, false, err
	}
	return s.Store.Settle(ctx, id, by, o)
}

func (s *script) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := s.ask("load"); err != nil {
		return driver.Record{}, err
	}
	return s.Store.Load(ctx, id)
}

func (s *script) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	owned, err := s.Store.SaveStep(ctx, id, by, name, result)
	if lost := s.ask("savestep"); lost != nil {
		return false, lost
	}
	return owned, err
}

// told keeps what an engine's observer was told.
type told struct {
	mu   sync.Mutex
	list []event.Event
}

func (o *told) Observe(_ context.Context, e event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, e)
}

func (o *told) count(k event.Kind) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.list {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// testPolicy is that of the routes of tests.
func testPolicy(onLost driver.LostPolicy) Policy {
	return Policy{
		OnLost: onLost, Lease: 30 * time.Second, MaxRun: time.Minute, SettleWait: 5 * time.Second,
		Retention: time.Hour, MinRetention: time.Minute, MaxRetention: time.Hour, MaxWaiters: 2,
	}
}

// newRoute returns a route of a new engine over a store, and what its observer is told.
func newRoute(s driver.Store, p Policy, b driver.Breaker) (*Route, *told) {
	seen := &told{}
	e := New(Config{
		Store: s, Observer: seen, Breaker: b, Life: 30 * time.Second, MaxAttempts: -1,
		MaxReleases: 10, MaxWaiting: 10, Share: 1,
	})
	e.SecretKnown()
	return e.Route(p, 0), seen
}

func askFor(n int) *Ask {
	return &Ask{ID: numberedID(n), Operation: "pay", Fingerprint: driver.Fingerprint{Raw: [16]byte{1}}}
}

// started returns a run of a new operation.
func started(t *testing.T, r *Route, n int) *Run {
	t.Helper()
	var rec driver.Record
	run, refused := r.Enter(t.Context(), askFor(n), &rec)
	if run == nil {
		t.Fatalf("no run: %v, the record is %v", refused, rec.State)
	}
	return run
}

// apart runs f on a goroutine, and waits until that has ended, be it by runtime.Goexit.
func apart(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

// drained fails the test if the engine does not come to rest within an hour.
func drained(t *testing.T, e *Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := e.Drain(ctx); err != nil {
		t.Error(err)
	}
	if left := e.Stats(); left != (Stats{}) {
		t.Errorf("it is left with %+v", left)
	}
}
