package shardstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/semelhq/semel/driver"
)

// A Shard is one of the stores among which operations are shared.
type Shard struct {
	// Name decides which operations the shard has, together with the names of the others. It must not be empty.
	Name string
	// Store keeps the shard's records. No other shard has the same storage.
	Store driver.Store
	// Open is for a shard whose server is not there when the process starts. It takes the place of Store, and opens it. It
	// is called when the shard is asked for something, in the background, one call at a time, a second after a failure at
	// the earliest, until it has succeeded once. Until then the shard fails as if it was down, by an error that wraps
	// [driver.ErrNotExecuted]. A store is refused for good that lacks an optional interface that all shards with a Store
	// have, or that was first used with another identity secret than theirs. Whoever gave Open closes what it has opened.
	Open func(ctx context.Context) (driver.Store, error)
	// Breaker is asked before each request that may be refused. The guard above then needs none: its breaker would refuse
	// the operations of all shards. Defaults to none.
	Breaker driver.Breaker
	// Joins marks a shard that a change adds, Leaves one that a change takes away.
	Joins, Leaves bool
}

// A Change says how far a change of the shards has come; the package's text has the steps.
type Change uint8

// The steps of a change.
const (
	// None is no change: no shard joins or leaves.
	None Change = iota
	// Prepare is the first step: operations still begin in their old shard.
	Prepare
	// Move is the second step: operations begin in their new shard.
	Move
)

func (c Change) String() string {
	if names := [...]string{"none", "prepare", "move"}; int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("change(%d)", uint8(c))
}

// Options are a store's settings. The zero value is valid.
type Options struct {
	// Change is the step of a change that shards are marked for. Defaults to None.
	Change Change
}

// A store is a [driver.Store] over shards. It is safe for concurrent use.
type store struct {
	shards        []*shard // all, in the order given
	before, after layout   // the same if there is no change
	moves         bool     // new operations begin in their new shard
	needs         []capability
	reserved      reserved
}

// New returns the store over the shards. Nothing is started. The order of the shards does not matter.
//
// The store is a [Changer] and a [driver.Waker]. It is also a [driver.Seizer], [driver.Scanner], [driver.StepStore],
// [driver.Auditor] and [driver.Counter] as far as all shards are that have a Store: each only with those before it.
func New(shards []Shard, o Options) (driver.Store, error) {
	s := &store{moves: o.Change == Move}
	if err := s.add(shards); err != nil {
		return nil, fmt.Errorf("shardstore: %w", err)
	}
	marked := len(s.before) < len(s.shards) || len(s.after) < len(s.shards)
	switch {
	case o.Change > Move:
		return nil, fmt.Errorf("shardstore: no such step of a change: %v", o.Change)
	case len(s.before) == 0 || len(s.after) == 0:
		return nil, errors.New("shardstore: no shard is there before and after the change, want at least one each")
	case marked && o.Change == None:
		return nil, errors.New("shardstore: a shard joins or leaves, but no step of a change is given")
	case !slices.ContainsFunc(s.shards, func(h *shard) bool { return h.store != nil }):
		return nil, errors.New("shardstore: no shard has a store yet, want at least one")
	case !marked && o.Change != None:
		return nil, fmt.Errorf("shardstore: %v: no shard joins or leaves", o.Change)
	}
	return s.promise(), nil
}

func (s *store) add(shards []Shard) error {
	names := map[string]bool{}
	for _, h := range shards {
		switch {
		case h.Name == "":
			return errors.New("a shard has no name")
		case names[h.Name]:
			return fmt.Errorf("two shards have the name %q", h.Name)
		case h.Store == nil && h.Open == nil:
			return fmt.Errorf("shard %q has no store", h.Name)
		case h.Store != nil && h.Open != nil:
			return fmt.Errorf("shard %q has both Store and Open", h.Name)
		case h.Joins && h.Leaves:
			return fmt.Errorf("shard %q both joins and leaves", h.Name)
		}
		names[h.Name] = true
		one := &shard{
			name: h.Name, seed: seedOf(h.Name), store: h.Store, late: lateStore{open: h.Open, over: s}, breaker: h.Breaker,
		}
		s.shards = append(s.shards, one)
		if !h.Joins {
			s.before = append(s.before, one)
		}
		if !h.Leaves {
			s.after = append(s.after, one)
		}
	}
	return nil
}

// pair returns the shards of an operation.
func (s *store) pair(id *driver.ID) pair {
	p := pair{begin: s.before.of(id), moves: s.moves}
	if len(s.before) == len(s.shards) && len(s.after) == len(s.shards) {
		return p
	}
	p.other = s.after.of(id)
	if p.other == p.begin {
		p.other = nil
	} else if s.moves {
		p.begin, p.other = p.other, p.begin
	}
	return p
}

// Claim implements [driver.Store]. Of an operation that is changing its shard the error may wrap [driver.ErrElsewhere].
func (s *store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if id.Reserved() {
		return s.claimReserved(ctx, id, c)
	}
	return s.pair(&id).claim(ctx, id, c)
}

// Extend implements [driver.Store].
func (s *store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	return s.pair(&id).owned(func(h *shard) (owned bool, err error) {
		err = h.call(func(s driver.Store) error {
			owned, err = s.Extend(ctx, id, by, x)
			return err
		})
		return owned, err
	})
}

// Settle implements [driver.Store].
func (s *store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if id.Reserved() {
		return s.settleReserved(ctx, id, by, o)
	}
	return s.pair(&id).settle(ctx, id, by, o)
}

// Load implements [driver.Store].
func (s *store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if id.Reserved() {
		return s.loadReserved(ctx, id)
	}
	return s.pair(&id).load(ctx, id)
}
