package storetest

import (
	"github.com/semelhq/semel"
)

// A situation is a record in one of the states in which it can be found.
type situation struct {
	name  string
	id    semel.ID
	claim semel.Claim  // of the present run
	rec   semel.Record // as it stands
}

// owner returns who owned the present run.
func (s situation) owner() semel.Owner { return s.rec.Owner() }

// What became of a run, for situations.
var fates = []struct {
	name   string
	onLost semel.LostPolicy
	ends   semel.State // Running if it does not end
	begun  bool
	lapses bool
	owed   bool
}{
	{name: "running under Hold", onLost: semel.Hold, ends: semel.Running},
	{name: "running under Rerun", onLost: semel.Rerun, ends: semel.Running},
	{name: "running and begun", onLost: semel.Rerun, ends: semel.Running, begun: true},
	{name: "lapsed under Hold", onLost: semel.Hold, ends: semel.Running, lapses: true},
	{name: "lapsed under Rerun", onLost: semel.Rerun, ends: semel.Running, lapses: true},
	{name: "lapsed and begun", onLost: semel.Rerun, ends: semel.Running, begun: true, lapses: true},
	{name: "done", onLost: semel.Hold, ends: semel.Done},
	{name: "free under Hold", onLost: semel.Hold, ends: semel.Free},
	{name: "free under Rerun", onLost: semel.Rerun, ends: semel.Free},
	{name: "free and owed", onLost: semel.Rerun, ends: semel.Free, owed: true},
	{name: "unknown", onLost: semel.Hold, ends: semel.Unknown},
}

// situations makes a record of every kind.
func (e *env) situations() []situation {
	e.Helper()
	return e.situationsOf(func(semel.ID, *semel.Record) {})
}

// situationsOf does the same, and lets the owner of each run do something while it runs.
func (e *env) situationsOf(during func(id semel.ID, rec *semel.Record)) []situation {
	e.Helper()
	var all []situation
	var lapsed semel.Time
	for _, f := range fates {
		s := situation{name: f.name, id: newID(), claim: ask(f.onLost)}
		s.claim.Sealed = []byte("sealed request")
		rec := e.a.begin(s.id, s.claim)
		during(s.id, &rec)
		switch f.ends {
		case semel.Running:
			x := semel.Extension{Lease: long, Begun: f.begun}
			if f.lapses {
				x.Lease = e.short
			}
			if f.lapses || f.begun {
				rec = e.b.renew(s.id, rec.Owner(), x)
			}
			if f.lapses {
				lapsed = max(lapsed, rec.LeaseEnd)
			}
		case semel.Done:
			rec = e.b.end(s.id, rec.Owner(), done(answer()))
		default:
			rec = e.b.end(s.id, rec.Owner(), semel.Outcome{State: f.ends, Error: "connection lost", Owed: f.owed})
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
func (e *env) lapse(p semel.LostPolicy, begun bool) situation {
	e.Helper()
	s := situation{name: "lapsed", id: newID(), claim: ask(p)}
	rec := e.a.begin(s.id, s.claim)
	s.rec = e.a.renew(s.id, rec.Owner(), semel.Extension{Lease: e.short, Begun: begun})
	e.until(s.rec.LeaseEnd)
	return s
}
