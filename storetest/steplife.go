package storetest

import (
	"time"

	"github.com/semelhq/semel/driver"
)

// stepped begins an operation and saves two steps.
func (e *env) stepped(c driver.Claim) (id driver.ID, rec driver.Record) {
	e.Helper()
	id = newID()
	rec = e.a.begin(id, c)
	for name, result := range twoSteps {
		e.b.keep(id, rec.Owner(), name, result)
	}
	rec.Steps = true
	return id, rec
}

var twoSteps = map[string]string{"charge": `{"id":7}`, "ship": ""}

// anew checks that the operation that begins in the place of one with steps has none, and can save the same names.
func (e *env) anew(what string, id driver.ID, before driver.Record) {
	e.Helper()
	if !e.a.exists(id) {
		e.sameSteps(what+", gone", e.a.steps(id), nil)
	}
	rec := e.remade(id, before, ask(driver.Rerun))
	if rec.Attempt != 1 || rec.Steps {
		e.Fatalf("%s: attempt %d, Steps %t; want a new operation without any", what, rec.Attempt, rec.Steps)
	}
	e.holds(what+", begun anew", id, nil)
	e.a.keep(id, rec.Owner(), "charge", "of the new operation")
	e.holds(what+", a step of the new operation", id, map[string]string{"charge": "of the new operation"})
}

// lostWithStep begins a run under Rerun whose lease is short, and which saves a step: while it lasts, or late. Without
// a step a storage may drop the record one retention after its lease: where the step comes later than that, because the
// machine stood still, it is tried again with a longer one.
func (e *env) lostWithStep(late bool) (driver.ID, driver.Record) {
	e.Helper()
	const longest = 64 // times e.short
	for retention := e.short; ; retention *= 4 {
		id, c := newID(), ask(driver.Rerun)
		c.Retention, c.Lease = retention, e.short
		rec := e.a.begin(id, c)
		if late {
			e.until(rec.LeaseEnd)
		}
		if e.b.save(id, rec.Owner(), "charge", "7") {
			rec.Steps = true
			return id, rec
		}
		if retention >= longest*e.short || e.now() < rec.LeaseEnd.Add(retention) {
			e.Fatalf("SaveStep was refused to the owner; its lease was over: %t", late)
		}
	}
}

