package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// A usage counts what one principal's records take of the store.
type usage struct {
	scope          driver.ScopeID
	records, bytes atomic.Int64
}

// usages holds the usage of each principal that has records. A record joins under mu, locked for reading where
// possible, so that no record joins a usage that is being removed.
type usages struct {
	limit int64 // records of one principal

	mu sync.RWMutex
	of map[driver.ScopeID]*usage
}

// join counts a record of the principal, and returns its usage; ok is false if the usage has no room. The store's own
// records belong to no principal and have no usage.
func (s *usages) join(id *driver.ID) (u *usage, ok bool) {
	if id.Reserved() {
		return nil, true
	}
	scope := id.Scope()
	s.mu.RLock()
	if u = s.of[scope]; u != nil {
		ok = add(&u.records, 1, s.limit, true)
	}
	s.mu.RUnlock()
	if u != nil {
		return u, ok
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u = s.of[scope]; u == nil {
		u = &usage{scope: scope}
		s.of[scope] = u
	}
	return u, add(&u.records, 1, s.limit, true)
}

// leave takes a record back.
func (s *usages) leave(u *usage) {
	if u == nil || u.records.Add(-1) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.records.Load() == 0 && s.of[u.scope] == u {
		delete(s.of, u.scope)
	}
}
