package storetest

import (
	"github.com/semelhq/semel/driver"
)

var fingerprintChecks = []check{
	{
		name: "another request is refused in every state",
		promise: "A claim with another fingerprint is refused and changes nothing, in every state within retention, also " +
			"after the lease is over, and also with the owner's own token (R-16). Only a free record that remembers nothing takes it.",
		run: func(e *env) {
			for _, s := range e.situations() {
				for i, c := range []driver.Claim{s.claim, retry(s.claim)} {
					if i == 1 && unused(s.rec) {
						continue
					}
					c.Fingerprint = newFingerprint()
					c.OnLost = driver.Rerun
					e.same(s.name+": the record returned", e.b.refuse(s.name+", other fingerprint", s.id, c), s.rec)
					e.unchanged(s.name, s.id, s.rec)
				}
			}
		},
	},
	{
		name: "requests are the same by raw or by canonical digest",
		promise: "Two fingerprints are equal if the raw digests are, or if both the settings' and the canonical digests " +
			"are; digests made under other settings say nothing (R-23).",
		run: func(e *env) {
			for _, row := range []struct {
				name                     string
				raw, canonical, settings bool // which are equal
				same                     bool
			}{
				{"byte-equal repeat", true, true, true, true},
				{"byte-equal repeat after an upgrade", true, false, false, true},
				{"byte-equal, canonical form differs under the same settings", true, false, true, true},
				{"reordered repeat", false, true, true, true},
				{"canonical digest equal by chance under other settings", false, true, false, false},
				{"other request, same settings", false, false, true, false},
				{"other request", false, false, false, false},
			} {
				id, c := newID(), ask(driver.Rerun)
				e.a.ran(id, c, free("")) // with maybe, so that it keeps its request
				r := retry(c)
				r.Fingerprint = newFingerprint()
				if row.raw {
					r.Fingerprint.Raw = c.Fingerprint.Raw
				}
				if row.canonical {
					r.Fingerprint.Canonical = c.Fingerprint.Canonical
				}
				if row.settings {
					r.Fingerprint.Settings = c.Fingerprint.Settings
				}
				if _, owned := e.b.claim(id, r); owned != row.same {
					e.Errorf("%s: owned is %t, want %t", row.name, owned, row.same)
				}
			}
		},
	},
	{
		name: "the first fingerprint stays",
		promise: "A later run of the same operation keeps the fingerprint of its first claim, so that no chain of similar " +
			"requests leads to a different one.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			rec := e.a.begin(id, c)
			e.a.end(id, rec.Owner(), free(""))
			r := retry(c)
			r.Fingerprint.Raw = driver.NewToken() // reordered: equal by its canonical digest
			got := e.b.begin(id, r)
			if got.Fingerprint != c.Fingerprint || e.a.load(id).Fingerprint != c.Fingerprint {
				e.Errorf("the second run replaced the fingerprint")
			}
		},
	},
}