var stepLifeChecks = []check{
	{
		name: "they outlast a run",
		promise: "Steps stay with their operation however a run of it ends: settled, released by its owner or by token, claimed " +
			"again, taken over. The run after it is told that there are some (R-84).",
		needs: stepper,
		run: func(e *env) {
			c := ask(driver.Rerun)
			id, rec := e.stepped(c)
			want := e.b.end(id, rec.Owner(), free("503 from upstream"))
			e.holds("free", id, twoSteps)

			r := retry(c)
			rec = e.a.begin(id, r)
			e.holds("run again", id, twoSteps)
			want = e.b.end(id, releasing(r.Token, want.Fence), free("gave up"))
			e.holds("released by token", id, twoSteps)

			rec = e.a.begin(id, retry(c))
			rec = e.b.renew(id, rec.Owner(), driver.Extension{Lease: e.short})
			e.holds("extended", id, twoSteps)
			e.until(rec.LeaseEnd)
			e.b.refuse("lapsed, other fingerprint", id, ask(driver.Rerun))
			rec = e.b.begin(id, retry(c))
			if !rec.Steps {
				e.Errorf("the record that the new owner was given does not say that there are steps")
			}
			e.holds("taken over", id, twoSteps)
			e.b.keep(id, rec.Owner(), "third", "3")
			three := map[string]string{"charge": twoSteps["charge"], "ship": twoSteps["ship"], "third": "3"}

			want = e.a.end(id, rec.Owner(), done(answer()))
			if !want.Steps {
				e.Errorf("the settled record does not say that there are steps")
			}
			e.holds("done", id, three)
			e.b.refuse("done", id, retry(c))
			e.holds("done, and asked again", id, three)
			e.unchanged("done", id, want)
		},
	},
	{
		name:    "unknown keeps them",
		promise: "Steps stay with a record that is settled as unknown, or begun and settled.",
		needs:   stepper,
		run: func(e *env) {
			id, rec := e.stepped(ask(driver.Hold))
			e.b.end(id, rec.Owner(), unknown("timeout"))
			e.holds("unknown", id, twoSteps)
			id, rec = e.stepped(ask(driver.Rerun))
			e.b.renew(id, rec.Owner(), driver.Extension{Lease: long, Begun: true})
			e.holds("begun", id, twoSteps)
			e.b.end(id, rec.Owner(), free("aborted"))
			e.holds("begun and released", id, twoSteps)
		},
	},
	{
		name:    "seizing keeps them",
		promise: "Steps stay with a record that is seized, and however that is decided.",
		needs:   stepper | seizer,
		run: func(e *env) {
			for _, o := range []driver.Outcome{done(answer()), free("nothing there"), unknown("no way to tell")} {
				c := ask(driver.Rerun)
				id, _ := e.stepped(c)
				seized := e.b.seize(id, driver.NewToken())
				if !seized.Steps {
					e.Errorf("the seized record does not say that there are steps")
				}
				e.holds("seized", id, twoSteps)
				e.a.end(id, seized.Owner(), o)
				e.holds("seized, and decided as "+o.State.String(), id, twoSteps)
				if o.State == driver.Free {
					e.b.begin(id, retry(c))
					e.holds("seized, freed and run again", id, twoSteps)
				}
			}
		},
	},
	{
		name: "a new operation has none",
		promise: "A claim after the retention, and after the tombstone where there is one, begins without the steps of the " +
			"operation before, and may save the same names.",
		needs: stepper,
		run: func(e *env) {
			for _, swept := range []bool{false, true} {
				for _, tombstone := range []time.Duration{0, e.short} {
					c := ask(driver.Rerun)
					c.Retention, c.Tombstone = e.short, tombstone
					id, rec := e.stepped(c)
					rec = e.a.end(id, rec.Owner(), done(answer()))
					e.until(rec.Settled.Add(e.short))
					if swept && tombstone > 0 {
						e.b.sweepAll()
					}
					e.until(rec.Settled.Add(e.short).Add(tombstone))
					if swept {
						e.b.sweepAll()
					}
					e.anew("after its retention", id, rec)
				}
			}
		},
	},
	{
		name:    "a new operation after a begun one has none",
		promise: "A claim after the retention of a run that had begun and was lost begins without that run's steps.",
		needs:   stepper,
		run: func(e *env) {
			c := ask(driver.Hold)
			c.Retention = e.short
			id, rec := e.stepped(c)
			rec = e.a.renew(id, rec.Owner(), driver.Extension{Lease: e.short, Begun: true})
			e.until(rec.LeaseEnd.Add(e.short))
			e.anew("begun, lost and past", id, rec)
		},
	},
	{
		name:    "a tombstone has none",
		promise: "Sweep takes the steps of a record with a tombstone, with its answer or without one, once.",
		needs:   stepper,
		run: func(e *env) {
			for _, a := range []*driver.Response{nil, answer()} {
				c := ask(driver.Rerun)
				c.Retention, c.Tombstone = e.short, long
				id, rec := e.stepped(c)
				want := e.a.end(id, rec.Owner(), done(a))
				e.until(want.Settled.Add(e.short))
				e.a.sweepAll()
				want.Response, want.Steps = nil, false
				e.unchanged("swept", id, want)
				e.holds("swept", id, nil)
				if n := e.b.sweep(100); n != 0 {
					e.Errorf("a second Sweep changed %d records", n)
				}
				e.refusedAsExpired("swept", id, c, rec.Token)
			}
		},
	},
	{
		name:    "they are forgotten with their record",
		promise: "Forget deletes the steps with the record; the operation that begins after it has none.",
		needs:   stepper | seizer,
		run: func(e *env) {
			for _, o := range []driver.Outcome{done(answer()), free("")} {
				id, rec := e.stepped(ask(driver.Rerun))
				rec = e.a.end(id, rec.Owner(), o)
				if !e.b.forget(id, rec.Owner()) {
					e.Fatalf("Forget of a record that is %s was refused", o.State)
				}
				e.anew("forgotten when "+o.State.String(), id, rec)
			}
		},
	},
	{
		name: "a lost run with steps is kept seven retentions",
		promise: "A run lapsed under Rerun that has saved a step may still be finished: it is kept seven retentions from the end of " +
			"its lease, also if its late owner saves the first step after that, and then swept with its steps.",
		needs: stepper,
		run: func(e *env) {
			for _, late := range []bool{false, true} {
				id, rec := e.lostWithStep(late)
				e.until(rec.LeaseEnd.Add(6 * rec.Retention))
				e.sweepsFrom(id, rec.LeaseEnd.Add(7*rec.Retention))
				e.anew("swept", id, rec)
			}
		},
	},
	{
		name:    "a free record with steps is kept its retention",
		promise: "A free record with steps is kept for its retention, but at least for FreeRetention, and then swept with its steps.",
		needs:   stepper | movable,
		run: func(e *env) {
			for retention, kept := range map[time.Duration]time.Duration{
				e.short:                  driver.FreeRetention,
				3 * driver.FreeRetention: 3 * driver.FreeRetention,
			} {
				c := ask(driver.Rerun)
				c.Retention = retention
				id, rec := e.stepped(c)
				rec = e.b.end(id, rec.Owner(), free(""))
				end := rec.Settled.Add(kept)
				e.until(end.Add(-e.short))
				e.sweepsFrom(id, end)
				e.anew("swept", id, rec)
			}
		},
	},
	{
		name:    "a free record that is owed is kept seven retentions, with steps too",
		promise: "A free record whose end is owed is kept for seven retentions, whether or not it has steps.",
		needs:   stepper | movable,
		run: func(e *env) {
			c := ask(driver.Rerun)
			id, rec := e.stepped(c)
			rec = e.b.end(id, rec.Owner(), owed("gave up"))
			end := rec.Settled.Add(7 * c.Retention)
			e.until(end.Add(-e.short))
			e.holds("owed", id, twoSteps)
			e.sweepsFrom(id, end)
			e.anew("swept", id, rec)
		},
	},
	{
		name:    "they are there after a restart",
		promise: "Every step that was acknowledged is saved after the storage was restarted, and binds as before (R-16).",
		needs:   stepper | restartable,
		run: func(e *env) {
			all := e.stepSituations()
			e.restart()
			e.reopen()
			for _, s := range all {
				e.unchanged(s.name+", restarted", s.id, s.rec)
				e.holds(s.name+", restarted", s.id, firstStep)
				if owned := e.b.save(s.id, s.owner(), "first", "again"); owned != (s.rec.State == driver.Running) {
					e.Errorf("%s, restarted: SaveStep by its owner: owned is %t", s.name, owned)
				}
				e.holds(s.name+", restarted and saved again", s.id, firstStep)
			}
		},
	},
}
