package tieredtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/pgstore"
)

// postgresStorages makes storages on the shared server. Each goes from check to check, emptied, with the handles that
// were opened on it: making a schema and warming up connections takes far longer than most checks. They end with the
// test outer.
type postgresStorages struct {
	outer *testing.T

	mu   sync.Mutex
	free []*postgresStorage
}

type postgresStorage struct {
	schema  string
	handles []durable
}

// next returns what opens a storage that is empty, for the time of t.
func (f *postgresStorages) next(t *testing.T) (open func() durable) {
	s := f.take()
	t.Cleanup(func() {
		// Where a context ends meanwhile, a verb may still be on its way.
		if !t.Failed() && !strings.Contains(t.Name(), "meanwhile") {
			f.giveBack(s)
		}
	})
	opened := 0
	return func() durable {
		if opened == len(s.handles) {
			h, err := pgstore.Open(context.Background(), sharedPool(t), pgstore.Options{Schema: s.schema, MaxConns: 4})
			must(t, err)
			f.outer.Cleanup(func() {
				if err := h.Close(); err != nil {
					f.outer.Errorf("close: %v", err)
				}
			})
			s.handles = append(s.handles, h)
		}
		opened++
		return s.handles[opened-1]
	}
}

func (f *postgresStorages) take() *postgresStorage {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := len(f.free) - 1; last >= 0 {
		s := f.free[last]
		f.free = f.free[:last]
		return s
	}
	return &postgresStorage{schema: newSchema()}
}

// giveBack empties a storage for the next check.
func (f *postgresStorages) giveBack(s *postgresStorage) {
	_, err := sharedPool(f.outer).Exec(context.Background(), fmt.Sprintf(`WITH s AS (DELETE FROM %[1]s.steps),
		a AS (DELETE FROM %[1]s.answers), d AS (DELETE FROM %[1]s.audit) DELETE FROM %[1]s.records`, s.schema))
	if err != nil {
		f.outer.Errorf("empty the storage %s: %v", s.schema, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, s)
}
