package storetest

import (
	"github.com/semelhq/semel/driver"
)

// A situation is a record in one of the states in which it can be found.
type situation struct {
	name  string
	id    driver.ID
	claim driver.Claim  // of the present run
	rec   driver.Record // as it stands
}

// owner returns who owned the present run.
func (s situation) owner() driver.Owner { return s.rec.Owner() }

// What became of a run, for situations.
var fates = []struct {
	name   string
	onLost driver.LostPolicy
	ends   driver.State // Running if it does not end
	begun  bool
	lapses bool
	owed   bool
}{
	{name: "running under Hold", onLost: driver.Hold, ends: driver.Running},
	{name: "running under Rerun", onLost: driver.Rerun, ends: driver.Running},
	{name: "running and begun", onLost: driver.Rerun, ends: driver.Running, begun: true},
	{name: "lapsed under Hold", onLost: driver.Hold, ends: driver.Running, lapses: true},
	{name: "lapsed under Rerun", onLost: driver.Rerun, ends: driver.Running, lapses: true},
	{name: "lapsed and begun", onLost: driver.Rerun, ends: driver.Running, begun: true, lapses: true},
	{name: "done", onLost: driver.Hold, ends: driver.Done},
	{name: "free under Hold", onLost: driver.Hold, ends: driver.Free},
	{name: "free under Rerun", onLost: driver.Rerun, ends: driver.Free},
	{name: "free and owed", onLost: driver.Rerun, ends: driver.Free, owed: true},
	{name: "unknown", onLost: driver.Hold, ends: driver.Unknown},
}

// situations makes a record of every kind.
func (e *env) situations() []situation {
	e.Helper()
	return e.situationsOf(func(driver.ID, *driver.Record) {})
}

// situationsOf does the same, and lets the owner of each run do something while it runs.
func (e *env) situationsOf(during func(id driver.ID, rec *driver.Record)) []situation {
	e.Helper()
	var all []situation
	var lapsed driver.Time
	for _, f := range fates {
		s := situation{name: f.name, id: newID(), claim: ask(f.onLost)}
		s.claim.Sealed = []byte("sealed request")
		rec := e.a.begin(s.id, s.claim)
		during(s.id, &rec)
		switch f.ends {
		case driver.Running:
			x := driver.Extension{Lease: long, Begun: f.begun}
			if f.lapses {
				x.Lease = e.short
			}
			if f.lapses || f.begun {
				rec = e.b.renew(s.id, rec.Owner(), x)
			}
			if f.lapses {
				lapsed = max(lapsed, rec.LeaseEnd)
			}
		case driver.Done:
			rec = e.b.end(s.id, rec.Owner(), done(answer()))
		default:
			rec = e.b.end(s.id, rec.Owner(), driver.Outcome{State: f.ends, Error: "connection lost", Owed: f.owed})
		}
		s.rec = rec
		all = append(all, s)
	}
	e.until(lapsed)
	for i := range all {
		all[i].rec = e.a.load(all[i].id)
	}
	return all
}

// lapse makes a record whose lease is over, and returns it with its claim.
func (e *env) lapse(p driver.LostPolicy, begun bool) situation {
	e.Helper()
	s := situation{name: "lapsed", id: newID(), claim: ask(p)}
	rec := e.a.begin(s.id, s.claim)
	s.rec = e.a.renew(s.id, rec.Owner(), driver.Extension{Lease: e.short, Begun: begun})
	e.until(s.rec.LeaseEnd)
	return s
}
