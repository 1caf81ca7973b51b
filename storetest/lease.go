package storetest

import (
	"math"
	"time"

	"github.com/semelhq/semel/driver"
)

var leaseChecks = []check{
	{
		name: "over under Rerun it is taken over",
		promise: "When the lease of a run is over and both the record and the caller say Rerun, the next claim starts a run " +
			"with the next fence and attempt, marked maybe, because the lost one may have had its effect (R-46).",
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			r := retry(s.claim)
			rec := e.b.begin(s.id, r)
			want := s.rec
			want.Fence, want.Token, want.Attempt, want.Maybe = s.rec.Fence+1, r.Token, 2, true
			want.Started, want.LeaseEnd, want.Correlation = rec.Started, rec.Started.Add(r.Lease), r.Correlation
			e.same("the record after the takeover", rec, want)
			e.unchanged("after the takeover", s.id, want)
			if rec.Started < s.rec.LeaseEnd {
				e.Errorf("taken over at %s, before the lease ended at %s", rec.Started.Time(), s.rec.LeaseEnd.Time())
			}
		},
	},
	{
		name: "a taken over run leaves its end owed",
		promise: "The run that takes over an operation whose request is stored finds it owed: the lost run's client has no answer. " +
			"That lasts over every release, by its owner and by token, until the operation is done (R-52).",
		run: func(e *env) {
			for _, sealed := range []bool{true, false} {
				id, c := newID(), ask(driver.Rerun)
				c.Lease = e.short
				if sealed {
					c.Sealed = []byte("sealed request")
				}
				lapsed := e.a.begin(id, c)
				e.until(lapsed.LeaseEnd)
				for i, end := range []func(rec driver.Record) driver.Record{
					func(rec driver.Record) driver.Record { return e.b.end(id, releasing(rec.Token, 0), free("gave up")) },
					func(rec driver.Record) driver.Record { return e.a.end(id, rec.Owner(), free("answered 503")) },
				} {
					rec := e.both(i).begin(id, retry(c))
					if rec.Owed != sealed {
						e.Errorf("sealed %v, claim %d: owed is %v", sealed, i+1, rec.Owed)
					}
					want := end(rec)
					if want.Owed != sealed {
						e.Errorf("sealed %v, claim %d, released: owed is %v", sealed, i+1, want.Owed)
					}
					e.unchanged("released", id, want)
				}
				rec := e.b.begin(id, retry(c))
				if rec = e.b.end(id, rec.Owner(), done(answer())); rec.Owed {
					e.Errorf("sealed %v: done, and owed", sealed)
				}
			}
		},
	},
	{
		name: "it ends when it says",
		promise: "A run is taken over exactly from its lease's end on, as the store's clock tells it: not before, and never " +
			"because of the claimant's clock (R-46, R-50).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Lease = e.short
			rec := e.a.begin(id, c)
			for _, after := range []time.Duration{0, e.short / 2, e.short} {
				e.until(rec.Started.Add(after))
				got, owned := e.b.claim(id, retry(c))
				if owned != (got.Now >= rec.LeaseEnd) {
					e.Errorf("%s after the start of a lease of %s: owned is %t", got.Now.Sub(rec.Started), c.Lease, owned)
				}
				if owned {
					return
				}
			}
		},
	},
	{
		name: "over under Hold it reads as unknown",
		promise: "When the lease is over and the record or the caller says Hold, a claim is refused and the record reads as " +
			"unknown, while it is stored as running: reading writes nothing.",
		run: func(e *env) {
			for _, row := range []struct{ record, caller driver.LostPolicy }{
				{driver.Hold, driver.Hold},
				{driver.Hold, driver.Rerun},
				{driver.Rerun, driver.Hold},
			} {
				name := "record " + row.record.String() + ", caller " + row.caller.String()
				s := e.lapse(row.record, false)
				r := retry(s.claim)
				r.OnLost = row.caller
				rec := e.b.refuse(name, s.id, r)
				e.same(name, rec, s.rec)
				if got := rec.Reads(row.caller); got != driver.ReadsUnknown {
					e.Errorf("%s: reads as %s, want unknown", name, got)
				}
				e.unchanged(name, s.id, s.rec)
			}
		},
	},
	{
		name: "a caller's Hold binds nobody else",
		promise: "A claim that its caller's Hold refused leaves the record to the next caller who says Rerun like its " +
			"owner.",
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			hold := retry(s.claim)
			hold.OnLost = driver.Hold
			e.a.refuse("caller says Hold", s.id, hold)
			e.b.begin(s.id, retry(s.claim))
		},
	},
	{
		name:    "the policy is that of the present run",
		promise: "A run that takes over stores its own caller's policy: one under Hold that was free before is not run again.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			rec := e.a.begin(id, c)
			e.a.end(id, rec.Owner(), free(""))
			c = retry(c)
			c.OnLost = driver.Rerun
			rec = e.a.begin(id, c)
			if rec.OnLost != driver.Rerun {
				e.Errorf("the second run is under %s, want rerun", rec.OnLost)
			}
			rec = e.a.renew(id, rec.Owner(), driver.Extension{Lease: e.short})
			e.until(rec.LeaseEnd)
			e.b.begin(id, retry(c)) // under Hold it would be unknown
		},
	},
	{
		name: "over when begun it is done without an answer",
		promise: "A begun run whose lease is over is never run again, whatever the policies: it reads as done without an " +
			"answer.",
		run: func(e *env) {
			for _, own := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				s := e.lapse(own, true)
				for _, caller := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
					r := retry(s.claim)
					r.OnLost = caller
					rec := e.b.refuse("begun and lapsed", s.id, r)
					e.same("begun and lapsed", rec, s.rec)
					if got := rec.Reads(caller); got != driver.ReadsDone || rec.Response != nil {
						e.Errorf("reads as %s, want done without an answer", got)
					}
				}
			}
		},
	},
	{
		name: "a late owner whom nobody replaced may settle",
		promise: "An owner whose lease is over may still extend and settle its run until it is replaced, under Hold too, " +
			"where the record already reads as unknown.",
		run: func(e *env) {
			for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				s := e.lapse(p, false)
				rec := e.b.end(s.id, s.owner(), done(answer()))
				if rec.State != driver.Done || rec.Response == nil {
					e.Errorf("%s: settled as %s", p, rec.State)
				}

				s = e.lapse(p, false)
				if !e.b.extend(s.id, s.owner(), driver.Extension{Lease: long}) {
					e.Errorf("%s: Extend was refused to the late owner", p)
				}
				if got := e.a.refuse("extended by its late owner", s.id, retry(s.claim)); got.Reads(p) != driver.ReadsRunning {
					e.Errorf("%s: reads as %s after Extend, want running", p, got.Reads(p))
				}
			}
		},
	},
	{
		name: "zero or less means the default",
		promise: "A lease or retention that is zero or negative is the default, in Claim and in Extend: never one that is " +
			"over already (R-51, case 3).",
		run: func(e *env) {
			for _, d := range []time.Duration{0, -1, -time.Second, math.MinInt64} {
				id, c := newID(), ask(driver.Rerun)
				c.Lease, c.Retention = d, d
				rec := e.a.begin(id, c)
				if got := rec.LeaseEnd.Sub(rec.Started); got != driver.DefaultLease {
					e.Errorf("Claim with lease %d: it lasts %s, want %s", d, got, driver.DefaultLease)
				}
				if rec.Retention != driver.DefaultRetention {
					e.Errorf("Claim with retention %d: it is %s, want %s", d, rec.Retention, driver.DefaultRetention)
				}
				before := e.now()
				rec = e.b.renew(id, rec.Owner(), driver.Extension{Lease: d})
				if rec.LeaseEnd < before.Add(driver.DefaultLease) || rec.LeaseEnd > rec.Now.Add(driver.DefaultLease) {
					e.Errorf("Extend by %d: the lease ends %s after now, want %s", d, rec.LeaseEnd.Sub(rec.Now), driver.DefaultLease)
				}
				e.b.refuse("default lease", id, retry(c))
			}
		},
	},
	{
		name:    "a very short one is one",
		promise: "A lease of a millisecond is over after a millisecond, and its owner may still settle (case 3).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Lease = time.Millisecond
			rec := e.a.begin(id, c)
			if got := rec.LeaseEnd.Sub(rec.Started); got != time.Millisecond {
				e.Errorf("the lease lasts %s, want 1ms", got)
			}
			e.until(rec.LeaseEnd)
			e.b.end(id, rec.Owner(), done(answer()))
		},
	},
	{
		name: "what may have had its effect is held",
		promise: "A free record marked maybe is not run for a caller who says Hold: it reads as unknown to it, and the " +
			"caller who says Rerun may run it. Settle to free under Rerun, and a takeover, set the mark.",
		run: func(e *env) {
			freed := situation{id: newID(), claim: ask(driver.Rerun)}
			rec := e.a.begin(freed.id, freed.claim)
			freed.rec = e.a.end(freed.id, rec.Owner(), free("connection lost"))

			taken := e.lapse(driver.Rerun, false)
			rec = e.a.begin(taken.id, retry(taken.claim))
			taken.rec = e.a.end(taken.id, rec.Owner(), free("refused"))

			for _, s := range []situation{freed, taken} {
				if !s.rec.Maybe {
					e.Errorf("the mark is missing on a record freed under Rerun")
				}
				hold := retry(s.claim)
				hold.OnLost = driver.Hold
				got := e.b.refuse("free with maybe, caller says Hold", s.id, hold)
				if got.Reads(driver.Hold) != driver.ReadsUnknown {
					e.Errorf("reads as %s to a caller who says Hold, want unknown", got.Reads(driver.Hold))
				}
				e.unchanged("free with maybe", s.id, s.rec)
				if got = e.b.begin(s.id, retry(s.claim)); !got.Maybe {
					e.Errorf("the next run lost the mark")
				}
			}
		},
	},
}
