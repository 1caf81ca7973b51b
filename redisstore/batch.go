package redisstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

const atOnce = 32 // commands that a listing or a batch has under way

// ClaimAll implements [driver.BatchClaimer]. The claims are sent without waiting for each other: a client that
// pipelines what is sent at once, as rueidis does, takes few round trips for all of them, and others take as many
// connections. One script for all of them would keep the server from everything else, and can't be in a Cluster.
func (s *Store) ClaimAll(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
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
	each(len(ids), func(n int) {
		for _, i := range of[ids[n]] {
			all[i].Record, all[i].Owned, all[i].Err = s.Claim(ctx, ids[n], claims[i].Claim)
		}
	})
	return all
}

// each calls do with 0 to n-1, several at a time. It panics if one of them does.
func each(n int, do func(i int)) {
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
