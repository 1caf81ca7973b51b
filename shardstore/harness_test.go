package shardstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/shardstore"
)

// A full store has every optional interface that shards can pass on.
type full interface {
	driver.StepStore
	driver.Seizer
	driver.Lister
	driver.Auditor
	driver.Counter
}

var errDown = errors.New("connection refused")

// A site is servers: each has a storage, and can be down.
type site struct {
	*verbs.Clock
	servers []*server
}

func newSite(t testing.TB, n int) *site {
	t.Helper()
	s := &site{Clock: verbs.NewClock()}
	for i := range n {
		m, err := memstore.Open(memstore.Options{Clock: s.Now})
		if err != nil {
			t.Fatal(err)
		}
		s.servers = append(s.servers, &server{name: fmt.Sprint("s", i), Store: m})
	}
	return s
}

// shards returns all servers as shards. Those from joining on join.
func (s *site) shards(joining int) (shards []shardstore.Shard) {
	for i, at := range s.servers {
		shards = append(shards, shardstore.Shard{Name: at.name, Store: at, Joins: i >= joining})
	}
	return shards
}

func open(t testing.TB, shards []shardstore.Shard, c shardstore.Change) full {
	t.Helper()
	s, err := shardstore.New(shards, shardstore.Options{Change: c})
	if err != nil {
		t.Fatal(err)
	}
	return s.(full)
}

// A server is a store that can be down, and that notes which verb is asked for which id. It keeps an audit trail too.
type server struct {
	*memstore.Store
	name string
	down atomic.Bool

	mu    sync.Mutex
	asked []request
	trail []driver.AuditEntry
}

type request struct {
	verb string
	id   driver.ID
}

func (s *server) enter(verb string, id driver.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, request{verb, id})
	if s.down.Load() {
		return errDown
	}
	return nil
}

// heard returns what was asked since the last time.
func (s *server) heard() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *server) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if err := s.enter("claim", id); err != nil {
		return driver.Record{}, false, err
	}
	return s.Store.Claim(ctx, id, c)
}

func (s *server) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if err := s.enter("extend", id); err != nil {
		return false, err
	}
	return s.Store.Extend(ctx, id, by, x)
}

func (s *server) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if err := s.enter("settle", id); err != nil {
		return driver.Record{}, false, err
	}
	return s.Store.Settle(ctx, id, by, o)
}

func (s *server) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := s.enter("load", id); err != nil {
		return driver.Record{}, err
	}
	return s.Store.Load(ctx, id)
}

func (s *server) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	if err := s.enter("seize", id); err != nil {
		return driver.Record{}, err
	}
	return s.Store.Seize(ctx, id, t)
}

func (s *server) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	if err := s.enter("forget", id); err != nil {
		return false, err
	}
	return s.Store.Forget(ctx, id, by)
}

func (s *server) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	if err := s.enter("save step", id); err != nil {
		return false, err
	}
	return s.Store.SaveStep(ctx, id, by, name, result)
}

func (s *server) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	if err := s.enter("steps", id); err != nil {
		return nil, err
	}
	return s.Store.Steps(ctx, id)
}

func (s *server) Sweep(ctx context.Context, limit int) (int, error) {
	if err := s.enter("sweep", driver.ID{}); err != nil {
		return 0, err
	}
	return s.Store.Sweep(ctx, limit)
}

func (s *server) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	if err := s.enter("list", driver.ID{}); err != nil {
		return err
	}
	return s.Store.List(ctx, q, yield)
}

func (s *server) Count(ctx context.Context) (driver.Counts, error) {
	if err := s.enter("count", driver.ID{}); err != nil {
		return driver.Counts{}, err
	}
	return s.Store.Count(ctx)
}

func (s *server) Audit(ctx context.Context, e driver.AuditEntry) error {
	if err := s.enter("audit", e.ID); err != nil {
		return err
	}
	rec, err := s.Store.Load(ctx, e.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At = rec.Now
	s.trail = append(s.trail, e)
	return err
}

func (s *server) AuditTrail(_ context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	if err := s.enter("trail", driver.ID{}); err != nil {
		return err
	}
	given := 0
	for i := len(s.trail) - 1; i >= 0; i-- {
		if id != nil && s.trail[i].ID != *id {
			continue
		}
		if given++; !yield(s.trail[i]) || given == limit {
			return nil
		}
	}
	return nil
}
