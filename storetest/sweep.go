package storetest

import (
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// expired makes n done records whose retention is over, and returns their ids. A storage that drops such records by
// itself may have done so.
func (e *env) expired(n int) []driver.ID {
	e.Helper()
	ids := make([]driver.ID, n)
	var end driver.Time
	for i := range ids {
		ids[i] = newID()
		c := ask(driver.Hold)
		c.Retention = e.short
		rec := e.both(i).begin(ids[i], c)
		rec = e.both(i).end(ids[i], rec.Owner(), done(answer()))
		end = max(end, rec.Settled.Add(e.short))
	}
	e.until(end)
	return ids
}

// left counts the records that still exist.
func (e *env) left(ids []driver.ID) int {
	e.Helper()
	n := 0
	for i, id := range ids {
		if e.both(i).exists(id) {
			n++
		}
	}
	return n
}

var sweepChecks = []check{
	{
		name:    "it deletes what is past its retention",
		promise: "Sweep deletes done records past their retention, and fewer than the limit means that none is left.",
		run: func(e *env) {
			ids := e.expired(7)
			before := e.left(ids)
			if n := e.a.sweep(100); n != before {
				e.Errorf("Sweep returned %d, and there were %d", n, before)
			}
			if n := e.left(ids); n != 0 {
				e.Errorf("%d records are left", n)
			}
			if n := e.b.sweep(100); n != 0 {
				e.Errorf("a second Sweep returned %d, and there were none", n)
			}
		},
	},
	{
		name:    "it deletes no more than its limit",
		promise: "Sweep deletes at most limit records a call, and says how many: it works in bounded batches (R-55).",
		run: func(e *env) {
			ids := e.expired(10)
			for _, limit := range []int{0, 1, 4, 4, 4} {
				before := e.left(ids)
				n := e.a.sweep(limit)
				if n > limit {
					e.Errorf("Sweep(%d) returned %d", limit, n)
				}
				if gone := before - e.left(ids); gone != n {
					e.Errorf("Sweep(%d) returned %d and deleted %d", limit, n, gone)
				}
				if want := min(limit, before); n != want {
					e.Errorf("Sweep(%d) returned %d, and there were %d", limit, n, before)
				}
			}
		},
	},
	{
		name: "it spares what is in use or undecided",
		promise: "Sweep deletes nothing that may be owned, within its retention, lapsed under Hold, or stored unknown, " +
			"however long that waits (R-55, case 24).",
		run: func(e *env) {
			all := e.situations()
			held := e.lapse(driver.Hold, false)
			lost := situation{name: "unknown", id: newID(), claim: ask(driver.Hold)}
			for _, s := range []*situation{&held, &lost} {
				// The shortest retention: that of these records never begins.
				s.id = newID()
				s.claim.Retention, s.claim.Lease = e.short, e.short
				s.rec = e.a.begin(s.id, s.claim)
			}
			lost.rec = e.a.end(lost.id, lost.rec.Owner(), unknown("timeout"))
			e.pass(9 * e.short) // more than seven retentions after the lease
			e.a.sweepAll()
			for _, s := range append(all, held, lost) {
				e.unchanged(s.name, s.id, s.rec)
			}
			if rec, owned := e.b.settle(held.id, held.rec.Owner(), done(answer())); !owned || rec.State != driver.Done {
				e.Errorf("the late owner of a record lapsed under Hold could not settle it")
			}
		},
	},
	{
		name:    "a running record is no candidate",
		promise: "Sweep spares a run whose lease goes on, however short its retention: that counts from completion.",
		run: func(e *env) {
			var all []situation
			for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				for _, begun := range []bool{false, true} {
					s := situation{name: "running under " + p.String(), id: newID(), claim: ask(p)}
					s.claim.Retention = e.short
					s.rec = e.a.begin(s.id, s.claim)
					s.rec = e.a.renew(s.id, s.rec.Owner(), driver.Extension{Lease: long, Begun: begun})
					all = append(all, s)
				}
			}
			e.pass(2 * e.short)
			e.b.sweepAll()
			for _, s := range all {
				e.unchanged(s.name, s.id, s.rec)
			}
		},
	},
	{
		name: "a lost Rerun run is deleted a retention later",
		promise: "A run lapsed under Rerun, and a begun one under any policy, is deleted one retention after its lease, not " +
			"before.",
		run: func(e *env) {
			for _, row := range []struct {
				policy driver.LostPolicy
				begun  bool
			}{{driver.Rerun, false}, {driver.Rerun, true}, {driver.Hold, true}} {
				id, c := newID(), ask(row.policy)
				c.Retention = 2 * e.short
				rec := e.a.begin(id, c)
				rec = e.a.renew(id, rec.Owner(), driver.Extension{Lease: e.short, Begun: row.begun})
				e.until(rec.LeaseEnd)
				e.sweepsFrom(id, rec.LeaseEnd.Add(c.Retention))
			}
		},
	},
	{
		name:    "one with a sealed request is deleted seven retentions later",
		promise: "A run lapsed under Rerun with a sealed request, which a completer may still finish, is kept seven retentions.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Retention, c.Lease, c.Sealed = e.short, e.short, []byte("sealed request")
			rec := e.a.begin(id, c)
			e.until(rec.LeaseEnd.Add(6 * e.short))
			e.sweepsFrom(id, rec.LeaseEnd.Add(7*e.short))
		},
	},
	{
		name:    "one that is owed is deleted seven retentions later",
		promise: "A free record whose end is owed, which a completer may still finish, is kept seven retentions.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Retention = e.short
			rec := e.a.ran(id, c, owed("gave up"))
			e.until(rec.Settled.Add(6 * e.short))
			e.sweepsFrom(id, rec.Settled.Add(7*e.short))
		},
	},
	{
		name:    "a free record is kept an hour",
		promise: "A free record is kept for FreeRetention from its release, not longer and not shorter.",
		needs:   movable,
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			c.Retention = e.short
			rec := e.a.begin(id, c)
			rec = e.a.end(id, rec.Owner(), free(""))
			end := rec.Settled.Add(driver.FreeRetention)
			e.until(end.Add(-e.short))
			e.sweepsFrom(id, end)
		},
	},
	{
		name:    "several sweepers share the work",
		promise: "Sweepers that work at once delete each record once (R-55).",
		run: func(e *env) {
			ids := e.expired(60)
			before := e.left(ids)
			var total atomic.Int64
			errs := make([]error, 6)
			e.together(len(errs), func(i int) {
				for range 30 {
					n, err := e.both(i).Sweep(e.ctx, 5)
					total.Add(int64(n))
					if errs[i] = err; err != nil || n == 0 {
						return
					}
				}
			})
			for _, err := range errs {
				if err != nil {
					e.Errorf("Sweep: %v", err)
				}
			}
			e.b.sweepAll()
			if n := e.left(ids); n != 0 {
				e.Errorf("%d records are left", n)
			}
			if int(total.Load()) != before {
				e.Errorf("six sweepers say that they deleted %d records, and there were %d", total.Load(), before)
			}
		},
	},
	{
		name: "it never deletes a run that has just started",
		promise: "Where a claim and a sweep meet at a record past its retention, the claim's run stands afterwards, whichever " +
			"came first (R-55, case 24).",
		run: func(e *env) {
			const rounds, claimers, sweepers, each = 4, 4, 3, 6
			for round := range rounds {
				ids := e.expired(claimers * each)
				claims := make([]driver.Claim, len(ids))
				for i := range claims {
					claims[i] = ask(driver.Hold)
				}
				replies := make([]reply, len(ids))
				errs := make([]error, sweepers)
				sweeping := make(chan struct{})
				if round%2 == 0 {
					close(sweeping) // in the other rounds the claims come once a sweep is under way
				}
				e.together(claimers+sweepers, func(i int) {
					if i < sweepers {
						if i == 0 && round%2 != 0 {
							close(sweeping)
						}
						for n, tries := 1, 0; n > 0 && tries < 30; tries++ {
							n, errs[i] = e.both(i).Sweep(e.ctx, each)
						}
						return
					}
					<-sweeping
					for at := (i - sweepers) * each; at < (i-sweepers+1)*each; at++ {
						r := &replies[at]
						r.rec, r.owned, r.err = e.both(i).Claim(e.ctx, ids[at], claims[at])
					}
				})
				for _, err := range errs {
					if err != nil {
						e.Fatalf("Sweep: %v", err)
					}
				}
				for i, r := range replies {
					if r.err != nil || !r.owned {
						e.Fatalf("Claim of a record past its retention while sweeps ran: owned is %t, error %v", r.owned, r.err)
					}
					e.unchanged("claimed while sweeps ran", ids[i], r.rec)
				}
			}
		},
	},
}

// sweepsFrom checks that a sweep spares the record before the given time and deletes it from then on.
func (e *env) sweepsFrom(id driver.ID, end driver.Time) {
	e.Helper()
	e.a.sweepAll()
	// The clock is read after the record: if it shows a time before the end, the sweep was before it too.
	if gone := !e.b.exists(id); gone && e.now() < end {
		e.Errorf("the record was deleted %s too early", end.Sub(e.now()))
		return
	}
	e.until(end)
	e.b.sweepAll()
	if e.a.exists(id) {
		e.Errorf("the record is left after its time")
	}
}
