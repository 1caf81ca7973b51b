package storetest

import (
	"github.com/semelhq/semel/driver"
)

var claimChecks = []check{
	{
		name: "an absent key starts its first run",
		promise: "Claim of an absent record stores a running one: attempt 1, a fence not below the clock in milliseconds, " +
			"owned by the claim's token, with every field of the claim, timed by the store's clock.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Sealed = []byte("sealed request")
			before := e.b.load(id)
			e.same("Load of a record that does not exist", before, driver.Record{})
			rec := e.a.begin(id, c)
			want := driver.Record{
				State:       driver.Running,
				OnLost:      driver.Rerun,
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
			e.same("the claimed record", rec, want)
			e.same("the claimed record, loaded through the other handle", e.b.load(id), want)
			if rec.Created < before.Now || rec.Created > rec.Now {
				e.Errorf("Created is %s, not between the clock before (%s) and after (%s)",
					rec.Created.Time(), before.Now.Time(), rec.Now.Time())
			}
			if rec.Fence < uint64(rec.Created)/1000 {
				e.Errorf("the first fence is %d, below the clock in milliseconds, %d: it could repeat one of a forgotten record",
					rec.Fence, uint64(rec.Created)/1000)
			}
		},
	},
	{
		name:    "a running key refuses others",
		promise: "While the lease of a run is not over, a claim with another token is refused, whatever the policies (R-26).",
		run: func(e *env) {
			for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				id, c := newID(), ask(p)
				rec := e.a.begin(id, c)
				for _, caller := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
					r := retry(c)
					r.OnLost = caller
					e.same("the record that a refused claim returns", e.b.refuse("running, "+p.String(), id, r), rec)
				}
			}
		},
	},
	{
		name: "a claim repeated by its own token is owned again",
		promise: "A claim whose reply was lost is sent again and succeeds as its own: same fence, same attempt, the lease " +
			"counted from now (case 7).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			want := e.a.begin(id, c)
			c.Lease *= 2
			before := e.now()
			rec := e.b.begin(id, c)
			if rec.LeaseEnd < before.Add(c.Lease) || rec.LeaseEnd > rec.Now.Add(c.Lease) {
				e.Errorf("the lease ends %s after now, want %s", rec.LeaseEnd.Sub(rec.Now), c.Lease)
			}
			want.LeaseEnd = rec.LeaseEnd
			e.same("the record after the repeated claim", rec, want)
			e.unchanged("after the repeated claim", id, want)
		},
	},
	{
		name: "a claim repeated after its lease is owned again",
		promise: "An owner whose lease is over and whom nobody replaced owns again when it repeats its claim, under Hold, " +
			"under Rerun and when begun: same fence, same attempt, nothing else changed.",
		run: func(e *env) {
			for _, s := range e.situations() {
				if s.rec.State != driver.Running {
					continue
				}
				want := s.rec
				rec := e.b.begin(s.id, s.claim)
				want.LeaseEnd = rec.LeaseEnd
				e.same(s.name, rec, want)
				if rec.LeaseEnd <= rec.Now {
					e.Errorf("%s: the lease was not renewed", s.name)
				}
			}
		},
	},
	{
		name: "a settled token is spent",
		promise: "A token that has settled its run owns no other: a late copy of its claim is refused in every settled " +
			"state and changes nothing.",
		run: func(e *env) {
			for _, s := range e.situations() {
				if s.rec.State == driver.Running {
					continue
				}
				e.same(s.name+": the record returned", e.b.refuse(s.name+", own token", s.id, s.claim), s.rec)
				e.unchanged(s.name, s.id, s.rec)
			}
		},
	},
	{
		name: "a free key runs again",
		promise: "A claim of a free record starts a run with the next fence and attempt. It keeps what belongs to the " +
			"operation (identity, first fingerprint, creation, sealed request, last error) and takes what belongs to the " +
			"run from the claim.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			c.Sealed = []byte("first request, sealed")
			first := e.a.begin(id, c)
			want := e.a.end(id, first.Owner(), free("no route to host"))

			r := retry(c)
			r.Lease, r.Retention, r.OnLost = 2*long, 3*long, driver.Rerun
			r.Operation, r.Sealed = "POST /payments/", []byte("second request, sealed")
			rec := e.b.begin(id, r)
			want.State, want.Wrote, want.Settled = driver.Running, driver.Absent, 0
			want.Fence, want.Token, want.OnLost = first.Fence+1, r.Token, driver.Rerun
			want.Attempt = 2
			want.Started, want.LeaseEnd = rec.Started, rec.Started.Add(r.Lease)
			want.Retention, want.Correlation = r.Retention, r.Correlation
			e.same("the second run", rec, want)
			e.unchanged("after the second claim", id, want)
			if rec.Started < first.Started || rec.Started > rec.Now {
				e.Errorf("the second run started at %s, want the time of its claim", rec.Started.Time())
			}
		},
	},
	{
		name:    "a done key answers",
		promise: "Within its retention a done record refuses every claim and returns the answer, or that there is none.",
		run: func(e *env) {
			for _, a := range []*driver.Response{answer(), nil} {
				id, c := newID(), ask(driver.Rerun)
				rec := e.a.begin(id, c)
				want := e.a.end(id, rec.Owner(), done(a))
				want.Response = a
				for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
					r := retry(c)
					r.OnLost = p
					got := e.b.refuse("done", id, r)
					e.same("the record that a repeat gets", got, want)
					if got.Reads(p) != driver.ReadsDone {
						e.Errorf("the record reads as %s, want done", got.Reads(p))
					}
				}
			}
		},
	},
	{
		name:    "an unknown key stays closed",
		promise: "A record stored as unknown refuses every claim: only operators and reconcile move it.",
		run: func(e *env) {
			for _, own := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				id, c := newID(), ask(own)
				rec := e.a.begin(id, c)
				want := e.a.end(id, rec.Owner(), unknown("timeout"))
				for _, caller := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
					r := retry(c)
					r.OnLost = caller
					e.same("the record that a repeat gets", e.b.refuse("unknown", id, r), want)
				}
			}
		},
	},
	{
		name: "a refused claim writes nothing",
		promise: "A claim that is refused leaves the record as it was, in every state, and returns it as it stands " +
			"(case 1).",
		run: func(e *env) {
			for _, s := range e.situations() {
				r := retry(s.claim)
				r.OnLost = driver.Hold
				if s.rec.Reads(r.OnLost) == driver.ReadsFree {
					continue
				}
				r.Operation, r.Sealed = "DELETE /", []byte("other bytes")
				e.same(s.name+": the record returned", e.b.refuse(s.name, s.id, r), s.rec)
				e.unchanged(s.name, s.id, s.rec)
			}
		},
	},
}
