package shardtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/shardstore"
)

// One PostgreSQL becomes four under load, in the steps of a change, with two processes that take each step one after the
// other. Servers are killed meanwhile in the long form, where they are four. No operation has its effect twice, and no
// answer changes.
func TestR26_OnePostgreSQLBecomesFourUnderLoad(t *testing.T) {
	t.Parallel()
	var own []*servers.Postgres
	shards := func() (all []shardstore.Shard) { // of one process
		for i, s := range own {
			p, err := pgxpool.New(context.Background(), s.URL())
			must(t, err)
			t.Cleanup(p.Close)
			all = append(all, shardsIn(t, p, "semel")...)
			all[i].Name, all[i].Joins = fmt.Sprint("p", i), i > 0
		}
		return all
	}
	if proof.Long() {
		for range 4 {
			s, err := servers.NewPostgres(servers.PostgresOptions{})
			must(t, err)
			t.Cleanup(func() { must(t, s.Close()) })
			own = append(own, s)
		}
	} else {
		schemas := []string{newSchema(), newSchema(), newSchema(), newSchema()}
		shards = func() []shardstore.Shard {
			all := shardsIn(t, sharedPool(t), schemas...)
			for i := range all {
				all[i].Joins = i > 0
			}
			return all
		}
	}
	guard := func(over driver.Store) *semel.Guard {
		g, err := semel.New(over, semel.SingleTenant, semel.Rerun, semel.Options{})
		must(t, err)
		return g
	}
	processes := [2][]shardstore.Shard{shards(), shards()}
	var guards [2]atomic.Pointer[semel.Guard]
	all := []*semel.Guard{}
	restart := func(i int, change shardstore.Change) {
		on := processes[i]
		if change == shardstore.None {
			on = on[:1]
		}
		g := guard(open(t, on, change))
		guards[i].Store(g)
		all = append(all, g)
	}
	restart(0, shardstore.None)
	restart(1, shardstore.None)

	var asked, last, ended atomic.Int64
	var mu sync.Mutex
	effects, answers := map[int64]int{}, map[int64]int{}
	ask := func(key int64) bool {
		defer asked.Add(1)
		got, err := semel.Do(t.Context(), guards[rand.IntN(2)].Load(), semel.Key{Scope: "a", Operation: "pay", Value: fmt.Sprint("key-", key)}, semel.JSON(key),
			func(context.Context) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				effects[key]++
				return effects[key], nil
			})
		if err != nil {
			return false // in progress, or a server is down
		}
		mu.Lock()
		defer mu.Unlock()
		if before, known := answers[key]; known && before != got {
			t.Errorf("key %d: answered %d, and %d before", key, got, before)
		}
		answers[key] = got
		return true
	}
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ended.Load() == 0 {
				key := last.Add(1)
				if rand.IntN(2) == 0 {
					key = 1 + rand.Int64N(key)
				}
				ask(key)
			}
		})
	}
	more := func(n int64) {
		for until := asked.Load() + n; asked.Load() < until && t.Context().Err() == nil; {
			ask(1 + rand.Int64N(last.Load()+1))
		}
	}
	more(200)
	for _, change := range []shardstore.Change{shardstore.Prepare, shardstore.Move} {
		for i := range guards {
			restart(i, change)
			more(200)
			if proof.Long() {
				s := own[rand.IntN(len(own))]
				must(t, s.Kill())
				more(20)
				must(t, s.Start())
			}
		}
	}
	ended.Store(1)
	clients.Wait()
	for key := range last.Load() {
		for !ask(key+1) && t.Context().Err() == nil {
		}
	}
	for key, n := range effects {
		if n != 1 {
			t.Errorf("key %d has had its effect %d times", key, n)
		}
	}
	if len(effects) < 200 {
		t.Errorf("%d operations, too few to have shown anything", len(effects))
	}
	for _, g := range all {
		must(t, g.Drain(t.Context()))
	}
}
