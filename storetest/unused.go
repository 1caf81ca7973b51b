package storetest

import (
	"github.com/semelhq/semel/driver"
)

// unused reports whether a record was released and remembers nothing, so that another request may have its key.
func unused(rec driver.Record) bool {
	return rec.State == driver.Free && !rec.Maybe && !rec.Steps && !rec.Owed
}

// refusesAnother checks that a released key refuses another request, under both policies, and that nothing is changed.
func (e *env) refusesAnother(what string, id driver.ID) {
	e.Helper()
	before := e.a.load(id)
	for i, p := range []driver.LostPolicy{driver.Hold, driver.Rerun} {
		e.same(what+": the record returned", e.both(i).refuse(what+", another request under "+p.String(), id, ask(p)), before)
	}
	e.unchanged(what, id, before)
}

var unusedChecks = []check{
	{
		name: "a released key takes another request",
		promise: "A claim for another request starts a new operation on a free record that remembers nothing (no maybe, no steps, " +
			"nothing owed): the next fence, attempt 1, and nothing of the old one left. Then the request before is another one.",
		run: func(e *env) {
			gaveUp := func(token driver.Token) driver.Owner { return releasing(token, 0) }
			for _, row := range []struct {
				name   string
				onLost driver.LostPolicy
				by     func(driver.Token) driver.Owner // nil: its owner
			}{
				{"released by its owner under Hold", driver.Hold, nil},
				{"released by token under Hold", driver.Hold, gaveUp},
				{"released by token under Rerun", driver.Rerun, gaveUp},
			} {
				id, first := newID(), ask(row.onLost)
				first.Sealed, first.Tombstone = []byte("first request, sealed"), long
				rec := e.a.begin(id, first)
				by := rec.Owner()
				if row.by != nil {
					by = row.by(first.Token)
				}
				old := e.a.end(id, by, free("answered 429"))

				c := ask(driver.Rerun)
				c.Operation, c.Sealed = "PUT /accounts", []byte("sealed again")
				rec = e.b.begin(id, c)
				want := driver.Record{
					State:       driver.Running,
					OnLost:      driver.Rerun,
					Fence:       old.Fence + 1,
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
				e.unchanged(row.name, id, want)
				if rec.Created < old.Settled || rec.Created > rec.Now {
					e.Errorf("%s: created at %s, want the time of the claim", row.name, rec.Created.Time())
				}
				e.lateOwnerChanges(row.name, id, old)
				for _, r := range []driver.Claim{first, retry(first)} { // a late copy, and a repeat
					e.same(row.name+": the record that the request before gets", e.a.refuse(row.name, id, r), want)
				}
				e.b.end(id, rec.Owner(), done(answer()))
				e.a.refuse(row.name+", and done", id, first)
			}
		},
	},
	{
		name: "a late copy of the first request's claim is released",
		promise: "A copy of a claim that arrives when another request has used the key and was released too owns a new operation, " +
			"with a fence above both; the release-by-token of its guard frees it, and it remembers nothing.",
		run: func(e *env) {
			id, first, second := newID(), ask(driver.Hold), ask(driver.Hold)
			e.a.ran(id, first, free("answered 429"))
			old := e.b.ran(id, second, free("answered 401"))
			e.followed("a late copy", old, e.a.begin(id, first))
			rec := e.b.end(id, releasing(first.Token, 0), free("gave up"))
			if !unused(rec) || rec.Attempt != 0 {
				e.Errorf("released: maybe %t, owed %t, attempt %d; want false, false, 0", rec.Maybe, rec.Owed, rec.Attempt)
			}
			e.followed("the second request, repeated", rec, e.a.begin(id, retry(second)))
		},
	},
	{
		name: "a key that may have been used keeps its request",
		promise: "A free record with maybe, or whose end is owed, refuses another request and is not changed by it; its own request " +
			"may go on (R-16).",
		run: func(e *env) {
			for _, row := range []struct {
				name   string
				onLost driver.LostPolicy
				o      driver.Outcome
			}{
				{"maybe", driver.Rerun, free("lost")},
				{"owed", driver.Hold, owed("lost")},
				{"maybe and owed", driver.Rerun, owed("lost")},
			} {
				id, c := newID(), ask(row.onLost)
				c.Sealed = []byte("sealed request")
				e.a.ran(id, c, row.o)
				e.refusesAnother(row.name, id)
				r := retry(c)
				r.OnLost = driver.Rerun
				if rec := e.b.begin(id, r); rec.Attempt != 2 {
					e.Errorf("%s: the request itself is attempt %d, want 2", row.name, rec.Attempt)
				}
			}
			// A lost run and a claim that was given up, after it.
			s := e.lapse(driver.Rerun, false)
			r := retry(s.claim)
			e.a.begin(s.id, r)
			e.b.end(s.id, releasing(r.Token, 0), free("gave up"))
			e.refusesAnother("lost, taken over and released by token", s.id)
		},
	},
	{
		name:    "a key with steps keeps its request",
		promise: "A free record with saved steps refuses another request, under Hold too, and keeps its steps (R-84).",
		needs:   stepper,
		run: func(e *env) {
			c := ask(driver.Hold)
			id, rec := e.stepped(c)
			e.a.end(id, rec.Owner(), free("answered 429"))
			e.refusesAnother("with steps", id)
			e.holds("with steps", id, twoSteps)
			if rec := e.b.begin(id, retry(c)); rec.Attempt != 2 {
				e.Errorf("the request itself is attempt %d, want 2", rec.Attempt)
			}
		},
	},
	{
		name:    "a decision sets the key free for any request",
		promise: "A record that was seized and released takes another request, unless its end is owed.",
		needs:   seizer,
		run: func(e *env) {
			for _, before := range []driver.Outcome{free("lost"), owed("lost")} {
				id, c := newID(), ask(driver.Rerun)
				e.a.ran(id, c, before)
				rec := e.b.seize(id, driver.NewToken())
				rec = e.a.end(id, rec.Owner(), free("it never arrived"))
				if before.Owed {
					e.refusesAnother("owed, seized and released", id)
					continue
				}
				next := e.b.begin(id, ask(driver.Hold))
				e.followed("seized and released", rec, next)
				if next.Attempt != 1 {
					e.Errorf("attempt %d, want 1: a new operation", next.Attempt)
				}
			}
		},
	},
	{
		name:    "one of many other requests wins",
		promise: "Of a hundred claims for as many requests at once, of a free record that remembers nothing, exactly one is owned.",
		run: func(e *env) {
			id := newID()
			old := e.a.ran(id, ask(driver.Hold), free("answered 429"))
			claims := make([]driver.Claim, callers)
			for i := range claims {
				claims[i] = ask(driver.Hold)
			}
			if rec := e.oneOf("released", id, claims); rec.Attempt != 1 || rec.Fence != old.Fence+1 {
				e.Errorf("attempt %d, fence %d after %d; want 1, and the next", rec.Attempt, rec.Fence, old.Fence)
			}
		},
	},
}
