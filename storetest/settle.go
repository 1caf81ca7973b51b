package storetest

import (
	"time"

	"github.com/semelhq/semel/driver"
)

var settleChecks = []check{
	{
		name: "done keeps the answer",
		promise: "Settle to done stores the answer, the time, and that this owner wrote it; it clears maybe. The record " +
			"that it returns is the one that every handle loads.",
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			want := e.a.begin(s.id, retry(s.claim)) // a takeover, so that maybe is set
			before := e.now()
			a := answer()
			rec := e.a.end(s.id, want.Owner(), done(a))
			want.State, want.Wrote, want.Settled = driver.Done, driver.Done, rec.Settled
			want.Response, want.Maybe = a, false
			e.same("the settled record", rec, want)
			e.unchanged("settled", s.id, want)
			if rec.Settled < before || rec.Settled > rec.Now {
				e.Errorf("settled at %s, want the time of the call", rec.Settled.Time())
			}
		},
	},
	{
		name:    "done without an answer is done",
		promise: "Settle to done without an answer is kept as that: no answer, and never a second run (failure rule 3).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			want := e.a.begin(id, c)
			o := done(nil)
			o.Error = "answer of 5242880 bytes is above the limit"
			rec := e.a.end(id, want.Owner(), o)
			want.State, want.Wrote, want.Settled, want.Error = driver.Done, driver.Done, rec.Settled, o.Error
			e.same("the settled record", rec, want)
			e.same("the record that a repeat gets", e.b.refuse("done without an answer", id, retry(c)), want)
		},
	},
	{
		name: "free keeps the operation",
		promise: "Settle to free keeps the record, its fence, attempts and error; under Rerun it is marked maybe, under Hold, " +
			"where free promises that nothing happened, it is not.",
		run: func(e *env) {
			for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				id := newID()
				want := e.a.begin(id, ask(p))
				rec := e.a.end(id, want.Owner(), free("503 from upstream"))
				want.State, want.Wrote, want.Settled = driver.Free, driver.Free, rec.Settled
				want.Error, want.Maybe = "503 from upstream", p == driver.Rerun
				e.same(p.String(), rec, want)
				e.unchanged(p.String(), id, want)
			}
		},
	},
	{
		name:    "unknown is closed to its owner",
		promise: "Once an owner has settled its run as unknown it can't decide otherwise: only who seizes the record can.",
		run: func(e *env) {
			id := newID()
			want := e.a.begin(id, ask(driver.Hold))
			rec := e.a.end(id, want.Owner(), unknown("timeout"))
			want.State, want.Wrote, want.Settled, want.Error = driver.Unknown, driver.Unknown, rec.Settled, "timeout"
			e.same("the settled record", rec, want)
			for _, o := range []driver.Outcome{done(answer()), free("")} {
				if _, owned := e.b.settle(id, want.Owner(), o); owned {
					e.Errorf("Settle as %s was granted after Settle as unknown", o.State)
				}
				e.unchanged("settled as unknown, then as "+o.State.String(), id, want)
			}
		},
	},
	{
		name: "a repeated settle succeeds and changes nothing",
		promise: "The settle that an owner has already written succeeds again, so that a lost reply does no harm, and writes " +
			"nothing, whatever else it carries.",
		run: func(e *env) {
			for _, o := range []driver.Outcome{done(answer()), done(nil), free("first"), unknown("first")} {
				id := newID()
				want := e.a.begin(id, ask(driver.Rerun))
				want = e.a.end(id, want.Owner(), o)
				e.pass(2 * time.Millisecond)
				o.Error, o.Owed = "second", true
				if o.State == driver.Done {
					o.Response = &driver.Response{Status: 500, Body: []byte("second")}
				}
				rec, owned := e.b.settle(id, want.Owner(), o)
				if !owned {
					e.Errorf("%s: the repeat was refused", o.State)
				}
				e.same(o.State.String()+": the record returned", rec, want)
				e.unchanged(o.State.String()+", repeated", id, want)
			}
		},
	},
	{
		name:    "an outcome is final",
		promise: "After a settle the same owner's settle to another outcome is refused, changes nothing, and returns the record.",
		run: func(e *env) {
			for _, first := range []driver.Outcome{done(answer()), free("first")} {
				for _, second := range []driver.Outcome{done(answer()), free("second"), unknown("second")} {
					if first.State == second.State {
						continue
					}
					name := first.State.String() + ", then " + second.State.String()
					id := newID()
					want := e.a.begin(id, ask(driver.Rerun))
					want = e.a.end(id, want.Owner(), first)
					rec, owned := e.b.settle(id, want.Owner(), second)
					if owned {
						e.Errorf("%s: granted", name)
					}
					e.same(name+": the record returned", rec, want)
					e.unchanged(name, id, want)
				}
			}
		},
	},
	{
		name:    "it is the owner's",
		promise: "Settle with another fence or another token is refused, changes nothing and returns the record as it stands.",
		run: func(e *env) {
			for _, s := range e.situations() {
				for what, by := range strangers(s.owner()) {
					for _, o := range []driver.Outcome{done(answer()), free("stranger"), unknown("stranger")} {
						rec, owned := e.b.settle(s.id, by, o)
						if owned {
							e.Errorf("%s: Settle as %s was granted to an owner with %s", s.name, o.State, what)
						}
						e.same(s.name+": the record returned", rec, s.rec)
						e.unchanged(s.name+", "+what, s.id, s.rec)
					}
				}
			}
		},
	},
	{
		name:    "it creates nothing",
		promise: "Settle of an absent record is refused and creates none.",
		run: func(e *env) {
			for _, o := range []driver.Outcome{done(answer()), free(""), unknown("")} {
				for _, by := range []driver.Owner{{}, {Fence: 1, Token: driver.NewToken()}, {Above: true}} {
					id := newID()
					rec, owned := e.a.settle(id, by, o)
					if owned {
						e.Errorf("Settle as %s of an absent record was granted", o.State)
					}
					e.same("the record returned", rec, driver.Record{})
					e.unchanged("absent", id, driver.Record{})
				}
			}
		},
	},
	{
		name: "a begun run is done",
		promise: "Once a run has begun its answer, Settle to free or unknown makes it done without an answer, and can be " +
			"repeated; Settle to done keeps the answer.",
		run: func(e *env) {
			for _, o := range []driver.Outcome{free("aborted"), unknown("aborted"), done(answer())} {
				id, c := newID(), ask(driver.Rerun)
				rec := e.a.begin(id, c)
				want := e.a.renew(id, rec.Owner(), driver.Extension{Lease: long, Begun: true})
				rec = e.a.end(id, rec.Owner(), o)
				want.State, want.Wrote, want.Settled = driver.Done, o.State, rec.Settled
				want.Response, want.Error = o.Response, o.Error
				e.same("begun, settled as "+o.State.String(), rec, want)
				e.b.end(id, rec.Owner(), o)
				e.unchanged("settled again", id, want)
				e.b.refuse("begun and settled", id, retry(c))
			}
		},
	},
	{
		name: "done may be kept for another time than its claim said",
		promise: "Outcome.Retention is how long a record that is done is kept, shorter or longer than Claim.Retention, also if its " +
			"answer was streamed; with free and unknown it changes nothing, nor does a repeated settle.",
		run: func(e *env) {
			for _, kept := range []time.Duration{long / 2, 3 * long, driver.Forever, 0, -1} {
				for _, o := range []driver.Outcome{done(answer()), done(nil), free("503 from upstream"), unknown("timeout")} {
					o.Retention = kept
					id, c := newID(), ask(driver.Hold)
					c.Tombstone = long
					rec := e.a.ran(id, c, o)
					want := long
					if o.State == driver.Done && kept > 0 {
						want = kept
					}
					if rec.Retention != want || rec.Tombstone != long {
						e.Errorf("settled as %s to be kept for %v: kept for %v, with a tombstone for %v", o.State, kept, rec.Retention, rec.Tombstone)
					}
					o.Retention = long / 4
					e.b.settle(id, rec.Owner(), o)
					e.unchanged("settled as "+o.State.String()+" again", id, rec)
				}
			}
			id, c := newID(), ask(driver.Hold)
			rec := e.a.begin(id, c)
			rec = e.a.renew(id, rec.Owner(), driver.Extension{Lease: long, Begun: true})
			o := done(answer())
			o.Retention = e.short
			rec = e.a.end(id, rec.Owner(), o)
			e.b.refuse("within its retention", id, retry(c))
			e.until(rec.Settled.Add(e.short))
			if rec = e.b.begin(id, ask(driver.Hold)); rec.Attempt != 1 || rec.Retention != long {
				e.Errorf("claimed after it: attempt %d, kept for %v; want a new operation, as its claim says", rec.Attempt, rec.Retention)
			}
		},
	},
	{
		name: "owed stays until the end",
		promise: "Settle to free with Owed notes that; it stays over later runs, takeovers, other releases and unknown, and done " +
			"clears it (R-52).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			isOwed := func(what string, rec driver.Record) driver.Record {
				e.Helper()
				if !rec.Owed {
					e.Errorf("%s: not owed any more", what)
				}
				e.unchanged(what, id, rec)
				return rec
			}
			isOwed("free and owed", e.a.ran(id, c, owed("gave up")))
			rec := isOwed("run again", e.b.begin(id, retry(c)))
			rec = isOwed("extended", e.b.renew(id, rec.Owner(), driver.Extension{Lease: e.short}))
			e.until(rec.LeaseEnd)
			rec = isOwed("taken over", e.a.begin(id, retry(c)))
			isOwed("free again", e.b.end(id, rec.Owner(), free("503 from upstream")))
			rec = e.a.begin(id, retry(c))
			rec = e.b.end(id, rec.Owner(), done(answer()))
			if rec.Owed {
				e.Errorf("done, and still owed")
			}
			e.unchanged("done", id, rec)

			id = newID()
			e.a.ran(id, c, owed("gave up"))
			rec = e.b.begin(id, retry(c))
			isOwed("unknown", e.a.end(id, rec.Owner(), unknown("timeout")))
		},
	},
	{
		name: "what is done is not owed",
		promise: "Owed is set with free and with unknown. With done, or with the release of a run that had begun, it sets nothing, " +
			"and clears what was owed.",
		run: func(e *env) {
			for _, o := range []driver.Outcome{done(answer()), done(nil), unknown("timeout"), free("lost")} {
				o.Owed = true
				id := newID()
				rec := e.a.ran(id, ask(driver.Rerun), o)
				if rec.Owed != (o.State != driver.Done) {
					e.Errorf("settled as %s: owed is %t", o.State, rec.Owed)
				}
				e.unchanged("settled as "+o.State.String(), id, rec)
			}
			for _, before := range []driver.Outcome{free(""), owed("")} {
				id, c := newID(), ask(driver.Rerun)
				e.a.ran(id, c, before)
				rec := e.b.begin(id, retry(c))
				e.b.renew(id, rec.Owner(), driver.Extension{Lease: long, Begun: true})
				rec = e.a.end(id, rec.Owner(), owed("aborted"))
				if rec.State != driver.Done || rec.Owed {
					e.Errorf("begun, and released: %s, owed %t; want done, false", rec.State, rec.Owed)
				}
				e.unchanged("begun and released", id, rec)
			}
		},
	},
	{
		name:    "a new operation is not owed",
		promise: "A claim after the retention of a run that began, and was lost, inherits nothing that was owed.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Retention = e.short
			e.a.ran(id, c, owed("gave up"))
			rec := e.b.begin(id, retry(c))
			rec = e.b.renew(id, rec.Owner(), driver.Extension{Lease: e.short, Begun: true})
			e.until(rec.LeaseEnd.Add(e.short))
			if rec = e.a.begin(id, ask(driver.Rerun)); rec.Owed || rec.Attempt != 1 {
				e.Errorf("owed %t, attempt %d; want a new operation", rec.Owed, rec.Attempt)
			}
			e.unchanged("a new operation", id, rec)
		},
	},
	{
		name:    "only done, free and unknown are outcomes",
		promise: "Settle to any other state is refused and changes nothing.",
		run: func(e *env) {
			for _, state := range []driver.State{driver.Absent, driver.Running, driver.Unknown + 1, 255} {
				id := newID()
				want := e.a.begin(id, ask(driver.Rerun))
				if _, owned := e.b.settle(id, want.Owner(), driver.Outcome{State: state, Error: "?"}); owned {
					e.Errorf("Settle as %s was granted", state)
				}
				e.unchanged("settled as "+state.String(), id, want)
			}
		},
	},
}
