package storetest

import (
	"time"

	"github.com/semelhq/semel/driver"
)

// lateOwnerChanges fails if the owner of a run that is over can change anything in what came after it.
func (e *env) lateOwnerChanges(what string, id driver.ID, late driver.Record) {
	e.Helper()
	want := e.b.load(id)
	by := late.Owner()
	for _, x := range []driver.Extension{{Lease: long}, {Lease: long, Begun: true}} {
		if e.a.extend(id, by, x) {
			e.Errorf("%s: Extend was granted to the late owner", what)
		}
	}
	for _, o := range []driver.Outcome{done(answer()), done(nil), free("late"), unknown("late")} {
		rec, owned := e.a.settle(id, by, o)
		if owned {
			e.Errorf("%s: Settle as %s was granted to the late owner", what, o.State)
		}
		e.same(what+": the record that the late owner gets", rec, want)
	}
	if _, owned := e.a.settle(id, releasing(by.Token, 0), free("late")); owned {
		e.Errorf("%s: release-by-token was granted to the late owner", what)
	}
	if s, ok := e.a.Store.(driver.StepStore); ok {
		if owned, err := s.SaveStep(e.ctx, id, by, "late", []byte("late")); err != nil || owned {
			e.Errorf("%s: SaveStep by the late owner: owned is %t, error %v", what, owned, err)
		}
	}
	e.unchanged(what, id, want)
}

// followed checks that the run of next has a higher fence than that of its predecessor.
func (e *env) followed(what string, before, next driver.Record) {
	e.Helper()
	if next.Fence <= before.Fence {
		e.Errorf("%s: fence %d follows %d", what, next.Fence, before.Fence)
	}
}

// remade lets the clock pass the fence of a record that is gone, since a store need not remember fences, and claims it.
func (e *env) remade(id driver.ID, gone driver.Record, c driver.Claim) driver.Record {
	e.Helper()
	e.until(driver.Time(gone.Fence+1) * driver.Time(time.Millisecond/time.Microsecond))
	return e.b.begin(id, c)
}

var fenceChecks = []check{
	{
		name: "it grows with each run",
		promise: "Each run of an identity has a higher fence than every run before it: over release, takeover and the end " +
			"of retention.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			first := e.a.begin(id, c)
			e.a.end(id, first.Owner(), free(""))
			second := e.b.begin(id, retry(c))
			e.followed("after a release", first, second)

			second = e.b.renew(id, second.Owner(), driver.Extension{Lease: e.short})
			e.until(second.LeaseEnd)
			r := retry(c)
			r.Retention = e.short
			third := e.a.begin(id, r)
			e.followed("after a takeover", second, third)

			third = e.a.end(id, third.Owner(), done(nil))
			e.until(third.Settled.Add(e.short))
			e.followed("after the retention", third, e.b.begin(id, ask(driver.Hold)))
		},
	},
	{
		name:    "it grows over a sweep",
		promise: "A key claimed again after its record was swept has a higher fence than before (R-46).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			c.Retention = e.short
			rec := e.a.begin(id, c)
			rec = e.a.end(id, rec.Owner(), done(nil))
			e.until(rec.Settled.Add(e.short))
			e.a.sweepAll()
			next := e.remade(id, rec, retry(c))
			e.followed("after a sweep", rec, next)
			e.lateOwnerChanges("swept and claimed", id, rec)
		},
	},
	{
		name:    "it grows over forget",
		promise: "A key claimed again after its record was forgotten has a higher fence than before (R-46).",
		needs:   seizer,
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			rec := e.a.begin(id, c)
			for range 20 { // so that its fence is ahead of a clock that stands still
				e.a.end(id, rec.Owner(), free(""))
				rec = e.a.begin(id, retry(c))
			}
			rec = e.a.end(id, rec.Owner(), done(nil))
			if !e.b.forget(id, rec.Owner()) {
				e.Fatalf("Forget of a done record was refused")
			}
			next := e.remade(id, rec, retry(c))
			e.followed("after forget", rec, next)
			e.lateOwnerChanges("forgotten and claimed", id, rec)
		},
	},
	{
		name: "a late owner changes nothing after a takeover",
		promise: "After a takeover the late owner is refused every verb and the record is the new owner's, while that runs and " +
			"after it has settled (R-48, case 2).",
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			rec := e.b.begin(s.id, retry(s.claim))
			e.lateOwnerChanges("taken over", s.id, s.rec)
			e.b.end(s.id, rec.Owner(), done(answer()))
			e.lateOwnerChanges("taken over and done", s.id, s.rec)
		},
	},
	{
		name: "a late owner changes nothing after a release",
		promise: "After the record was released and claimed again, an owner from before is refused every verb: release does " +
			"not restart the fence (case 41).",
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			second := e.b.begin(s.id, retry(s.claim))
			e.b.end(s.id, second.Owner(), free("refused"))
			e.lateOwnerChanges("taken over and freed", s.id, s.rec)
			third := e.a.begin(s.id, retry(s.claim))
			e.lateOwnerChanges("run a third time", s.id, s.rec)
			e.lateOwnerChanges("run a third time, the second owner", s.id, second)
			e.b.end(s.id, third.Owner(), unknown("timeout"))
			e.lateOwnerChanges("unknown", s.id, s.rec)
		},
	},
	{
		name:    "a late owner changes nothing in a new operation",
		promise: "An owner from before the end of retention is refused every verb on the operation that followed.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			c.Retention = e.short
			rec := e.a.begin(id, c)
			old := e.a.end(id, rec.Owner(), done(answer()))
			e.until(old.Settled.Add(e.short))
			e.b.begin(id, ask(driver.Hold))
			e.lateOwnerChanges("a new operation", id, old)
		},
	},
}
