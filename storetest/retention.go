package storetest

import (
	"github.com/semelhq/semel/driver"
)

var retentionChecks = []check{
	{
		name: "it counts from completion",
		promise: "An outcome is kept for the whole retention after it was written, however long the run took: until then " +
			"repeats are refused, and neither claims nor sweeps end it early (R-53).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			c.Retention = e.short
			rec := e.a.begin(id, c)
			e.pass(2 * e.short) // a run longer than the retention
			before := e.now()
			rec = e.a.end(id, rec.Owner(), done(answer()))
			e.a.sweepAll()
			got, owned := e.b.claim(id, retry(c))
			switch {
			case owned && got.Now < before.Add(e.short):
				e.Errorf("a new run %s after completion, retention %s", got.Now.Sub(before), e.short)
			case !owned && got.Now >= rec.Settled.Add(e.short):
				e.Errorf("refused %s after completion, retention %s", got.Now.Sub(rec.Settled), e.short)
			case !owned:
				e.same("within retention", got, rec)
			}
		},
	},
	{
		name: "after it the key is new",
		promise: "A claim after the retention starts a new operation, for any request and any token: attempt 1, and nothing " +
			"of the old one left but the order of fences (R-53).",
		run: func(e *env) {
			for _, row := range []struct {
				name              string
				sameToken, sameFP bool
			}{
				{"other request", false, false},
				{"same request", false, true},
				{"the token that settled it", true, true},
			} {
				s := e.lapse(driver.Rerun, false)
				r := retry(s.claim)
				r.Retention = e.short
				old := e.a.begin(s.id, r)
				o := done(answer())
				o.Error = "warning"
				old = e.a.end(s.id, old.Owner(), o)
				e.until(old.Settled.Add(e.short))
				if got := e.b.load(s.id); got.Reads(driver.Hold) != driver.ReadsAbsent {
					e.Errorf("%s: reads as %s after the retention, want absent", row.name, got.Reads(driver.Hold))
				}
				c := ask(driver.Hold)
				c.Operation, c.Sealed = "PUT /accounts", []byte("sealed again")
				if row.sameToken {
					c.Token = old.Token
				}
				if row.sameFP {
					c.Fingerprint = old.Fingerprint
				}
				rec := e.b.begin(s.id, c)
				e.followed(row.name, old, rec)
				want := driver.Record{
					State:       driver.Running,
					Fence:       rec.Fence,
					Token:       c.Token,
					Fingerprint: c.Fingerprint,
					Attempt:     1,
					Created:     rec.Created,
					Started:     rec.Created,
					LeaseEnd:    rec.Created.Add(c.Lease),
					Retention:   c.Retention,
					Operation:   c.Operation,
					Correlation: c.Correlation,
					Sealed:      c.Sealed,
				}
				e.same(row.name, rec, want)
				e.unchanged(row.name, s.id, want)
				if rec.Created < old.Settled.Add(e.short) {
					e.Errorf("%s: created at %s, when the old operation was kept", row.name, rec.Created.Time())
				}
			}
		},
	},
	{
		name: "a begun run is kept from its lease's end",
		promise: "A begun run that was lost is done without an answer for one retention from the end of its lease; then the " +
			"key is new, under Hold too, and nothing of it is left.",
		run: func(e *env) {
			for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				id, c := newID(), ask(p)
				c.Retention = e.short
				rec := e.a.begin(id, c)
				rec = e.a.renew(id, rec.Owner(), driver.Extension{Lease: e.short, Begun: true})
				e.until(rec.LeaseEnd)
				end := rec.LeaseEnd.Add(e.short)
				got, owned := e.b.claim(id, retry(c))
				if owned != (got.Now >= end) {
					e.Errorf("%s after the lease, retention %s: owned is %t", got.Now.Sub(rec.LeaseEnd), e.short, owned)
				}
				if owned {
					continue
				}
				e.until(end)
				next := e.b.begin(id, ask(p))
				e.followed("begun, lost and past", rec, next)
				if next.Begun || next.Maybe || next.Attempt != 1 {
					e.Errorf("begun %t, maybe %t, attempt %d; want a new operation", next.Begun, next.Maybe, next.Attempt)
				}
			}
		},
	},
	{
		name:    "forever is long",
		promise: "A record kept forever is still done after any other is gone, and is not swept.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			c.Retention = driver.Forever
			rec := e.a.begin(id, c)
			rec = e.a.end(id, rec.Owner(), done(answer()))
			if e.advance != nil {
				e.pass(20 * 365 * 24 * long)
			} else {
				e.pass(e.short)
			}
			e.a.sweepAll()
			e.b.refuse("kept forever", id, retry(c))
			e.unchanged("kept forever", id, rec)
		},
	},
}
