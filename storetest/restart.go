package storetest

import (
	"github.com/semelhq/semel/driver"
)

var restartChecks = []check{
	{
		name: "what was acknowledged is there after a restart",
		promise: "Every acknowledged record is the same after the storage was restarted, and binds as before: answers, refusals, " +
			"fingerprints, fences (R-16).",
		needs: restartable,
		run: func(e *env) {
			all := e.situations()
			e.restart()
			e.reopen()
			for _, s := range all {
				e.unchanged(s.name+", restarted", s.id, s.rec)
				if !unused(s.rec) {
					other := retry(s.claim)
					other.Fingerprint = newFingerprint()
					e.a.refuse(s.name+", restarted, other fingerprint", s.id, other)
				}

				r := retry(s.claim)
				r.OnLost = driver.Hold
				want := s.rec.Reads(driver.Hold) == driver.ReadsFree
				rec, owned := e.b.claim(s.id, r)
				if owned != want {
					e.Errorf("%s, restarted: owned is %t, want %t", s.name, owned, want)
				}
				if owned && rec.Fence != s.rec.Fence+1 {
					e.Errorf("%s, restarted: fence %d follows %d", s.name, rec.Fence, s.rec.Fence)
				}
				if !owned && s.rec.State == driver.Running {
					e.b.end(s.id, s.owner(), done(answer()))
				}
			}
		},
	},
}
