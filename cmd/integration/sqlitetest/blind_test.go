package sqlitetest

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/sqlitestore"
)

// Operations that another process has finished look new to this one. Their replays wait for no transaction, of whomever,
// and meanwhile a claim of a new one waits until it can be written.
func TestCase08_AReplayThatLooksNewWaitsForNoTransaction(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		hold func(t *testing.T, s *sqlitestore.Store, path string) (release func())
	}{
		{"another connection's", func(t *testing.T, _ *sqlitestore.Store, path string) func() { return lock(t, path) }},
		{"a handler's", func(t *testing.T, s *sqlitestore.Store, _ string) func() {
			tx, err := s.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return tx.Rollback
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			first, _ := openStore(t, path, sqlitestore.Options{})
			s, _ := openStore(t, path, sqlitestore.Options{})
			var ids [16]driver.ID
			c := ask(semel.Hold)
			for i := range ids {
				ids[i] = newID()
				verbs.Finish(t, first, ids[i], c)
			}
			release := row.hold(t, s, path)
			defer release()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // none of them takes so long, unless it waits
			defer cancel()
			waiting := watch(t, 2)
			fresh := newID()
			var last, all sync.WaitGroup
			last.Go(func() {
				if _, owned, err := s.Claim(waiting, fresh, again(c)); err != nil || !owned {
					t.Errorf("a new one: owned is %t, error %v", owned, err)
				}
			})
			<-waiting.waits
			for _, id := range ids {
				all.Go(func() {
					if rec, owned, err := s.Claim(ctx, id, again(c)); err != nil || owned || rec.State != driver.Done {
						t.Errorf("a replay: owned is %t, the record is %s, error %v", owned, rec.State, err)
					}
				})
			}
			all.Wait() // though the database is still held
			if got := load(t, first, fresh); got.State != driver.Absent {
				t.Errorf("the new one is %s while somebody else has the database", got.State)
			}
			release()
			last.Wait()
		})
	}
}

func TestReplaysThatLookNewWriteNothing(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	first, _ := openStore(t, path, sqlitestore.Options{})
	s, _ := openStore(t, path, sqlitestore.Options{})
	id, c := newID(), ask(semel.Hold)
	verbs.Finish(t, first, id, c)
	log := func() []byte {
		b, err := os.ReadFile(path + "-wal")
		if err != nil || len(b) == 0 {
			t.Fatalf("the log has %d bytes, error %v", len(b), err)
		}
		return b
	}
	before := log()
	for range 3 { // the first looks new
		if rec, owned, err := s.Claim(t.Context(), id, again(c)); err != nil || owned || rec.State != driver.Done {
			t.Errorf("owned is %t, the record is %s, error %v", owned, rec.State, err)
		}
	}
	if !bytes.Equal(log(), before) {
		t.Error("a replay has written to the log")
	}
}
