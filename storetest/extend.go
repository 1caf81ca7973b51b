package storetest

import (
	"github.com/semelhq/semel/driver"
)

var extendChecks = []check{
	{
		name:    "it moves the lease and nothing else",
		promise: "Extend by the owner sets the lease's end to now plus the extension, longer or shorter, and can be repeated.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			want := e.a.begin(id, c)
			for i, d := range []driver.Extension{{Lease: 3 * long}, {Lease: 3 * long}, {Lease: long / 2}} {
				before := e.now()
				rec := e.both(i).renew(id, want.Owner(), d)
				if rec.LeaseEnd < before.Add(d.Lease) || rec.LeaseEnd > rec.Now.Add(d.Lease) {
					e.Errorf("Extend by %s: the lease ends %s after now", d.Lease, rec.LeaseEnd.Sub(rec.Now))
				}
				want.LeaseEnd = rec.LeaseEnd
				e.unchanged("beside its lease", id, want)
			}
		},
	},
	{
		name: "it acts on a running record only",
		promise: "Extend of a record that is done, free or unknown, by the very owner that ran it, is refused and changes " +
			"nothing: a late heartbeat opens nothing again.",
		run: func(e *env) {
			for _, s := range e.situations() {
				if s.rec.State == driver.Running {
					continue
				}
				for _, begun := range []bool{false, true} {
					if e.b.extend(s.id, s.owner(), driver.Extension{Lease: long, Begun: begun}) {
						e.Errorf("%s: Extend was granted", s.name)
					}
					e.unchanged(s.name, s.id, s.rec)
				}
			}
		},
	},
	{
		name:    "it creates nothing",
		promise: "Extend of an absent record is refused and creates none.",
		run: func(e *env) {
			id := newID()
			if e.a.extend(id, driver.Owner{}, driver.Extension{Lease: long}) ||
				e.a.extend(id, driver.Owner{Fence: 1, Token: driver.NewToken()}, driver.Extension{Lease: long, Begun: true}) {
				e.Errorf("Extend of an absent record was granted")
			}
			e.unchanged("absent", id, driver.Record{})
		},
	},
	{
		name:    "it is the owner's",
		promise: "Extend with another fence, another token, or for any fence above one, is refused and changes nothing.",
		run: func(e *env) {
			for _, s := range e.situations() {
				if s.rec.State != driver.Running {
					continue
				}
				for what, by := range strangers(s.owner()) {
					if e.b.extend(s.id, by, driver.Extension{Lease: 2 * long, Begun: true}) {
						e.Errorf("%s: Extend was granted to an owner with %s", s.name, what)
					}
					e.unchanged(s.name+", "+what, s.id, s.rec)
				}
				by := driver.Owner{Token: s.rec.Token, Above: true}
				if e.b.extend(s.id, by, driver.Extension{Lease: 2 * long, Begun: true}) {
					e.Errorf("%s: Extend was granted for any fence above 0", s.name)
				}
				e.unchanged(s.name+", any fence above 0", s.id, s.rec)
			}
		},
	},
	{
		name:    "begun is only ever set",
		promise: "Extend with Begun marks the run before its first byte leaves; an extension without it leaves the mark.",
		run: func(e *env) {
			id := newID()
			want := e.a.begin(id, ask(driver.Rerun))
			rec := e.a.renew(id, want.Owner(), driver.Extension{Lease: long, Begun: true})
			want.Begun, want.LeaseEnd = true, rec.LeaseEnd
			e.unchanged("after Extend with Begun", id, want)
			rec = e.b.renew(id, want.Owner(), driver.Extension{Lease: long})
			want.LeaseEnd = rec.LeaseEnd
			e.unchanged("after Extend without Begun", id, want)
		},
	},
}

// strangers returns owners that differ from by in one thing each.
func strangers(by driver.Owner) map[string]driver.Owner {
	flipped := by.Token
	flipped[len(flipped)-1] ^= 1
	return map[string]driver.Owner{
		"an earlier fence": {Fence: by.Fence - 1, Token: by.Token},
		"a later fence":    {Fence: by.Fence + 1, Token: by.Token},
		"no fence":         {Token: by.Token},
		"another token":    {Fence: by.Fence, Token: driver.NewToken()},
		"a similar token":  {Fence: by.Fence, Token: flipped},
		"no token":         {Fence: by.Fence},
	}
}
