package storetest

import (
	"github.com/semelhq/semel/driver"
)

var forgetChecks = []check{
	{
		name: "it deletes what is done, free or seized",
		promise: "Forget by the record's fence and token deletes a record that is done, free, or seized; the key is new. A " +
			"begun record whose lease is over counts as done.",
		needs: seizer,
		run: func(e *env) {
			for _, s := range e.situations() {
				by := s.owner()
				if seizable(s.rec) && s.rec.State != driver.Free {
					rec := e.b.seize(s.id, driver.NewToken())
					by = rec.Owner()
				}
				if !e.b.forget(s.id, by) {
					e.Errorf("%s: Forget was refused", s.name)
				}
				e.unchanged(s.name+", forgotten", s.id, driver.Record{})
				rec := e.a.begin(s.id, ask(driver.Hold))
				if rec.Attempt != 1 || rec.Maybe || rec.Begun || rec.Error != "" {
					e.Errorf("%s: something is left after Forget: %+v", s.name, rec)
				}
			}
		},
	},
	{
		name: "it spares what runs or is undecided",
		promise: "Forget of a running record, lapsed or not unless it is begun, and of one stored as unknown that nobody " +
			"seized, is refused.",
		needs: seizer,
		run: func(e *env) {
			for _, s := range e.situations() {
				if s.rec.State != driver.Unknown && (s.rec.State != driver.Running || !seizable(s.rec)) {
					continue
				}
				if e.b.forget(s.id, s.owner()) {
					e.Errorf("%s: forgotten", s.name)
				}
				e.unchanged(s.name, s.id, s.rec)
			}
			id, by := newID(), driver.Owner{Fence: 1, Token: driver.NewToken()}
			if e.a.forget(id, by) || e.a.forget(id, driver.Owner{}) {
				e.Errorf("Forget of an absent record says that it deleted it")
			}
		},
	},
	{
		name:    "it needs fence and token",
		promise: "Forget with another fence or token, or for any fence above one, is refused and changes nothing.",
		needs:   seizer,
		run: func(e *env) {
			for _, s := range e.situations() {
				if s.rec.State != driver.Done && s.rec.State != driver.Free {
					continue
				}
				others := strangers(s.owner())
				others["any fence above 0"] = driver.Owner{Token: s.rec.Token, Above: true}
				for what, by := range others {
					if e.b.forget(s.id, by) {
						e.Errorf("%s: forgotten by an owner with %s", s.name, what)
					}
					e.unchanged(s.name+", "+what, s.id, s.rec)
				}
			}
		},
	},
}
