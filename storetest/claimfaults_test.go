package storetest

import (
	"time"

	"github.com/semelhq/semel/driver"
)

var claimFaults = []fault{
	// Claim.
	{
		"the first attempt is number 0",
		after(claiming, was(driver.Absent, func(x *call) { x.rec.Attempt = 0 })),
		[]string{"claim/an absent key starts its first run"},
	},
	{
		"fences start at 1",
		after(claiming, was(driver.Absent, func(x *call) { x.rec.Fence = 1 })),
		[]string{"claim/an absent key starts its first run", "fence/it grows over a sweep", "fence/it grows over forget"},
	},
	{
		"loading creates the record",
		func(m *model) { m.open = func(m *model) driver.Store { return creator{m} } },
		[]string{"claim/an absent key starts its first run", "extend/it creates nothing", "settle/it creates nothing"},
	},
	{
		"a running record is anybody's",
		before(claiming, was(driver.Running, func(x *call) { x.rec.LeaseEnd = x.now })),
		[]string{"claim/a running key refuses others", "lease/it ends when it says"},
	},
	{
		"a lease is half as long as it says",
		before(claiming, was(driver.Running, func(x *call) { x.rec.LeaseEnd = x.rec.Started.Add(x.rec.LeaseEnd.Sub(x.rec.Started) / 2) })),
		[]string{"lease/it ends when it says"},
	},
	{
		"its own repeated claim is a stranger's",
		func(m *model) {
			m.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.State == driver.Running && r.Token == c.Token {
					return r, false
				}
				return r.Claim(now, c)
			}
		},
		[]string{
			"claim/a claim repeated by its own token is owned again",
			"claim/a claim repeated after its lease is owned again",
			"concurrency/copies of one claim are one claim",
			"context/one that ends meanwhile leaves all or nothing",
		},
	},
	{
		"its own repeated claim is a new run",
		after(claiming, when(func(x *call) bool { return x.old.State == driver.Running && x.old.Token == x.rec.Token }, func(x *call) {
			x.rec.Attempt++
			x.rec.Fence++
		})),
		[]string{
			"claim/a claim repeated by its own token is owned again",
			"claim/a claim repeated after its lease is owned again",
			"concurrency/copies of one claim are one claim",
		},
	},
	{
		"its own repeated claim leaves the lease",
		after(claiming, when(
			func(x *call) bool { return x.old.State == driver.Running && x.old.Token == x.rec.Token },
			func(x *call) { x.rec.LeaseEnd = x.old.LeaseEnd },
		)),
		[]string{
			"claim/a claim repeated by its own token is owned again",
			"claim/a claim repeated after its lease is owned again",
		},
	},
	{
		"a spent token owns again",
		before(claiming, when(
			func(x *call) bool { return x.rec.State == driver.Free && x.rec.Token == x.claim.Token },
			func(x *call) { x.rec.Token = driver.Token{} },
		)),
		[]string{"claim/a settled token is spent", "release/the released token is spent"},
	},
	{
		"a free record starts afresh",
		before(claiming, was(driver.Free, func(x *call) { *x.rec = driver.Record{Fence: x.rec.Fence, Fingerprint: x.rec.Fingerprint} })),
		[]string{"claim/a free key runs again", "concurrency/one of many reruns wins"},
	},
	{
		"a run inherits the last one's correlation and retention",
		after(claiming, was(driver.Free, func(x *call) { x.rec.Correlation, x.rec.Retention = x.old.Correlation, x.old.Retention })),
		[]string{"claim/a free key runs again"},
	},
	{
		"what is done without an answer is run again",
		before(claiming, when(
			func(x *call) bool { return x.rec.State == driver.Done && x.rec.Response == nil },
			func(x *call) { x.rec.State = driver.Free },
		)),
		[]string{"claim/a done key answers", "settle/done without an answer is done"},
	},
	{
		"a refused claim hides the answer",
		func(m *model) {
			m.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				rec, owned := r.Claim(now, c)
				if !owned {
					rec.Response = nil
				}
				return rec, owned
			}
		},
		[]string{"claim/a done key answers", "payload/bodies are exact"},
	},
	{
		"an unknown record is run again under Rerun",
		before(claiming, when(
			func(x *call) bool {
				return x.rec.State == driver.Unknown && x.claim.OnLost == driver.Rerun && !x.rec.Seized
			},
			func(x *call) { x.rec.State = driver.Free },
		)),
		[]string{"claim/an unknown key stays closed"},
	},
	{
		"a refused claim writes",
		func(m *model) {
			m.wordy = true
			m.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				rec, owned := r.Claim(now, c)
				if !owned {
					rec.Correlation = c.Correlation
				}
				return rec, owned
			}
		},
		[]string{"claim/a refused claim writes nothing"},
	},
	{
		"a refused claim writes down that the record is unknown",
		func(m *model) {
			m.wordy = true
			m.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				rec, owned := r.Claim(now, c)
				if !owned && rec.State == driver.Running && rec.Reads(c.OnLost) == driver.ReadsUnknown {
					rec.State = driver.Unknown
				}
				return rec, owned
			}
		},
		[]string{"claim/a refused claim writes nothing", "lease/over under Hold it reads as unknown", "lease/a caller's Hold binds nobody else"},
	},

	// Fingerprints.
	{
		"fingerprints are not compared",
		before(claiming, when(
			func(x *call) bool { return x.rec.State != driver.Absent },
			func(x *call) { x.claim.Fingerprint = x.rec.Fingerprint },
		)),
		[]string{"fingerprint/another request is refused in every state", "fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"the owner's own fingerprint is not compared",
		before(claiming, when(
			func(x *call) bool { return x.rec.Token == x.claim.Token },
			func(x *call) { x.claim.Fingerprint = x.rec.Fingerprint },
		)),
		[]string{"fingerprint/another request is refused in every state"},
	},
	{
		"only raw digests are compared",
		before(claiming, when(
			func(x *call) bool { return x.rec.Fingerprint.Raw != x.claim.Fingerprint.Raw },
			func(x *call) { x.claim.Fingerprint.Settings = [8]byte{} },
		)),
		[]string{"fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"settings are not compared",
		before(claiming, func(x *call) { x.claim.Fingerprint.Settings = x.rec.Fingerprint.Settings }),
		[]string{"fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"each run brings its own fingerprint",
		after(claiming, func(x *call) { x.rec.Fingerprint = x.claim.Fingerprint }),
		[]string{"fingerprint/the first fingerprint stays"},
	},

	// Leases.
	{
		"a takeover forgets that the lost run may have had its effect",
		after(claiming, when(
			func(x *call) bool { return x.old.State == driver.Running && !x.old.Maybe },
			func(x *call) { x.rec.Maybe = false },
		)),
		[]string{"lease/over under Rerun it is taken over", "release/an earlier run's mark stays"},
	},
	{
		"a lost run is never taken over",
		func(m *model) {
			m.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.State == driver.Running && r.Token != c.Token {
					return r, false
				}
				return r.Claim(now, c)
			}
		},
		[]string{
			"lease/over under Rerun it is taken over",
			"lease/the policy is that of the present run",
			"lease/a caller's Hold binds nobody else",
			"concurrency/one of many takeovers wins",
		},
	},
	{
		"the record's Hold is ignored",
		before(claiming, func(x *call) { x.rec.OnLost = x.claim.OnLost }),
		[]string{"lease/over under Hold it reads as unknown"},
	},
	{
		"the caller's Hold is ignored",
		before(claiming, when(
			func(x *call) bool { return x.rec.State != driver.Absent },
			func(x *call) { x.claim.OnLost = x.rec.OnLost },
		)),
		[]string{"lease/over under Hold it reads as unknown", "lease/the policy is that of the present run"},
	},
	{
		"the first run's policy stays",
		after(claiming, when(
			func(x *call) bool { return x.old.State != driver.Absent },
			func(x *call) { x.rec.OnLost = x.old.OnLost },
		)),
		[]string{"lease/the policy is that of the present run", "claim/a free key runs again"},
	},
	{
		"begun is ignored by claims",
		before(claiming, func(x *call) { x.rec.Begun = false }),
		[]string{"lease/over when begun it is done without an answer", "retention/a begun run is kept from its lease's end"},
	},
	{
		"settling needs a lease",
		func(m *model) {
			m.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				if r.State == driver.Running && now >= r.LeaseEnd {
					return r, false
				}
				return r.Settle(now, by, o)
			}
		},
		[]string{
			"lease/a late owner whom nobody replaced may settle",
			"lease/a very short one is one",
			"release/a lapsed run is freed too",
			"sweep/it spares what is in use or undecided",
		},
	},
	{
		"extending needs a lease",
		func(m *model) {
			m.extend = func(r driver.Record, now driver.Time, by driver.Owner, x driver.Extension) (driver.Record, bool) {
				if now >= r.LeaseEnd {
					return r, false
				}
				return r.Extend(now, by, x)
			}
		},
		[]string{"lease/a late owner whom nobody replaced may settle"},
	},
	{
		"a lease of zero is over",
		after(claiming, func(x *call) { x.rec.LeaseEnd = x.rec.Now.Add(x.claim.Lease) }),
		[]string{"lease/zero or less means the default"},
	},
	{
		"an extension by zero ends the lease",
		func(m *model) {
			m.extend = func(r driver.Record, now driver.Time, by driver.Owner, x driver.Extension) (driver.Record, bool) {
				rec, owned := r.Extend(now, by, x)
				if owned {
					rec.LeaseEnd = now.Add(x.Lease)
				}
				return rec, owned
			}
		},
		[]string{"lease/zero or less means the default"},
	},
	{
		"a retention of zero is over",
		after(claiming, func(x *call) { x.rec.Retention = x.claim.Retention }),
		[]string{"lease/zero or less means the default"},
	},
	{
		"leases are whole seconds",
		after(claiming, func(x *call) {
			x.rec.LeaseEnd = x.rec.Now.Add((x.rec.LeaseEnd.Sub(x.rec.Now) + time.Second - 1).Truncate(time.Second))
		}),
		[]string{"lease/a very short one is one"},
	},
	{
		"maybe is ignored by claims",
		before(claiming, func(x *call) { x.rec.Maybe = false }),
		[]string{"lease/what may have had its effect is held"},
	},
}
