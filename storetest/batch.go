package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/semelhq/semel/driver"
)

// claimAll claims a batch and checks that there is a result for each claim, and that none failed.
func (h handle) claimAll(claims []driver.ClaimOf) []driver.Claimed {
	h.e.Helper()
	all := h.Store.(driver.BatchClaimer).ClaimAll(h.e.ctx, claims)
	if len(all) != len(claims) {
		h.e.Fatalf("ClaimAll of %d claims returned %d results", len(claims), len(all))
	}
	for i, c := range all {
		if c.Err != nil {
			h.e.Fatalf("ClaimAll: claim %d: %v", i, c.Err)
		}
	}
	return all
}

var batchChecks = []check{
	{
		name: "each is answered as Claim would",
		promise: "ClaimAll answers each claim as Claim would, in the order of the claims: it starts the runs that may start, and " +
			"refuses the others without writing.",
		needs: batcher,
		run: func(e *env) {
			var claims []driver.ClaimOf
			var before []situation
			for _, s := range append(e.situations(), e.situations()...) {
				r := retry(s.claim)
				switch len(before) % 3 {
				case 1:
					r.Fingerprint = newFingerprint()
				case 2:
					r.OnLost = driver.Rerun
				}
				claims, before = append(claims, driver.ClaimOf{ID: s.id, Claim: r}), append(before, s)
				absent := situation{name: "absent", id: newID(), claim: ask(driver.Rerun)}
				absent.claim.Sealed = []byte("sealed request")
				claims, before = append(claims, driver.ClaimOf{ID: absent.id, Claim: absent.claim}), append(before, absent)
			}
			start := e.now()
			for i, got := range e.a.claimAll(claims) {
				what := fmt.Sprintf("claim %d, %s", i, before[i].name)
				at := got.Record.Now
				if at < start {
					e.Errorf("%s: Now is %s, after %s was told", what, at.Time(), start.Time())
				}
				want, owned := before[i].rec.Claim(at, claims[i].Claim)
				if got.Owned != owned {
					e.Errorf("%s: owned is %t, want %t", what, got.Owned, owned)
				}
				if want.State == driver.Running && before[i].rec.State == driver.Absent {
					want.Fence = got.Record.Fence // the store may remember higher ones
				}
				e.same(what, got.Record, want)
				e.unchanged(what, before[i].id, want)
			}
		},
	},
	{
		name:    "a batch sees itself",
		promise: "Claims of one operation in one batch are answered as if one came after the other: the first may own, others are refused.",
		needs:   batcher,
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			between := newID()
			second, other := retry(c), ask(driver.Rerun)
			got := e.b.claimAll([]driver.ClaimOf{
				{ID: id, Claim: c}, {ID: id, Claim: second}, {ID: between, Claim: ask(driver.Hold)}, {ID: id, Claim: other}, {ID: id, Claim: c},
			})
			for i, want := range []bool{true, false, true, false, true} {
				if got[i].Owned != want {
					e.Errorf("claim %d: owned is %t, want %t", i, got[i].Owned, want)
				}
			}
			for _, i := range []int{1, 3, 4} {
				if got[i].Record.Fence != got[0].Record.Fence || got[i].Record.Token != c.Token || got[i].Record.Attempt != 1 {
					e.Errorf("claim %d: fence %d, attempt %d, want the record of the first claim, fence %d, attempt 1", i,
						got[i].Record.Fence, got[i].Record.Attempt, got[0].Record.Fence)
				}
			}
			e.unchanged("claimed in one batch", id, got[4].Record)

			// One that the record as it was would have refused for another reason.
			id, c = newID(), ask(driver.Rerun)
			e.a.ran(id, c, free("503 from upstream"))
			again, hold := retry(c), retry(c)
			hold.OnLost = driver.Hold
			got = e.b.claimAll([]driver.ClaimOf{{ID: id, Claim: again}, {ID: id, Claim: hold}})
			if !got[0].Owned || got[1].Owned {
				e.Errorf("a free record: owned is %t, then %t; want true, false", got[0].Owned, got[1].Owned)
			}
			e.same("the record that the second claim gets", got[1].Record, got[0].Record)

			id = newID()
			e.a.ran(id, ask(driver.Hold), free("answered 429"))
			got = e.b.claimAll([]driver.ClaimOf{{ID: id, Claim: ask(driver.Hold)}, {ID: id, Claim: ask(driver.Hold)}})
			if !got[0].Owned || got[1].Owned {
				e.Errorf("two requests with a released key: owned is %t, then %t; want true, false", got[0].Owned, got[1].Owned)
			}
			e.same("the record that the second request gets", got[1].Record, got[0].Record)
		},
	},
	{
		name:    "an empty batch is nothing",
		promise: "ClaimAll without claims returns no results and changes nothing.",
		needs:   batcher,
		run: func(e *env) {
			id := newID()
			rec := e.a.begin(id, ask(driver.Hold))
			e.b.claimAll(nil)
			e.b.claimAll([]driver.ClaimOf{})
			e.unchanged("an empty batch", id, rec)
		},
	},
	{
		name:    "a batch may be large",
		promise: "ClaimAll of five hundred claims starts each run, with what its claim carries.",
		needs:   batcher,
		run: func(e *env) {
			claims := make([]driver.ClaimOf, 500)
			for i := range claims {
				claims[i] = driver.ClaimOf{ID: newID(), Claim: ask(driver.Rerun)}
				claims[i].Sealed = noise(i)
			}
			for i, got := range e.a.claimAll(claims) {
				want := driver.Record{}
				if want, _ = want.Claim(got.Record.Now, claims[i].Claim); !got.Owned {
					e.Fatalf("claim %d was refused", i)
				}
				want.Fence = got.Record.Fence
				e.same(fmt.Sprintf("claim %d", i), got.Record, want)
				if i%50 == 0 {
					e.unchanged(fmt.Sprintf("claim %d", i), claims[i].ID, want)
				}
			}
		},
	},
	{
		name: "one of many batches wins each",
		promise: "Of batches that claim the same operations at once, in whatever order, each operation is owned by one, and none " +
			"waits for another without end (R-26).",
		needs: batcher,
		run: func(e *env) {
			const batches, operations = 8, 40
			var first []driver.ClaimOf
			for i := range operations {
				id, c := newID(), ask(driver.Rerun)
				if i%2 == 0 { // as one that is free
					rec := e.a.begin(id, c)
					e.a.end(id, rec.Owner(), free(""))
				}
				first = append(first, driver.ClaimOf{ID: id, Claim: c})
			}
			claims := make([][]driver.ClaimOf, batches)
			results := make([][]driver.Claimed, batches)
			for b := range claims {
				claims[b] = slices.Clone(first)
				for i := range claims[b] {
					claims[b][i].Claim = retry(claims[b][i].Claim)
				}
				if b%2 == 1 {
					slices.Reverse(claims[b])
				}
			}
			e.together(batches, func(b int) {
				results[b] = e.both(b/2).Store.(driver.BatchClaimer).ClaimAll(e.ctx, claims[b])
			})
			owners := map[driver.ID]int{}
			for b, all := range results {
				if len(all) != operations {
					e.Fatalf("ClaimAll of %d claims returned %d results", operations, len(all))
				}
				for i, r := range all {
					if r.Err != nil {
						e.Fatalf("ClaimAll: claim %d: %v", i, r.Err)
					}
					id := claims[b][i].ID
					if r.Owned {
						owners[id]++
						e.same("the winner's record", e.a.load(id), r.Record)
					}
					if r.Owned != (r.Record.Token == claims[b][i].Token) {
						e.Errorf("owned is %t, and the record has the claim's token: %t", r.Owned, !r.Owned)
					}
				}
			}
			for _, c := range first {
				if owners[c.ID] != 1 {
					e.Errorf("an operation is owned by %d of %d batches, want 1", owners[c.ID], batches)
				}
			}
		},
	},
	{
		name: "it ends and keeps steps as Claim does",
		promise: "What ClaimAll begins as a new operation has no steps of the one before; what it runs again has all that were " +
			"saved (R-84).",
		needs: batcher | stepper,
		run: func(e *env) {
			again := ask(driver.Rerun)
			freed, rec := e.stepped(again)
			e.b.end(freed, rec.Owner(), free("503 from upstream"))
			c := ask(driver.Rerun)
			c.Retention = e.short
			over, rec := e.stepped(c)
			rec = e.a.end(over, rec.Owner(), done(answer()))
			e.until(rec.Settled.Add(e.short))
			begun := ask(driver.Rerun)
			for i, got := range e.b.claimAll([]driver.ClaimOf{{ID: over, Claim: begun}, {ID: freed, Claim: retry(again)}}) {
				if runsAgain := i == 1; !got.Owned || got.Record.Steps != runsAgain {
					e.Errorf("claim %d: owned is %t, Steps %t; want true, %t", i, got.Owned, got.Record.Steps, runsAgain)
				}
			}
			e.holds("begun anew", over, nil)
			e.holds("run again", freed, twoSteps)
		},
	},
	{
		name: "one that ends meanwhile tells of each",
		promise: "Of a batch whose context ends while it is claimed each claim was executed whole or not at all. What has no error " +
			"holds, what has one can be sent again and succeeds as its own: it does not look refused (cases 7, 8).",
		needs: batcher,
		run: func(e *env) {
			for i := range 12 {
				claims := make([]driver.ClaimOf, 8)
				for n := range claims {
					claims[n] = driver.ClaimOf{ID: newID(), Claim: ask(driver.Hold)}
				}
				var all []driver.Claimed
				e.cutOff(time.Duration(i)*130*time.Microsecond, func(ctx context.Context) {
					all = e.claimAllUnder(ctx, claims)
				})
				if len(all) != len(claims) {
					e.Fatalf("ClaimAll of %d claims returned %d results", len(claims), len(all))
				}
				for n, c := range claims {
					now := e.a.load(c.ID)
					switch r := all[n]; {
					case r.Err == nil && !r.Owned:
						e.Fatalf("a first claim of a batch whose context ended meanwhile was refused without an error")
					case r.Err == nil:
						e.same("acknowledged claim, cut off", now, r.Record)
					case now.State != driver.Absent && (now.State != driver.Running || now.Token != c.Token || now.Attempt != 1):
						e.Fatalf("a claim that was cut off left half a record: %+v", now)
					}
				}
				for n, r := range e.b.claimAll(claims) {
					if !r.Owned || r.Record.Token != claims[n].Token || r.Record.Attempt != 1 {
						e.Fatalf("claim %d sent again: owned is %t, %+v", n, r.Owned, r.Record)
					}
				}
			}
		},
	},
	{
		name:    "an ended context is an error and changes nothing",
		promise: "ClaimAll with a context that has ended returns an error for each claim, and does nothing.",
		needs:   batcher,
		run: func(e *env) {
			for why, ctx := range ended() {
				claims := []driver.ClaimOf{{ID: newID(), Claim: ask(driver.Hold)}, {ID: newID(), Claim: ask(driver.Rerun)}}
				all := e.claimAllUnder(ctx, claims)
				if len(all) != len(claims) {
					e.Fatalf("ClaimAll of %d claims, context %s, returned %d results", len(claims), why, len(all))
				}
				for i, r := range all {
					if r.Err == nil || r.Owned {
						e.Errorf("claim %d with a context %s: owned is %t, error %v", i, why, r.Owned, r.Err)
					}
					e.unchanged("context "+why, claims[i].ID, driver.Record{})
				}
			}
		},
	},
}

func (e *env) claimAllUnder(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	return e.a.Store.(driver.BatchClaimer).ClaimAll(ctx, claims)
}
