package shardstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/shardstore"
)

// shardOf returns the server that a store asks for an operation.
func (s *site) shardOf(t testing.TB, over driver.Store, id driver.ID) string {
	t.Helper()
	for _, at := range s.servers {
		at.heard()
	}
	verbs.Load(t, over, id)
	for _, at := range s.servers {
		if len(at.heard()) > 0 {
			return at.name
		}
	}
	t.Fatal("no shard was asked")
	return ""
}

// numbered returns an id that is the same in each test run, and differs from others of its scope in few bits.
func numbered(n int) (id driver.ID) {
	copy(id[:], "the same scope..")
	copy(id[16:], fmt.Sprintf("%032d", n))
	return id
}

// Shards have the same share of ids, also of those that differ little. A shard that joins takes its share from all
// others, and no operation moves between those.
func TestAJoiningShardTakesItsShareAndNothingElseMoves(t *testing.T) {
	t.Parallel()
	const operations = 20_000
	s := newSite(t, 5)
	four, five := open(t, s.shards(5)[:4], shardstore.None), open(t, s.shards(5), shardstore.None)
	had, has, taken := map[string]int{}, map[string]int{}, map[string]int{}
	for n := range operations {
		id := numbered(n)
		was, is := s.shardOf(t, four, id), s.shardOf(t, five, id)
		had[was]++
		has[is]++
		if was != is {
			taken[was]++
			if is != "s4" {
				t.Fatalf("operation %d moves from %s to %s, which does not join", n, was, is)
			}
		}
	}
	near := func(what string, got map[string]int, shards, each int) {
		t.Helper()
		if len(got) != shards {
			t.Errorf("%s: %v, want %d shards", what, got, shards)
		}
		for name, n := range got {
			if n < each*9/10 || n > each*11/10 {
				t.Errorf("%s: %s has %d, want about %d", what, name, n, each)
			}
		}
	}
	near("four shards", had, 4, operations/4)
	near("five shards", has, 5, operations/5)
	near("taken by the fifth", taken, 4, operations/20)
}

// Where an operation is must not depend on the version of the program, on the machine, or on the order of the shards.
func TestAnOperationsShardNeverChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4)
	shards := s.shards(4)
	over := open(t, shards, shardstore.None)
	slices.Reverse(shards)
	reversed := open(t, shards, shardstore.None)
	var got []string
	for n := range 16 {
		id := numbered(n)
		got = append(got, s.shardOf(t, over, id))
		if other := s.shardOf(t, reversed, id); other != got[n] {
			t.Errorf("operation %d is in %s, and in %s with the shards in another order", n, got[n], other)
		}
	}
	const want = "s1 s3 s3 s1 s2 s1 s3 s3 s1 s1 s3 s1 s0 s0 s0 s0"
	if all := strings.Join(got, " "); all != want {
		t.Errorf("the shards of the first operations are\n%s, want\n%s", all, want)
	}
}

func TestShardsThatCanNotBeAreRefused(t *testing.T) {
	t.Parallel()
	m := memstore.New()
	later := func(context.Context) (driver.Store, error) { return m, nil }
	a, b := shardstore.Shard{Name: "a", Store: m}, shardstore.Shard{Name: "b", Store: m}
	joins, leaves := b, a
	joins.Joins, leaves.Leaves = true, true
	both := joins
	both.Leaves = true
	for _, c := range []struct {
		want   string
		change shardstore.Change
		shards []shardstore.Shard
	}{
		{"no shard is there before and after", shardstore.None, nil},
		{"a shard has no name", shardstore.None, []shardstore.Shard{{Store: m}}},
		{`shard "a" has no store`, shardstore.None, []shardstore.Shard{{Name: "a"}}},
		{`shard "a" has both Store and Open`, shardstore.None, []shardstore.Shard{{Name: "a", Store: m, Open: later}}},
		{"no shard has a store yet, want at least one", shardstore.None, []shardstore.Shard{{Name: "a", Open: later}, {Name: "b", Open: later}}},
		{`two shards have the name "a"`, shardstore.None, []shardstore.Shard{a, a}},
		{"a shard joins or leaves, but no step", shardstore.None, []shardstore.Shard{a, joins}},
		{"move: no shard joins or leaves", shardstore.Move, []shardstore.Shard{a, b}},
		{"before and after the change", shardstore.Prepare, []shardstore.Shard{joins}},
		{"before and after the change", shardstore.Move, []shardstore.Shard{leaves}},
		{"both joins and leaves", shardstore.Move, []shardstore.Shard{a, both}},
		{"no such step of a change: change(3)", 3, []shardstore.Shard{a, joins}},
	} {
		if _, err := shardstore.New(c.shards, shardstore.Options{Change: c.change}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, %v: got %v, want %q", c.shards, c.change, err, c.want)
		}
	}
}

// P-18: each verb asks one shard, for its own operation only.
func TestEachVerbAsksOneShardForOneOperation(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newSite(t, 4)
	over := open(t, s.shards(4), shardstore.None)
	for range 20 {
		id, c := verbs.NewID(), verbs.Ask(driver.Rerun)
		home := s.shardOf(t, over, id)
		var rec driver.Record
		for _, v := range []struct {
			name string
			do   func() (bool, error)
		}{
			{"claim", func() (owned bool, err error) { rec, owned, err = over.Claim(ctx, id, c); return owned, err }},
			{"extend", func() (bool, error) { return over.Extend(ctx, id, rec.Owner(), driver.Extension{}) }},
			{"save step", func() (bool, error) { return over.SaveStep(ctx, id, rec.Owner(), "charge", nil) }},
			{"steps", func() (bool, error) { saved, err := over.Steps(ctx, id); return len(saved) == 1, err }},
			{"load", func() (bool, error) { got, err := over.Load(ctx, id); return got.Steps, err }},
			{"seize", func() (bool, error) {
				got, err := over.Seize(ctx, id, driver.NewToken())
				rec = got
				return got.Seized, err
			}},
			{"settle", func() (bool, error) {
				_, owned, err := over.Settle(ctx, id, rec.Owner(), verbs.Done("x"))
				return owned, err
			}},
			{"audit", func() (bool, error) { return true, over.Audit(ctx, driver.AuditEntry{ID: id}) }},
			{"forget", func() (bool, error) { return over.Forget(ctx, id, rec.Owner()) }},
		} {
			for _, at := range s.servers {
				at.heard()
			}
			if owned, err := v.do(); err != nil || !owned {
				t.Fatalf("%s: %t, %v", v.name, owned, err)
			}
			for _, at := range s.servers {
				asked := at.heard()
				if want := (request{v.name, id}); at.name == home && (len(asked) != 1 || asked[0] != want) || at.name != home && len(asked) > 0 {
					t.Errorf("%s of an operation in %s asked %s for %v", v.name, home, at.name, asked)
				}
			}
		}
	}
}
