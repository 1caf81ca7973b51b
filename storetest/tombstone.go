package storetest

import (
	"time"

	"github.com/semelhq/semel/driver"
)

// entombed makes a done record whose answer expires at once, and its tombstone after d.
func (e *env) entombed(d time.Duration) (id driver.ID, c driver.Claim, rec driver.Record) {
	e.Helper()
	id, c = newID(), ask(driver.Rerun)
	c.Retention, c.Tombstone = e.short, d
	rec = e.a.begin(id, c)
	if rec.Tombstone != d {
		e.Errorf("the record's tombstone is %s, claimed with %s", rec.Tombstone, d)
	}
	rec = e.a.end(id, rec.Owner(), done(answer()))
	e.until(rec.Settled.Add(e.short))
	return id, c, rec
}

// refusedAsExpired reports where a record past its retention is not refused as that.
func (e *env) refusedAsExpired(what string, id driver.ID, c driver.Claim, token driver.Token) {
	e.Helper()
	before := e.b.load(id)
	if before.Reads(driver.Hold) != driver.ReadsExpired {
		e.Errorf("%s: reads as %s, want expired", what, before.Reads(driver.Hold))
	}
	other := ask(driver.Rerun)
	spent := c
	spent.Token = token
	for i, r := range []driver.Claim{retry(c), other, spent} {
		e.both(i).refuse(what, id, r)
	}
	e.unchanged(what, id, before)
}

var tombstoneChecks = []check{
	{
		name: "it outlives the answer",
		promise: "After its retention a record with a tombstone reads as expired, and refuses every claim without writing: of " +
			"the same request, of another one, with the token that settled it (R-54).",
		run: func(e *env) {
			id, c, rec := e.entombed(long)
			e.refusedAsExpired("before the sweep", id, c, rec.Token)
		},
	},
	{
		name: "Sweep leaves it",
		promise: "Sweep takes the answer of a record with a tombstone, once, and leaves the rest, which still refuses every claim " +
			"(R-54).",
		run: func(e *env) {
			id, c, rec := e.entombed(long)
			stripped := e.a.sweepAll()
			e.refusedAsExpired("after the sweep", id, c, rec.Token)
			got := e.b.load(id)
			if stripped > 0 && got.Response != nil {
				e.Errorf("the answer is still there after a sweep that changed %d records", stripped)
			}
			if n := e.b.sweep(100); n != 0 {
				e.Errorf("a second Sweep changed %d records", n)
			}
			got.Response, rec.Response = nil, nil
			e.same("the tombstone", got, rec)
		},
	},
	{
		name:    "it waits for the retention",
		promise: "Within its retention a record with a tombstone is done: it refuses with its answer, and no sweep takes that.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			c.Tombstone = e.short
			rec := e.a.begin(id, c)
			rec = e.a.end(id, rec.Owner(), done(answer()))
			e.pass(2 * e.short)
			e.a.sweepAll()
			if got := e.b.refuse("done", id, retry(c)); got.Reads(driver.Hold) != driver.ReadsDone {
				e.Errorf("reads as %s, want done", got.Reads(driver.Hold))
			}
			e.unchanged("done", id, rec)
		},
	},
	{
		name:    "after it the key is new",
		promise: "When its tombstone is over too, swept or not, a record is absent to every claim, and Sweep deletes it (R-54).",
		run: func(e *env) {
			for _, swept := range []bool{false, true} {
				id, _, rec := e.entombed(e.short)
				if swept {
					e.a.sweepAll()
				}
				e.until(rec.Settled.Add(e.short).Add(e.short))
				if got := e.b.load(id); got.Reads(driver.Hold) != driver.ReadsAbsent {
					e.Errorf("swept %t: reads as %s, want absent", swept, got.Reads(driver.Hold))
				}
				if swept {
					e.a.sweepAll()
					if e.b.exists(id) {
						e.Errorf("the record is left after its tombstone, and a sweep")
					}
				}
				next := e.b.begin(id, ask(driver.Hold))
				e.followed("a new operation", rec, next)
				if next.Attempt != 1 || next.Tombstone != 0 || next.Response != nil {
					e.Errorf("attempt %d, tombstone %s, answer %t; want a new operation", next.Attempt, next.Tombstone, next.Response != nil)
				}
			}
		},
	},
	{
		name:    "a begun run has one too",
		promise: "A begun run that was lost is expired from a retention after its lease until its tombstone ends.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Retention, c.Tombstone = e.short, long
			rec := e.a.begin(id, c)
			rec = e.a.renew(id, rec.Owner(), driver.Extension{Lease: e.short, Begun: true})
			e.until(rec.LeaseEnd.Add(e.short))
			e.a.sweepAll()
			e.refusedAsExpired("begun and lost", id, c, rec.Token)
		},
	},
}
