package batch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/batch"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// A guard without an identity secret says so to the default logger.
func init() { slog.SetDefault(slog.New(slog.DiscardHandler)) }

var errDown = errors.New("the store is down")

// A store counts its claims, and can be made to fail.
type store struct {
	*memstore.Store
	claim  func() error // fails a claim of an item
	settle func() error // fails a settle

	mu     sync.Mutex
	claims int
}

func newStore() *store { return &store{Store: memstore.New()} }

func (s *store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if c.Operation != "pay" { // the guard's own, of its identity
		return s.Store.Claim(ctx, id, c)
	}
	s.mu.Lock()
	s.claims++
	s.mu.Unlock()
	if s.claim != nil {
		if err := s.claim(); err != nil {
			return driver.Record{}, false, err
		}
	}
	return s.Store.Claim(ctx, id, c)
}

func (s *store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if s.settle != nil {
		if err := s.settle(); err != nil {
			return driver.Record{}, false, err
		}
	}
	return s.Store.Settle(ctx, id, by, o)
}

// record returns what is stored of the item k<i>.
func (s *store) record(t *testing.T, i int) driver.Record {
	t.Helper()
	rec, err := s.Load(context.Background(), semel.Identify(nil, semel.KindDo, "alice", fmt.Sprint("k", i)))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// An observer remembers how calls were decided, in the order of the names.
type observer struct {
	mu   sync.Mutex
	list []string
}

func (o *observer) Observe(_ context.Context, e event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e.Kind {
	case event.Decision:
		o.list = append(o.list, string(e.Result))
	case event.Panic:
		o.list = append(o.list, "panic")
	}
}

func (o *observer) decided() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.list)
	return o.list
}

func newGuard(t *testing.T, s driver.Store, o semel.Options) (*semel.Guard, *observer) {
	t.Helper()
	seen := &observer{}
	o.Observer = seen
	g, err := semel.New(s, semel.SingleTenant, o.Policy.OnLost, o)
	if err != nil {
		t.Fatal(err)
	}
	return g, seen
}

func key(i int) semel.Key {
	return semel.Key{Scope: "alice", Operation: "pay", Value: fmt.Sprint("k", i)}
}

// items returns n items of alice's, with the keys k0 to kn.
func items(n int) (list []batch.Item) {
	for i := range n {
		list = append(list, batch.Item{Key: key(i), Request: semel.Bytes(fmt.Sprint("request ", i))})
	}
	return list
}

func tenfold(_ context.Context, i int) (int, error) { return 10 * i, nil }

// check checks the results: a number is the item's value, an error what its error wraps.
func check(t *testing.T, results []batch.Result[int], want ...any) {
	t.Helper()
	if len(results) != len(want) {
		t.Fatalf("%d results for %d items", len(results), len(want))
	}
	for i, r := range results {
		switch want := want[i].(type) {
		case error:
			if !errors.Is(r.Err, want) || r.Value != 0 {
				t.Errorf("item %d: %d, %v; want %v", i, r.Value, r.Err, want)
			}
		default:
			if r.Value != want || r.Err != nil {
				t.Errorf("item %d: %d, %v; want %d", i, r.Value, r.Err, want)
			}
		}
	}
}

func drain(t *testing.T, g *semel.Guard) {
	t.Helper()
	if err := g.Drain(t.Context()); err != nil {
		t.Errorf("drain: %v", err)
	}
}
