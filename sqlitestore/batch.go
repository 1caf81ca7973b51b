package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// ClaimAll implements [driver.BatchClaimer]. What a look without a lock does not refuse is claimed in as few commits as
// groups allow. Where the disk has no room for all, there may be for some.
func (s *Store) ClaimAll(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	results, left, err := s.lookAll(ctx, claims)
	if err != nil {
		results = make([]driver.Claimed, len(claims))
		for i := range results {
			results[i].Err = claimError(err)
		}
		return results
	}
	claimed := make([]driver.Claimed, len(left)) // an element is not touched after an error: the claim may still be executed
	calls := make([]*call, len(left))
	for n, i := range left {
		asked, absent, r := &claims[i], results[i].Record.State == driver.Absent, &claimed[n]
		calls[n] = &call{size: claimSize(&asked.Claim), do: func(u *unit) (err error) {
			r.Record, r.Owned, err = u.claim(asked.ID, asked.Claim, absent)
			return err
		}}
	}
	for n, err := range s.writeAll(ctx, calls) {
		if err != nil {
			results[left[n]] = driver.Claimed{Err: claimError(err)}
		} else {
			results[left[n]] = claimed[n]
		}
	}
	return results
}

func claimError(err error) error { return fmt.Errorf("sqlitestore: claim: %w", err) }

// lookAll reads what the claims are of, without a lock, and refuses those that it must. It returns which are left. Of
// claims of one operation only the first is looked at: the others depend on what becomes of that.
func (s *Store) lookAll(ctx context.Context, claims []driver.ClaimOf) (results []driver.Claimed, left []int, err error) {
	err = s.read(ctx, func(c *session) error {
		results, left = make([]driver.Claimed, len(claims)), nil
		seen := make(map[driver.ID]bool, len(claims))
		for i := range claims {
			id := claims[i].ID
			if seen[id] {
				left = append(left, i)
				continue
			}
			seen[id] = true
			now := s.clock.tell() // before the record is read, as in look
			r, err := c.find(id)
			switch {
			case errors.Is(err, driver.ErrUnreadable):
				results[i].Err = claimError(err)
				continue
			case err != nil:
				return err
			}
			rec, owned := r.Claim(s.notBefore(now, &r.Record), claims[i].Claim)
			if owned {
				rec = r.Record
				left = append(left, i)
			}
			results[i].Record = rec
		}
		return ctx.Err()
	})
	return results, left, err
}
