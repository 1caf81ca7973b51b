package storetest

import (
	"github.com/semelhq/semel/driver"
)

var seizeChecks = []check{
	{
		name: "it takes a record from its owner",
		promise: "Seize of a record that is running, lapsed, unknown, or free with maybe raises its fence, replaces its token " +
			"and stores it as unknown. Its late owner changes nothing from then on.",
		needs: seizer,
		run: func(e *env) {
			for _, s := range e.situations() {
				if !seizable(s.rec) {
					continue
				}
				t := driver.NewToken()
				rec := e.b.seize(s.id, t)
				want := s.rec
				want.State, want.Seized, want.Wrote = driver.Unknown, true, driver.Absent
				want.Owed = want.Owed || s.rec.State == driver.Running // its request is stored, and its run is over without an answer
				want.Fence, want.Token, want.Settled = s.rec.Fence+1, t, rec.Settled
				e.same(s.name+", seized", rec, want)
				e.unchanged(s.name+", seized", s.id, want)
				if rec.Settled < s.rec.Started || rec.Settled > rec.Now {
					e.Errorf("%s: seized at %s, want the time of the call", s.name, rec.Settled.Time())
				}
				e.lateOwnerChanges(s.name+", seized", s.id, s.rec)
			}
		},
	},
	{
		name: "it leaves alone what needs no decision",
		promise: "Seize of a record that is absent, done, done because it had begun, or free without maybe changes nothing, " +
			"and returns the record with a token that is not the caller's.",
		needs: seizer,
		run: func(e *env) {
			for _, s := range append(e.situations(), situation{name: "absent", id: newID()}) {
				if seizable(s.rec) {
					continue
				}
				t := driver.NewToken()
				rec := e.b.seize(s.id, t)
				if rec.Token == t {
					e.Errorf("%s: seized", s.name)
				}
				e.same(s.name+": the record returned", rec, s.rec)
				e.unchanged(s.name, s.id, s.rec)
			}
		},
	},
	{
		name:    "it can be repeated",
		promise: "Seize with the same token again changes nothing and returns the seized record.",
		needs:   seizer,
		run: func(e *env) {
			id, t := newID(), driver.NewToken()
			e.a.begin(id, ask(driver.Hold))
			want := e.a.seize(id, t)
			e.same("seized again", e.b.seize(id, t), want)
			e.unchanged("seized again", id, want)
		},
	},
	{
		name: "who seized it decides",
		promise: "The owner that seized a record settles it to done with an answer, to free without maybe, or back to unknown, " +
			"and may repeat that; then it is closed to it. Attempts are kept.",
		needs: seizer,
		run: func(e *env) {
			for _, o := range []driver.Outcome{done(answer()), done(nil), free("nothing there"), unknown("no way to tell")} {
				s := e.lapse(driver.Rerun, false)
				e.a.begin(s.id, retry(s.claim)) // a takeover, so that maybe is set
				t := driver.NewToken()
				want := e.a.seize(s.id, t)
				rec := e.b.end(s.id, want.Owner(), o)
				want.State, want.Wrote, want.Settled, want.Seized = o.State, o.State, rec.Settled, false
				want.Response, want.Error, want.Maybe = o.Response, o.Error, o.State == driver.Unknown
				e.same("decided as "+o.State.String(), rec, want)
				e.b.end(s.id, want.Owner(), o)
				for _, other := range []driver.Outcome{done(answer()), free(""), unknown("")} {
					if _, owned := e.a.settle(s.id, want.Owner(), other); owned && other.State != o.State {
						e.Errorf("decided as %s, then as %s", o.State, other.State)
					}
				}
				e.unchanged("decided as "+o.State.String(), s.id, want)

				hold := retry(s.claim)
				hold.OnLost = driver.Hold
				got, owned := e.b.claim(s.id, hold)
				if owned != (o.State == driver.Free) {
					e.Errorf("decided as %s, then claimed: owned is %t", o.State, owned)
				}
				if owned && (got.Attempt != 3 || got.Fence != want.Fence+1) {
					e.Errorf("the run after the decision is attempt %d, fence %d; want 3, and the next fence", got.Attempt, got.Fence)
				}
			}
		},
	},
	{
		name:    "what is owed outlasts a decision to free",
		promise: "Seize keeps Owed, and so does its owner's release, which may also set it; its settle to done clears it.",
		needs:   seizer,
		run: func(e *env) {
			for _, before := range []driver.Outcome{free(""), owed("gave up")} {
				for _, o := range []driver.Outcome{free("nothing there"), owed("nothing there"), done(answer())} {
					id := newID()
					e.a.ran(id, ask(driver.Rerun), before)
					seized := e.b.seize(id, driver.NewToken())
					if seized.Owed != before.Owed {
						e.Errorf("seized: owed %t, want %t", seized.Owed, before.Owed)
					}
					rec := e.a.end(id, seized.Owner(), o)
					if want := o.State == driver.Free && (before.Owed || o.Owed); rec.Owed != want {
						e.Errorf("owed %t, then decided as %s: owed %t, want %t", before.Owed, o.State, rec.Owed, want)
					}
					e.unchanged("decided as "+o.State.String(), id, rec)
				}
			}
		},
	},
	{
		name: "a seized record is closed to others",
		promise: "A seized record refuses every claim, also one with the seizing token, and Extend and release-by-token by its " +
			"owner: it is no run.",
		needs: seizer,
		run: func(e *env) {
			id, c, t := newID(), ask(driver.Rerun), driver.NewToken()
			e.a.begin(id, c)
			want := e.a.seize(id, t)
			r := retry(c)
			e.b.refuse("seized", id, r)
			r.Token = t
			e.b.refuse("seized, by the seizing token", id, r)
			if e.b.extend(id, want.Owner(), driver.Extension{Lease: long}) {
				e.Errorf("Extend was granted on a seized record")
			}
			if _, owned := e.b.settle(id, releasing(t, 0), free("gave up")); owned {
				e.Errorf("release-by-token was granted on a seized record")
			}
			e.unchanged("seized", id, want)
		},
	},
	{
		name:    "the last who seized it decides",
		promise: "A record seized a second time belongs to the second: the first is refused.",
		needs:   seizer,
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			e.a.begin(id, c)
			first := e.a.seize(id, driver.NewToken())
			second := e.b.seize(id, driver.NewToken())
			e.followed("seized twice", first, second)
			e.lateOwnerChanges("seized twice", id, first)
			e.b.end(id, second.Owner(), done(answer()))
			e.lateOwnerChanges("decided by the second", id, first)
		},
	},
	{
		name: "a begun run stays begun",
		promise: "A begun run can be seized while its lease goes on; a decision for free makes it done without an answer: bytes " +
			"of an answer may be out.",
		needs: seizer,
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			rec := e.a.begin(id, c)
			e.a.renew(id, rec.Owner(), driver.Extension{Lease: long, Begun: true})
			rec = e.b.seize(id, driver.NewToken())
			rec = e.b.end(id, rec.Owner(), free("nothing there"))
			if rec.State != driver.Done || rec.Response != nil {
				e.Errorf("begun, seized and freed: %s, want done without an answer", rec.State)
			}
			e.a.refuse("begun, seized and freed", id, retry(c))
		},
	},
	{
		name:    "seizing at once leaves one in charge",
		promise: "Of operators who seize one record at once each gets a fence of its own, and only the last can decide.",
		needs:   seizer,
		run: func(e *env) {
			id := newID()
			first := e.a.begin(id, ask(driver.Hold))
			const n = 12
			recs, errs := make([]driver.Record, n), make([]error, n)
			tokens := make([]driver.Token, n)
			for i := range tokens {
				tokens[i] = driver.NewToken()
			}
			e.together(n, func(i int) {
				recs[i], errs[i] = e.both(i).Store.(driver.Seizer).Seize(e.ctx, id, tokens[i])
			})
			fences := map[uint64]bool{}
			for i, rec := range recs {
				if errs[i] != nil {
					e.Fatalf("Seize: %v", errs[i])
				}
				if rec.Token != tokens[i] {
					e.Errorf("Seize returned another's token")
				}
				fences[rec.Fence] = true
			}
			last := e.a.load(id)
			if len(fences) != n || last.Fence != first.Fence+n {
				e.Errorf("%d seizures got %d fences, from %d to %d", n, len(fences), first.Fence, last.Fence)
			}
			for _, rec := range recs {
				if _, owned := e.b.settle(id, rec.Owner(), done(nil)); owned != (rec.Token == last.Token) {
					e.Errorf("Settle by one who seized: owned is %t, in charge is %t", owned, rec.Token == last.Token)
				}
			}
		},
	},
}

// seizable reports whether somebody has to decide about the record, or could have to.
func seizable(rec driver.Record) bool {
	switch rec.State {
	case driver.Running:
		return rec.Reads(rec.OnLost) != driver.ReadsDone
	case driver.Free:
		return rec.Maybe
	}
	return rec.State == driver.Unknown
}
