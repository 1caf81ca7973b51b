package tieredstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

const atOnce = 32 // calls of the cache, or of a durable store that takes no batches, that one batch has under way

// ClaimAll implements [driver.BatchClaimer]. The layers refuse what they would refuse to Claim; the others go to the
// durable store together, or several at a time if that is no BatchClaimer.
func (s *Store) ClaimAll(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	all := make([]driver.Claimed, len(claims))
	if err := ctx.Err(); err != nil {
		for i := range all {
			all[i].Err = err
		}
		return all
	}
	looks, refused := make([]look, len(claims)), make([]bool, len(claims))
	s.each(len(claims), func(i int) {
		all[i].Record, refused[i], looks[i] = s.refusal(ctx, claims[i].ID, claims[i].Claim)
	})
	var rest []driver.ClaimOf
	var at []int // where they stand among the claims
	for i := range claims {
		if !refused[i] {
			rest, at = append(rest, claims[i]), append(at, i)
		}
	}
	if len(rest) == 0 {
		return all
	}
	for n, result := range s.claimAllDurably(ctx, rest) {
		all[at[n]] = result
	}
	s.each(len(at), func(n int) {
		if result := &all[at[n]]; result.Err == nil && !result.Owned {
			s.fill(ctx, rest[n].ID, &result.Record, looks[at[n]])
		}
	})
	return all
}

// claimAllDurably returns one result for each claim.
func (s *Store) claimAllDurably(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	b, ok := s.durable.(driver.BatchClaimer)
	if !ok {
		return s.claimEach(ctx, claims)
	}
	sent := s.clock.tell()
	all := b.ClaimAll(ctx, claims)
	if len(all) != len(claims) { // whose they are can't be told
		err := fmt.Errorf("tieredstore: claim %d operations: the durable store returned %d results", len(claims), len(all))
		return slices.Repeat([]driver.Claimed{{Err: err}}, len(claims))
	}
	for i := range all {
		if all[i].Err == nil {
			s.clock.learn(sent, all[i].Record.Now)
		}
	}
	return all
}

// claimEach makes claims of the durable store that do not wait for each other, but for those of their own operation.
func (s *Store) claimEach(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	all := make([]driver.Claimed, len(claims))
	var ids []driver.ID
	of := map[driver.ID][]int{} // the claims of each, which follow one another
	for i := range claims {
		id := claims[i].ID
		if of[id] == nil {
			ids = append(ids, id)
		}
		of[id] = append(of[id], i)
	}
	together(len(ids), func(n int) {
		for _, i := range of[ids[n]] {
			all[i].Record, all[i].Owned, all[i].Err = s.claimDurably(ctx, ids[n], claims[i].Claim)
		}
	})
	return all
}

// each calls do with 0 to n-1: one after another if only this process's memory is asked, else several at a time.
func (s *Store) each(n int, do func(i int)) {
	if s.cache != nil {
		together(n, do)
		return
	}
	for i := range n {
		do(i)
	}
}

// together calls do with 0 to n-1, several at a time. It panics if one of them does.
func together(n int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	var wg sync.WaitGroup
	var thrown atomic.Pointer[any]
	for first := range min(atOnce, n) {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					thrown.CompareAndSwap(nil, &p)
				}
			}()
			for i := first; i < n; i += atOnce {
				do(i)
			}
		})
	}
	wg.Wait()
	if p := thrown.Load(); p != nil {
		panic(*p)
	}
}
