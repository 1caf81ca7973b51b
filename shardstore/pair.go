package shardstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// A pair is the shards that an operation can be in. other is nil unless a change gives the operation another shard. In
// all that follows the invariant is that no more than one of the two has a run that was acknowledged and not ended.
type pair struct {
	begin *shard // where new operations begin
	other *shard
	moves bool // begin is the new one
}

// How much a record says about its operation.
const (
	nothing   = iota // absent, or past its time
	released         // free and remembering nothing
	remembers        // free with the results of steps, a run that may have had its effect, or a promise
	runs             // started and not ended, its lease over or not
	undecided        // stored as unknown
	ended            // with an answer or without one
)

func weight(r *driver.Record) int {
	switch r.Reads(r.OnLost) {
	case driver.ReadsAbsent:
		return nothing
	case driver.ReadsDone, driver.ReadsExpired:
		return ended
	}
	switch {
	case r.State == driver.Running:
		return runs
	case r.State == driver.Unknown:
		return undecided
	case r.Maybe, r.Steps, r.Owed:
		return remembers
	}
	return released
}

// A state is what a look has found in the two shards.
type state struct{ begin, other driver.Record }

// chosen returns the shard that has the operation, and the other one. All processes choose the same, whatever their step
// of the change, so that they meet in one shard: the one whose record says more, then the one with the higher fence, then
// the old one. If there is no record, the operation begins.
func (p pair) chosen(s *state) (here, there *shard) {
	b, o := weight(&s.begin), weight(&s.other)
	if b == nothing && o == nothing {
		return p.begin, p.other
	}
	order := cmp.Or(cmp.Compare(b, o), cmp.Compare(s.begin.Fence, s.other.Fence))
	if order > 0 || order == 0 && !p.moves {
		return p.begin, p.other
	}
	return p.other, p.begin
}

func (p pair) look(ctx context.Context, id driver.ID) (s state, err error) {
	if s.begin, err = p.begin.load(ctx, id); err == nil {
		s.other, err = p.other.load(ctx, id)
	}
	return s, err
}

// claim claims in one shard, and looks at the other one before and after it.
func (p pair) claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if p.other == nil {
		return p.begin.claim(ctx, id, c)
	}
	var s state
	var err error
	if p.moves { // what is in the new shard matters only if the old one has something too
		s.other, err = p.other.load(ctx, id)
	}
	if err == nil && (!p.moves || weight(&s.other) > nothing) {
		s, err = p.look(ctx, id)
	}
	switch {
	case errors.Is(err, driver.ErrUnreadable):
		return driver.Record{}, false, err
	case err != nil:
		return driver.Record{}, false, fmt.Errorf("look for the operation in both its shards: %w: %w", driver.ErrNotExecuted, err)
	}
	here, there := p.chosen(&s)
	rec, owned, err := here.claim(ctx, id, c)
	if err != nil || !owned {
		return rec, owned, err
	}
	found, err := there.load(ctx, id)
	if err != nil {
		// Not %w: whatever the look was answered, the claim has been executed, and has to be released.
		return driver.Record{}, false, fmt.Errorf("look for another run after a claim in shard %q: %v", here.name, err)
	}
	if here == p.begin {
		s.other = found
	} else {
		s.begin = found
	}
	stays, _ := p.chosen(&s)
	switch w := weight(&found); {
	case w >= runs, w == remembers && stays != here:
		return driver.Record{}, false, fmt.Errorf("claimed in shard %q: %w: shard %q", here.name, driver.ErrElsewhere, there.name)
	}
	return rec, true, nil
}

// owned tries a verb of an owner in both shards. A record in the wrong one has not the owner's token.
func (p pair) owned(verb func(h *shard) (bool, error)) (bool, error) {
	owned, err := verb(p.begin)
	if owned && err == nil || p.other == nil {
		return owned, err
	}
	owned, otherErr := verb(p.other)
	if owned && otherErr == nil {
		return true, nil
	}
	return false, cmp.Or(err, otherErr)
}

// settle tries both shards if it has to, and always if it is a release by token: copies of one claim may be in both.
func (p pair) settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	rec, owned, err := p.begin.settle(ctx, id, by, o)
	if p.other == nil || owned && err == nil && !by.Above {
		return rec, owned, err
	}
	otherRec, otherOwned, otherErr := p.other.settle(ctx, id, by, o)
	switch {
	case otherOwned && otherErr == nil && (err == nil || !by.Above):
		return otherRec, true, nil
	case err != nil || otherErr != nil:
		return driver.Record{}, false, cmp.Or(err, otherErr)
	case owned:
		return rec, true, nil
	}
	if here, _ := p.chosen(&state{rec, otherRec}); here == p.other {
		return otherRec, false, nil
	}
	return rec, false, nil
}

func (p pair) load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if p.other == nil {
		return p.begin.load(ctx, id)
	}
	s, err := p.look(ctx, id)
	if err != nil {
		return driver.Record{}, err
	}
	if here, _ := p.chosen(&s); here == p.other {
		return s.other, nil
	}
	return s.begin, nil
}
