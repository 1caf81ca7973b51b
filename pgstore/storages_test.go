package pgstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/storetest"
)

// storages makes storages on one server, each handle with a pool of its own. A storage goes from check to check,
// emptied, with its clock where the last one left it: making a schema and warming up connections takes far longer than
// most checks. They end with the test outer.
type storages struct {
	outer *testing.T
	url   string
	o     Options

	mu   sync.Mutex
	free []*storage
}

type storage struct {
	schema  string
	clock   mover
	handles []*Store
}

func newStorages(outer *testing.T, url string, o Options) *storages {
	return &storages{outer: outer, url: url, o: o}
}

// next returns a storage that is empty, for the time of t.
func (f *storages) next(t *testing.T) storetest.Storage {
	s := f.take()
	opened := 0
	t.Cleanup(func() {
		if !t.Failed() && s.whole() && s.wellFormed(t) && s.empty() && s.whole() {
			f.giveBack(s)
		}
	})
	return storetest.Storage{
		Open: func(t *testing.T) driver.Store {
			if opened == len(s.handles) {
				s.handles = append(s.handles, f.open(t, s.schema))
			}
			opened++
			return s.handles[opened-1]
		},
		Advance: func(d time.Duration) { s.clock.advance(s.schema, d) },
	}
}

// open opens a handle that outlives t.
func (f *storages) open(t *testing.T, schema string) *Store {
	t.Helper()
	app, o := newPool(f.outer, f.url), f.o
	o.Schema = schema
	s, err := Open(context.Background(), app, o)
	if err != nil {
		t.Fatal(err)
	}
	f.outer.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.outer.Errorf("close: %v", err)
		}
	})
	return s
}

func (f *storages) take() *storage {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := len(f.free) - 1; last >= 0 {
		s := f.free[last]
		f.free = f.free[:last]
		return s
	}
	return &storage{schema: newSchema(), clock: mover{pool: newPool(f.outer, f.url)}}
}

func (f *storages) giveBack(s *storage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, s)
}

// forget gives up the storages that no check has. Their connections are those to a server that was restarted.
func (f *storages) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = nil
}

// malformed is what no verb leaves in a record. The table has no such constraint, which would cost every insert.
const malformed = "octet_length(id) <> 48 OR octet_length(token) <> 16 OR octet_length(fingerprint) <> 40 OR state NOT BETWEEN 1 AND 4 OR retention <= 0 OR tombstone < 0"

// wellFormed fails the test if the last check has left such a record. It reports false also if the server was
// restarted.
func (s *storage) wellFormed(t *testing.T) bool {
	t.Helper()
	var n int
	err := s.clock.pool.QueryRow(context.Background(), inSchema("SELECT count(*) FROM {schema}.records WHERE "+malformed, s.schema)).Scan(&n)
	if n > 0 {
		t.Errorf("%d malformed records", n)
	}
	return err == nil && n == 0
}

// empty removes what the last check has stored. It reports false if the server was restarted: then the storage is given
// up.
func (s *storage) empty() bool {
	// TRUNCATE would make the tables' files anew, and have every connection plan its statements anew.
	_, err := s.clock.pool.Exec(context.Background(), inSchema(`WITH s AS (DELETE FROM {schema}.steps),
		a AS (DELETE FROM {schema}.answers), d AS (DELETE FROM {schema}.audit) DELETE FROM {schema}.records`, s.schema))
	return err == nil
}

// whole says that no connection was given up. On the way of such a one a verb may still be, for what comes next.
func (s *storage) whole() bool {
	for _, h := range s.handles {
		if stat := h.pool.Stat(); stat.NewConnsCount() != int64(stat.TotalConns()) {
			return false
		}
	}
	return len(s.handles) > 0
}
