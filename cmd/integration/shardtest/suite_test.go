package shardtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/shardstore"
	"github.com/semelhq/semel/storetest"
)

// storages are shards in schemas. Each goes from check to check, emptied, with the handles that were opened on it:
// making schemas and connections takes far longer than most checks.
type storages struct {
	outer  *testing.T
	shards int
	joins  int // how many of them join
	change shardstore.Change

	mu   sync.Mutex
	free []*storage
}

type storage struct {
	schemas []string
	handles []driver.Store
}

func (f *storages) next(t *testing.T) storetest.Storage {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &storage{}
	if last := len(f.free) - 1; last >= 0 {
		s, f.free = f.free[last], f.free[:last]
	} else {
		for range f.shards {
			s.schemas = append(s.schemas, newSchema())
		}
	}
	t.Cleanup(func() {
		// Where a context ends meanwhile, a verb may still be on its way.
		if !t.Failed() && !strings.Contains(t.Name(), "meanwhile") {
			f.giveBack(s)
		}
	})
	opened := 0
	return storetest.Storage{Open: func(*testing.T) driver.Store {
		if opened == len(s.handles) {
			shards := shardsIn(f.outer, sharedPool(f.outer), s.schemas...)
			for i := range f.joins {
				shards[i].Joins = true
			}
			s.handles = append(s.handles, open(f.outer, shards, f.change))
		}
		opened++
		return s.handles[opened-1]
	}}
}

func (f *storages) giveBack(s *storage) {
	for _, schema := range s.schemas {
		if _, err := sharedPool(f.outer).Exec(context.Background(), fmt.Sprintf(`WITH s AS (DELETE FROM %[1]s.steps),
		a AS (DELETE FROM %[1]s.answers), d AS (DELETE FROM %[1]s.audit) DELETE FROM %[1]s.records`, schema)); err != nil {
			f.outer.Errorf("empty the storage %s: %v", schema, err)
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, s)
}

// Each handle is a process, with connections of its own to each shard.
func TestR88_ShardsOnPostgreSQLKeepEveryPromise(t *testing.T) {
	t.Parallel()
	for _, f := range []*storages{
		{shards: proof.Of(2, 4)},
		{shards: 4, joins: 2, change: shardstore.Prepare},
		{shards: 4, joins: 2, change: shardstore.Move},
	} {
		if f.change != shardstore.None && !proof.Long() {
			continue // the short form has it on stores in memory
		}
		t.Run(fmt.Sprintf("%d shards, change %v", f.shards, f.change), func(t *testing.T) {
			f.outer = t
			storetest.Run(t, f.next)
		})
	}
}
