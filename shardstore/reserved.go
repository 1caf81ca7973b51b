package shardstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/thrown"
)

// A reserved record, which is the check value of the identity secret, is kept in every shard: whoever takes a shard away
// takes none of it away, and a process can start while a shard is down. Its verbs succeed if one shard has answered, and
// no answer is against it.

// reserved are the reserved records that this process has asked for. A shard that is opened later must agree on them.
type reserved struct {
	sync.Mutex
	asked map[driver.ID]bool
}

func (r *reserved) ask(id driver.ID) {
	r.Lock()
	defer r.Unlock()
	if r.asked == nil {
		r.asked = map[driver.ID]bool{}
	}
	r.asked[id] = true
}

// agrees compares the fingerprint of a reserved record, which a shard has that is about to be taken, with what the
// others have. One of them at least must have it: else a check of the secret may be under way that has not seen that
// shard.
func (s *store) agrees(ctx context.Context, id driver.ID, f driver.Fingerprint) error {
	err := errors.New("no other shard says yet which identity secret is used")
	for _, h := range s.shards {
		rec, failed := h.load(ctx, id)
		switch {
		case failed != nil || rec.State != driver.Done:
		case !rec.Fingerprint.Equal(f):
			return errOtherSecret
		default:
			err = nil
		}
	}
	return err
}

// each calls f for all shards at once, and returns their errors, in order. What f throws is an error.
func each(shards []*shard, f func(i int, h *shard) error) []error {
	errs := make([]error, len(shards))
	var work sync.WaitGroup
	for i, h := range shards {
		work.Go(func() {
			defer thrown.Catch(&errs[i])
			errs[i] = f(i, h)
		})
	}
	work.Wait()
	return errs
}

// loadReserved returns the first record that is not done, if a shard has one, so that the caller goes on to write it.
// Else it returns the first one.
func (s *store) loadReserved(ctx context.Context, id driver.ID) (driver.Record, error) {
	s.reserved.ask(id)
	recs := make([]driver.Record, len(s.shards))
	errs := each(s.shards, func(i int, h *shard) (err error) {
		recs[i], err = h.load(ctx, id)
		return err
	})
	best := -1
	for i := range recs {
		switch {
		case errors.Is(errs[i], driver.ErrUnreadable):
			return driver.Record{}, errs[i]
		case errs[i] != nil:
			continue
		case best >= 0 && recs[i].State != driver.Absent && recs[best].State != driver.Absent && !recs[i].Fingerprint.Equal(recs[best].Fingerprint):
			return driver.Record{}, fmt.Errorf("shards %q and %q were first used with different identity secrets", s.shards[best].name, s.shards[i].name)
		}
		if best < 0 || recs[best].State == driver.Done && recs[i].State != driver.Done {
			best = i
		}
	}
	if best < 0 {
		return driver.Record{}, errors.Join(errs...)
	}
	return recs[best], nil
}

// claimReserved claims in one shard after the other, and ends at the first one that has another fingerprint. So of two
// secrets that are used first at the same time one is refused before it has claimed anything.
func (s *store) claimReserved(ctx context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, err error) {
	s.reserved.ask(id)
	var errs []error
	answered := false
	for _, h := range s.shards {
		got, gotOwned, err := h.claim(ctx, id, c)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case !gotOwned && !got.Fingerprint.Equal(c.Fingerprint):
			return got, false, nil
		case !answered, gotOwned && !owned:
			rec, owned = got, gotOwned
		}
		answered = true
	}
	if !answered {
		return rec, false, errors.Join(errs...)
	}
	return rec, owned, nil
}

// settleReserved settles in each shard whose record has the owner's token. The fences of the shards differ.
func (s *store) settleReserved(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	var errs []error
	for _, h := range s.shards {
		got, err := h.load(ctx, id)
		done := false
		if err == nil && got.Token == by.Token {
			got, done, err = h.settle(ctx, id, got.Owner(), o)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if done && !owned || rec.State == driver.Absent {
			rec = got
		}
		owned = owned || done
	}
	if len(errs) == len(s.shards) || !owned && len(errs) > 0 {
		return rec, false, errors.Join(errs...)
	}
	return rec, owned, nil
}
