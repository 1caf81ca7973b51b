package storetest

import (
	"github.com/semelhq/semel/driver"
)

// releasing is the release-by-token of a guard that gave up on a claim, and had started its handler last under fence
// started (0: never).
func releasing(t driver.Token, started uint64) driver.Owner {
	return driver.Owner{Fence: started, Token: t, Above: true}
}

var releaseChecks = []check{
	{
		name: "a run that never started is freed by its token",
		promise: "Release-by-token frees a running record with that token and a fence above the given one. The attempt does " +
			"not count, and nothing is marked maybe, for nothing ran (case 43).",
		run: func(e *env) {
			for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				id, c := newID(), ask(p)
				want := e.a.begin(id, c)
				rec := e.b.end(id, releasing(c.Token, 0), free("gave up"))
				want.State, want.Wrote, want.Settled = driver.Free, driver.Free, rec.Settled
				want.Attempt, want.Error = 0, "gave up"
				e.same(p.String(), rec, want)
				e.unchanged(p.String(), id, want)
				if next := e.a.begin(id, retry(c)); next.Attempt != 1 || next.Fence <= want.Fence {
					e.Errorf("%s: the next run is attempt %d, fence %d after %d; want 1, and a higher fence", p, next.Attempt, next.Fence, want.Fence)
				}
			}
		},
	},
	{
		name:    "it can be repeated",
		promise: "Release-by-token is sent until acknowledged and once more: it succeeds again and changes nothing.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			e.a.begin(id, c)
			want := e.a.end(id, releasing(c.Token, 0), free("gave up"))
			e.b.end(id, releasing(c.Token, 0), free("gave up again"))
			e.unchanged("released twice", id, want)
		},
	},
	{
		name:    "the released token is spent",
		promise: "A copy of the claim that arrives after its release by token is refused: nobody would run it (case 43).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			e.a.begin(id, c)
			want := e.a.end(id, releasing(c.Token, 0), free("gave up"))
			e.b.refuse("late copy of a released claim", id, c)
			e.unchanged("after a late copy of the claim", id, want)
		},
	},
	{
		name: "a started run is safe from it",
		promise: "Release-by-token leaves alone a run whose fence is not above the given one: under that fence the guard did " +
			"start its handler.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			want := e.a.begin(id, c)
			for _, started := range []uint64{want.Fence, want.Fence + 1, 1<<64 - 1} {
				rec, owned := e.b.settle(id, releasing(c.Token, started), free("gave up"))
				if owned {
					e.Errorf("fence %d was released as one above %d", want.Fence, started)
				}
				e.same("the record returned", rec, want)
				e.unchanged("not released", id, want)
			}
			e.b.end(id, releasing(c.Token, want.Fence-1), free("gave up"))
		},
	},
	{
		name:    "it needs the token",
		promise: "Release-by-token with another token is refused in every state and changes nothing.",
		run: func(e *env) {
			for _, s := range e.situations() {
				for what, by := range strangers(s.owner()) {
					if by.Token == s.rec.Token {
						continue
					}
					if _, owned := e.b.settle(s.id, releasing(by.Token, 0), free("stranger")); owned {
						e.Errorf("%s: released with %s", s.name, what)
					}
					e.unchanged(s.name+", "+what, s.id, s.rec)
				}
			}
		},
	},
	{
		name:    "what has another outcome stays",
		promise: "Release-by-token of a record that is done or unknown is refused and changes nothing.",
		run: func(e *env) {
			for _, s := range e.situations() {
				if s.rec.State != driver.Done && s.rec.State != driver.Unknown {
					continue
				}
				if _, owned := e.b.settle(s.id, releasing(s.rec.Token, 0), free("gave up")); owned {
					e.Errorf("%s: released", s.name)
				}
				e.unchanged(s.name, s.id, s.rec)
			}
		},
	},
	{
		name:    "it only frees",
		promise: "An owner named by token and any fence above one can't settle to done or unknown.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			want := e.a.begin(id, c)
			for _, o := range []driver.Outcome{done(answer()), unknown("gave up")} {
				if _, owned := e.b.settle(id, releasing(c.Token, 0), o); owned {
					e.Errorf("Settle as %s was granted", o.State)
				}
				e.unchanged("by token, as "+o.State.String(), id, want)
			}
		},
	},
	{
		name:    "a begun run is done, not free",
		promise: "Release-by-token of a begun run makes it done without an answer, like any other settle.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			rec := e.a.begin(id, c)
			want := e.a.renew(id, rec.Owner(), driver.Extension{Lease: long, Begun: true})
			rec = e.b.end(id, releasing(c.Token, 0), free("gave up"))
			want.State, want.Wrote, want.Settled, want.Error = driver.Done, driver.Free, rec.Settled, "gave up"
			e.same("begun and released", rec, want)
			e.unchanged("begun and released", id, want)
		},
	},
	{
		name: "a lapsed run is freed too",
		promise: "Release-by-token does not look at the lease: a record that reads as unknown because its owner gave up is " +
			"freed when the release arrives (case 43).",
		run: func(e *env) {
			for _, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
				s := e.lapse(p, false)
				rec := e.b.end(s.id, releasing(s.rec.Token, 0), free("gave up"))
				if rec.State != driver.Free || rec.Maybe || rec.Attempt != 0 {
					e.Errorf("%s: %s, maybe %t, attempt %d; want free, false, 0", p, rec.State, rec.Maybe, rec.Attempt)
				}
				e.a.begin(s.id, retry(s.claim))
			}
		},
	},
	{
		name:    "it owes nothing",
		promise: "Release-by-token sets no Owed, for nothing ran that anybody could be promised, and leaves what an earlier run owed.",
		run: func(e *env) {
			for _, before := range []driver.Outcome{free(""), owed("gave up")} {
				id, c := newID(), ask(driver.Rerun)
				want := e.a.ran(id, c, before)
				r := retry(c)
				e.b.begin(id, r)
				rec := e.a.end(id, releasing(r.Token, want.Fence), owed("gave up"))
				if rec.Owed != before.Owed {
					e.Errorf("owed %t, want %t, as the run before it left that", rec.Owed, before.Owed)
				}
				e.unchanged("released by token", id, rec)
			}
		},
	},
	{
		name:    "an earlier run's mark stays",
		promise: "Release-by-token of a run that took over leaves maybe: the run before it may have had its effect.",
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			r := retry(s.claim)
			e.a.begin(s.id, r)
			rec := e.b.end(s.id, releasing(r.Token, 0), free("gave up"))
			if !rec.Maybe || rec.Attempt != 1 {
				e.Errorf("maybe %t, attempt %d; want true and 1, those of the lost run", rec.Maybe, rec.Attempt)
			}
		},
	},
}
