package storetest

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
)

// A fault is a store that breaks one promise, and the checks that must notice.
type fault struct {
	name  string
	build func(m *model)
	fails []string // topic/check
}

var faults = []fault{
	// Claim.
	{
		"the first attempt is number 0",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Absent {
					rec.Attempt = 0
				}
			})
		},
		[]string{"claim/an absent key starts its first run"},
	},
	{
		"fences start at 1",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Absent {
					rec.Fence = 1
				}
			})
		},
		[]string{"claim/an absent key starts its first run", "fence/it grows over a sweep", "fence/it grows over forget"},
	},
	{
		"loading creates the record",
		func(m *model) { m.open = func(m *model) driver.Store { return creator{m} } },
		[]string{"claim/an absent key starts its first run", "extend/it creates nothing", "settle/it creates nothing"},
	},
	{
		"a running record is anybody's",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, now driver.Time, _ *driver.Claim) {
				if r.State == driver.Running {
					r.LeaseEnd = now
				}
			})
		},
		[]string{"claim/a running key refuses others", "lease/it ends when it says"},
	},
	{
		"a lease is half as long as it says",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, _ *driver.Claim) {
				if r.State == driver.Running {
					r.LeaseEnd = r.Started.Add(r.LeaseEnd.Sub(r.Started) / 2)
				}
			})
		},
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
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Running && old.Token == rec.Token {
					rec.Attempt++
					rec.Fence++
				}
			})
		},
		[]string{
			"claim/a claim repeated by its own token is owned again",
			"claim/a claim repeated after its lease is owned again",
			"concurrency/copies of one claim are one claim",
		},
	},
	{
		"its own repeated claim leaves the lease",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Running && old.Token == rec.Token {
					rec.LeaseEnd = old.LeaseEnd
				}
			})
		},
		[]string{
			"claim/a claim repeated by its own token is owned again",
			"claim/a claim repeated after its lease is owned again",
		},
	},
	{
		"a spent token owns again",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				if r.State == driver.Free && r.Token == c.Token {
					r.Token = driver.Token{}
				}
			})
		},
		[]string{"claim/a settled token is spent", "release/the released token is spent"},
	},
	{
		"a free record starts afresh",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, _ *driver.Claim) {
				if r.State == driver.Free {
					*r = driver.Record{Fence: r.Fence, Fingerprint: r.Fingerprint}
				}
			})
		},
		[]string{"claim/a free key runs again", "concurrency/one of many reruns wins"},
	},
	{
		"a run inherits the last one's correlation and retention",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Free {
					rec.Correlation, rec.Retention = old.Correlation, old.Retention
				}
			})
		},
		[]string{"claim/a free key runs again"},
	},
	{
		"what is done without an answer is run again",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, _ *driver.Claim) {
				if r.State == driver.Done && r.Response == nil {
					r.State = driver.Free
				}
			})
		},
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
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				if r.State == driver.Unknown && c.OnLost == driver.Rerun && !r.Seized {
					r.State = driver.Free
				}
			})
		},
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
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				if r.State != driver.Absent {
					c.Fingerprint = r.Fingerprint
				}
			})
		},
		[]string{"fingerprint/another request is refused in every state", "fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"the owner's own fingerprint is not compared",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				if r.Token == c.Token {
					c.Fingerprint = r.Fingerprint
				}
			})
		},
		[]string{"fingerprint/another request is refused in every state"},
	},
	{
		"only raw digests are compared",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				if r.Fingerprint.Raw != c.Fingerprint.Raw {
					c.Fingerprint.Settings = [8]byte{}
				}
			})
		},
		[]string{"fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"settings are not compared",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				c.Fingerprint.Settings = r.Fingerprint.Settings
			})
		},
		[]string{"fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"each run brings its own fingerprint",
		func(m *model) {
			m.bendClaimed(func(_ driver.Record, rec *driver.Record, c driver.Claim) { rec.Fingerprint = c.Fingerprint })
		},
		[]string{"fingerprint/the first fingerprint stays"},
	},

	// Leases.
	{
		"a takeover forgets that the lost run may have had its effect",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Running && !old.Maybe {
					rec.Maybe = false
				}
			})
		},
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
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) { r.OnLost = c.OnLost })
		},
		[]string{"lease/over under Hold it reads as unknown"},
	},
	{
		"the caller's Hold is ignored",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				if r.State != driver.Absent {
					c.OnLost = r.OnLost
				}
			})
		},
		[]string{"lease/over under Hold it reads as unknown", "lease/the policy is that of the present run"},
	},
	{
		"the first run's policy stays",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State != driver.Absent {
					rec.OnLost = old.OnLost
				}
			})
		},
		[]string{"lease/the policy is that of the present run", "claim/a free key runs again"},
	},
	{
		"begun is ignored by claims",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, _ *driver.Claim) { r.Begun = false })
		},
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
		func(m *model) {
			m.bendClaimed(func(_ driver.Record, rec *driver.Record, c driver.Claim) { rec.LeaseEnd = rec.Now.Add(c.Lease) })
		},
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
		func(m *model) {
			m.bendClaimed(func(_ driver.Record, rec *driver.Record, c driver.Claim) { rec.Retention = c.Retention })
		},
		[]string{"lease/zero or less means the default"},
	},
	{
		"leases are whole seconds",
		func(m *model) {
			m.bendClaimed(func(_ driver.Record, rec *driver.Record, _ driver.Claim) {
				rec.LeaseEnd = rec.Now.Add((rec.LeaseEnd.Sub(rec.Now) + time.Second - 1).Truncate(time.Second))
			})
		},
		[]string{"lease/a very short one is one"},
	},
	{
		"maybe is ignored by claims",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, _ *driver.Claim) { r.Maybe = false })
		},
		[]string{"lease/what may have had its effect is held"},
	},

	// Extend.
	{
		"an extension is added to the old end",
		func(m *model) {
			m.extend = func(r driver.Record, now driver.Time, by driver.Owner, x driver.Extension) (driver.Record, bool) {
				rec, owned := r.Extend(now, by, x)
				if owned && x.Lease > 0 {
					rec.LeaseEnd = r.LeaseEnd.Add(x.Lease)
				}
				return rec, owned
			}
		},
		[]string{"extend/it moves the lease and nothing else"},
	},
	{
		"an extension never shortens",
		func(m *model) {
			m.extend = func(r driver.Record, now driver.Time, by driver.Owner, x driver.Extension) (driver.Record, bool) {
				rec, owned := r.Extend(now, by, x)
				rec.LeaseEnd = max(rec.LeaseEnd, r.LeaseEnd)
				return rec, owned
			}
		},
		[]string{"extend/it moves the lease and nothing else"},
	},
	{
		"a heartbeat reopens a record",
		func(m *model) {
			m.bendExtend(func(r *driver.Record, _ driver.Time, _ *driver.Owner, _ *driver.Extension) {
				if r.State != driver.Absent {
					r.State = driver.Running
				}
			})
		},
		[]string{"extend/it acts on a running record only", "seize/a seized record is closed to others", "concurrency/a late heartbeat reopens nothing"},
	},
	{
		"Extend creates a record",
		func(m *model) {
			m.bendExtend(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Extension) {
				if r.State == driver.Absent {
					*r = driver.Record{State: driver.Running, Fence: by.Fence, Token: by.Token}
				}
			})
		},
		[]string{"extend/it creates nothing"},
	},
	{
		"Extend ignores the fence",
		func(m *model) {
			m.bendExtend(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Extension) { by.Fence = r.Fence })
		},
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend ignores the token",
		func(m *model) {
			m.bendExtend(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Extension) { by.Token = r.Token })
		},
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend compares half of the token",
		func(m *model) {
			m.bendExtend(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Extension) {
				copy(by.Token[8:], r.Token[8:])
			})
		},
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend takes any fence above one",
		func(m *model) {
			m.bendExtend(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Extension) {
				if by.Above && r.Fence > by.Fence {
					by.Fence, by.Above = r.Fence, false
				}
			})
		},
		[]string{"extend/it is the owner's"},
	},
	{
		"a heartbeat clears begun",
		func(m *model) {
			m.bendExtend(func(r *driver.Record, _ driver.Time, _ *driver.Owner, x *driver.Extension) { r.Begun = x.Begun })
		},
		[]string{"extend/begun is only ever set"},
	},

	// Settle.
	{
		"done keeps maybe",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, _ driver.Owner, o driver.Outcome) {
				if o.State == driver.Done {
					rec.Maybe = old.Maybe
				}
			})
		},
		[]string{"settle/done keeps the answer"},
	},
	{
		"a handle serves records from a cache of its own",
		func(m *model) {
			m.open = func(m *model) driver.Store { return &cached{model: m, seen: map[driver.ID]driver.Record{}} }
		},
		[]string{"settle/done keeps the answer", "extend/it moves the lease and nothing else"},
	},
	{
		"a release deletes the record",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) {
				if rec.State == driver.Free {
					*rec = driver.Record{}
				}
			})
		},
		[]string{"settle/free keeps the operation", "claim/a free key runs again", "release/it can be repeated"},
	},
	{
		"the reason of a release is lost",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, o driver.Outcome) {
				if o.State == driver.Free {
					rec.Error = ""
				}
			})
		},
		[]string{"settle/free keeps the operation"},
	},
	{
		"who wrote unknown may decide",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, _ *driver.Owner, o *driver.Outcome) {
				if r.State == driver.Unknown && r.Wrote == driver.Unknown && o.State != driver.Unknown {
					r.State = driver.Running
				}
			})
		},
		[]string{"settle/unknown is closed to its owner", "release/what has another outcome stays"},
	},
	{
		"a repeated settle is fenced",
		func(m *model) {
			m.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				rec, owned := r.Settle(now, by, o)
				return rec, owned && (r.State == driver.Running || r.Seized)
			}
		},
		[]string{
			"settle/a repeated settle succeeds and changes nothing",
			"settle/a begun run is done",
			"release/it can be repeated",
			"seize/who seized it decides",
			"context/one that ends meanwhile leaves all or nothing",
		},
	},
	{
		"a repeated settle writes again",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, _ *driver.Owner, o *driver.Outcome) {
				if r.State == r.Wrote && r.Wrote == o.State && r.State != driver.Absent {
					r.State = driver.Running
				}
			})
		},
		[]string{"settle/a repeated settle succeeds and changes nothing"},
	},
	{
		"an owner may think again",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if (r.State == driver.Done || r.State == driver.Free) && !by.Above {
					r.State = driver.Running
				}
			})
		},
		[]string{"settle/an outcome is final"},
	},
	{
		"Settle ignores the fence",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if !by.Above {
					by.Fence = r.Fence
				}
			})
		},
		[]string{"settle/it is the owner's"},
	},
	{
		"Settle ignores the token",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if !by.Above {
					by.Token = r.Token
				}
			})
		},
		[]string{"settle/it is the owner's"},
	},
	{
		"Settle ignores who asks",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if !by.Above {
					*by = r.Owner()
				}
			})
		},
		[]string{
			"fence/a late owner changes nothing after a takeover",
			"fence/a late owner changes nothing after a release",
			"fence/a late owner changes nothing in a new operation",
			"fence/it grows over a sweep",
			"seize/it takes a record from its owner",
			"seize/the last who seized it decides",
			"seize/seizing at once leaves one in charge",
		},
	},
	{
		"Settle creates a record",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if r.State == driver.Absent && !by.Above {
					*r = driver.Record{State: driver.Running, Fence: by.Fence, Token: by.Token}
				}
			})
		},
		[]string{"settle/it creates nothing"},
	},
	{
		"begun is ignored by settles",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, _ *driver.Owner, _ *driver.Outcome) { r.Begun = false })
		},
		[]string{"settle/a begun run is done", "release/a begun run is done, not free", "seize/a begun run stays begun"},
	},
	{
		"any state is an outcome",
		func(m *model) {
			m.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				if rec, owned := r.Extend(now, by, driver.Extension{}); owned && (o.State < driver.Done || o.State > driver.Unknown) {
					rec.State, rec.LeaseEnd = o.State, r.LeaseEnd
					return rec, true
				}
				return r.Settle(now, by, o)
			}
		},
		[]string{"settle/only done, free and unknown are outcomes"},
	},

	// Release-by-token.
	{
		"a run that never started counts",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, by driver.Owner, _ driver.Outcome) {
				if by.Above {
					rec.Attempt = old.Attempt
				}
			})
		},
		[]string{"release/a run that never started is freed by its token", "release/a lapsed run is freed too"},
	},
	{
		"release-by-token counts down each time",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, by driver.Owner, _ driver.Outcome) {
				if by.Above && old.State == driver.Free {
					rec.Attempt--
				}
			})
		},
		[]string{"release/it can be repeated"},
	},
	{
		"release-by-token marks maybe",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, by driver.Owner, _ driver.Outcome) {
				rec.Maybe = rec.Maybe || by.Above && rec.State == driver.Free
			})
		},
		[]string{"release/a run that never started is freed by its token"},
	},
	{
		"release-by-token clears maybe",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, by driver.Owner, _ driver.Outcome) {
				rec.Maybe = rec.Maybe && !by.Above
			})
		},
		[]string{"release/an earlier run's mark stays"},
	},
	{
		"release-by-token frees at the fence, too",
		func(m *model) {
			m.bendSettle(func(_ *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if by.Above && by.Fence > 0 {
					by.Fence--
				}
			})
		},
		[]string{"release/a started run is safe from it"},
	},
	{
		"release-by-token takes any token",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if by.Above {
					by.Token = r.Token
				}
			})
		},
		[]string{
			"release/it needs the token",
			"fence/a late owner changes nothing after a takeover",
			"fence/a late owner changes nothing after a release",
		},
	},
	{
		"release-by-token frees what is done",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if by.Above && r.State == driver.Done {
					r.State = driver.Running
				}
			})
		},
		[]string{"release/what has another outcome stays"},
	},
	{
		"an owner by token may settle",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, o *driver.Outcome) {
				if by.Above && o.State != driver.Free && r.Fence > by.Fence {
					by.Fence, by.Above = r.Fence, false
				}
			})
		},
		[]string{"release/it only frees"},
	},

	// Fences and retention.
	{
		"a takeover keeps the fence",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Running {
					rec.Fence = old.Fence
				}
			})
		},
		[]string{"fence/it grows with each run", "lease/over under Rerun it is taken over"},
	},
	{
		"a new operation starts the fence again",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Done {
					rec.Fence = 1
				}
			})
		},
		[]string{"fence/it grows with each run", "retention/after it the key is new"},
	},
	{
		"retention counts from the claim",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) { rec.Settled = rec.Started })
		},
		[]string{"retention/it counts from completion"},
	},
	{
		"an operation past its retention binds the next request",
		func(m *model) {
			m.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.State == driver.Done && !r.Fingerprint.Equal(c.Fingerprint) {
					return r, false
				}
				return r.Claim(now, c)
			}
		},
		[]string{"retention/after it the key is new"},
	},
	{
		"an operation past its retention leaves something",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Done || old.Begun {
					rec.Error, rec.Response, rec.Begun = old.Error, old.Response, old.Begun
				}
			})
		},
		[]string{"retention/after it the key is new", "retention/a begun run is kept from its lease's end"},
	},
	{
		"forever overflows",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, now driver.Time, _ *driver.Claim) {
				if r.State == driver.Done && int64(r.Settled)*1000+int64(r.Retention) < 0 {
					r.Settled, r.Retention = 1, 1
				}
			})
		},
		[]string{"retention/forever is long"},
	},

	// Sweep.
	{
		"Sweep deletes nothing",
		func(m *model) { m.batch = func(int) (int, int) { return 0, -1 } },
		[]string{
			"sweep/it deletes what is past its retention",
			"sweep/a lost Rerun run is deleted a retention later",
			"sweep/one with a sealed request is deleted seven retentions later",
			"sweep/a free record is kept an hour",
		},
	},
	{
		"Sweep says nothing",
		func(m *model) { m.batch = func(limit int) (int, int) { return limit, 0 } },
		[]string{"sweep/it deletes what is past its retention", "sweep/several sweepers share the work"},
	},
	{
		"Sweep ignores its limit",
		func(m *model) { m.batch = func(int) (int, int) { return math.MaxInt, -1 } },
		[]string{"sweep/it deletes no more than its limit"},
	},
	{
		"Sweep ignores its limit and hides it",
		func(m *model) { m.batch = func(limit int) (int, int) { return math.MaxInt, min(limit, 3) } },
		[]string{"sweep/it deletes no more than its limit"},
	},
	{
		"Sweep deletes records lapsed under Hold",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				if r.State == driver.Running {
					r.OnLost = driver.Rerun
				}
				return r.Expires()
			}
		},
		[]string{"sweep/it spares what is in use or undecided"},
	},
	{
		"Sweep deletes unknown records",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				if r.State == driver.Unknown {
					r.State = driver.Done
				}
				return r.Expires()
			}
		},
		[]string{"sweep/it spares what is in use or undecided"},
	},
	{
		"Sweep deletes runs that outlive their retention",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				if r.State == driver.Running {
					return r.Started.Add(r.Retention)
				}
				return r.Expires()
			}
		},
		[]string{"sweep/a running record is no candidate"},
	},
	{
		"Sweep deletes lapsed runs at once",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				if r.State == driver.Running && (r.OnLost == driver.Rerun || r.Begun) {
					return r.LeaseEnd
				}
				return r.Expires()
			}
		},
		[]string{"sweep/a lost Rerun run is deleted a retention later", "sweep/one with a sealed request is deleted seven retentions later"},
	},
	{
		"Sweep does not mind a sealed request",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				r.Sealed = nil
				return r.Expires()
			}
		},
		[]string{"sweep/one with a sealed request is deleted seven retentions later"},
	},
	{
		"a free record is kept for its retention",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				if r.State == driver.Free {
					r.State = driver.Done
				}
				return r.Expires()
			}
		},
		[]string{"sweep/a free record is kept an hour"},
	},
	{
		"Sweep deletes what should leave a tombstone",
		func(m *model) {
			m.swept = func(driver.Record, driver.Time) (driver.Record, bool) { return driver.Record{}, true }
		},
		[]string{"tombstone/Sweep leaves it"},
	},
	{
		"Sweep leaves the answer in the tombstone",
		func(m *model) {
			m.swept = func(r driver.Record, now driver.Time) (driver.Record, bool) {
				rec, changed := r.Swept(now)
				rec.Response = r.Response
				return rec, changed
			}
		},
		[]string{"tombstone/Sweep leaves it"},
	},
	{
		"Sweep takes the answer of a record that is kept",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				if r.State == driver.Done && r.Tombstone > 0 {
					return r.Settled
				}
				return r.Expires()
			}
			m.swept = func(r driver.Record, now driver.Time) (driver.Record, bool) {
				if r.State == driver.Done {
					r.Response = nil
				}
				return r, true
			}
		},
		[]string{"tombstone/it waits for the retention"},
	},
	{
		"claims do not mind tombstones",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, _ *driver.Claim) { r.Tombstone = 0 })
		},
		[]string{"tombstone/it outlives the answer", "tombstone/a begun run has one too"},
	},
	{
		"tombstones never end",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, _ *driver.Claim) {
				if r.Tombstone > 0 {
					r.Tombstone = driver.Forever
				}
			})
		},
		[]string{"tombstone/after it the key is new"},
	},
	{
		"Sweep deletes what it chose before",
		func(m *model) { m.torn = of(sweeping) },
		[]string{"sweep/it never deletes a run that has just started", "sweep/several sweepers share the work"},
	},

	// Seize and Forget.
	{
		"Seize keeps the token",
		func(m *model) {
			m.bendSeize(
				func(*driver.Record, *driver.Token) {},
				func(old driver.Record, rec *driver.Record) { rec.Token = old.Token },
			)
		},
		[]string{"seize/it takes a record from its owner"},
	},
	{
		"Seize keeps the fence",
		func(m *model) {
			m.bendSeize(
				func(*driver.Record, *driver.Token) {},
				func(old driver.Record, rec *driver.Record) { rec.Fence = old.Fence },
			)
		},
		[]string{"seize/it takes a record from its owner", "seize/the last who seized it decides", "seize/seizing at once leaves one in charge"},
	},
	{
		"Seize takes what is done",
		func(m *model) {
			m.bendSeize(
				func(r *driver.Record, _ *driver.Token) {
					if r.State == driver.Done {
						r.State = driver.Running
						r.LeaseEnd = math.MaxInt64
					}
				},
				func(old driver.Record, rec *driver.Record) { rec.LeaseEnd = old.LeaseEnd },
			)
		},
		[]string{"seize/it leaves alone what needs no decision"},
	},
	{
		"Seize takes what is free for sure",
		func(m *model) {
			m.bendSeize(
				func(r *driver.Record, _ *driver.Token) { r.Maybe = r.Maybe || r.State == driver.Free },
				func(old driver.Record, rec *driver.Record) { rec.Maybe = old.Maybe },
			)
		},
		[]string{"seize/it leaves alone what needs no decision"},
	},
	{
		"Seize repeated is another one",
		func(m *model) {
			m.bendSeize(
				func(r *driver.Record, t *driver.Token) {
					if r.Token == *t {
						r.Token = driver.Token{}
					}
				},
				func(driver.Record, *driver.Record) {},
			)
		},
		[]string{"seize/it can be repeated"},
	},
	{
		"a seizing owner's release keeps maybe",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) {
				if old.Seized && rec.State == driver.Free {
					rec.Maybe = old.Maybe
				}
			})
		},
		[]string{"seize/who seized it decides"},
	},
	{
		"the seizing token may claim",
		func(m *model) {
			m.bendClaim(func(r *driver.Record, _ driver.Time, c *driver.Claim) {
				if r.State == driver.Unknown && r.Seized && r.Token == c.Token {
					r.State = driver.Running
				}
			})
		},
		[]string{"seize/a seized record is closed to others"},
	},
	{
		"the seizing token may release",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, by *driver.Owner, _ *driver.Outcome) {
				if r.State == driver.Unknown && r.Seized && by.Above && by.Fence < r.Fence {
					by.Fence, by.Above = r.Fence, false
				}
			})
		},
		[]string{"seize/a seized record is closed to others"},
	},
	{
		"a seized record counts as settled by its owner",
		func(m *model) {
			m.bendSettle(func(r *driver.Record, _ driver.Time, _ *driver.Owner, _ *driver.Outcome) {
				if r.State == driver.Unknown {
					r.Seized = false
				}
			})
		},
		[]string{"seize/who seized it decides", "seize/the last who seized it decides"},
	},
	{
		"seizing is read, then written",
		func(m *model) { m.torn = of(seizing) },
		[]string{"seize/seizing at once leaves one in charge"},
	},
	{
		"Forget keeps what is free",
		func(m *model) {
			m.forgettable = func(r driver.Record, now driver.Time, by driver.Owner) bool {
				return r.State != driver.Free && r.Forgettable(now, by)
			}
		},
		[]string{"forget/it deletes what is done, free or seized"},
	},
	{
		"Forget keeps what counts as done",
		func(m *model) {
			m.forgettable = func(r driver.Record, now driver.Time, by driver.Owner) bool {
				return r.State != driver.Running && r.Forgettable(now, by)
			}
		},
		[]string{"forget/it deletes what is done, free or seized"},
	},
	{
		"Forget deletes what is running or unknown",
		func(m *model) {
			m.forgettable = func(r driver.Record, _ driver.Time, by driver.Owner) bool {
				return r.State != driver.Absent && !by.Above && r.Owner() == by
			}
		},
		[]string{"forget/it spares what runs or is undecided"},
	},
	{
		"Forget ignores the fence",
		func(m *model) {
			m.forgettable = func(r driver.Record, now driver.Time, by driver.Owner) bool {
				by.Fence = r.Fence
				return r.Forgettable(now, by)
			}
		},
		[]string{"forget/it needs fence and token"},
	},
	{
		"Forget ignores the token",
		func(m *model) {
			m.forgettable = func(r driver.Record, now driver.Time, by driver.Owner) bool {
				by.Token = r.Token
				return r.Forgettable(now, by)
			}
		},
		[]string{"forget/it needs fence and token"},
	},

	// List.
	{
		"List leaves out lapsed records",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				return matches(id, r, q) && (r.State != driver.Running || r.Now < r.LeaseEnd)
			}
		},
		[]string{"list/it shows all as they are", "list/it selects by reading"},
	},
	{
		"List does not tell the time",
		func(m *model) {
			m.told = func(v verb, _ bool, now *driver.Time) {
				if v == listing {
					*now = 0
				}
			}
		},
		[]string{"list/it shows all as they are"},
	},
	{
		"List goes by the stored state",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				if r.State == driver.Running {
					r.LeaseEnd = math.MaxInt64
				}
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by reading"},
	},
	{
		"List ignores the scope",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				q.Scope = nil
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by scope and operation", "list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the id's beginning",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				q.Prefix = ""
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the correlation",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				q.Correlation = ""
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the operation",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				q.Operation = ""
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by scope and operation", "list/it stops"},
	},
	{
		"List does not stop",
		func(m *model) { m.endless = true },
		[]string{"list/it stops"},
	},

	// Count.
	{
		"Count goes by the stored state",
		func(m *model) {
			m.reads = func(r driver.Record) driver.Reading {
				if r.State == driver.Unknown {
					return driver.ReadsUnknown
				}
				return driver.ReadsAbsent
			}
		},
		[]string{"count/it tells what reads unknown"},
	},
	{
		"Count takes all that lapsed for unknown",
		func(m *model) { m.reads = func(r driver.Record) driver.Reading { return r.Reads(driver.Hold) } },
		[]string{"count/it tells what reads unknown"},
	},

	// Concurrency.
	{
		"Claim is read, then written",
		func(m *model) { m.torn = of(claiming) },
		[]string{
			"concurrency/one of many first claims wins",
			"concurrency/one of many takeovers wins",
			"concurrency/one of many reruns wins",
			"concurrency/one of many claims after retention wins",
			"concurrency/many at work on few keys lose nothing",
		},
	},
	{
		"Extend is read, then written",
		func(m *model) { m.torn = of(extending) },
		[]string{"concurrency/a late heartbeat reopens nothing"},
	},
	{
		"Settle is read, then written",
		func(m *model) { m.torn = of(settling) },
		[]string{"concurrency/one outcome is written"},
	},
	{
		"each handle has its own records",
		func(m *model) { m.open = func(m *model) driver.Store { return newModel() } },
		[]string{
			"concurrency/one of many first claims wins",
			"claim/a running key refuses others",
			"payload/every id is its own",
		},
	},

	// Contexts.
	{
		"verbs ignore their context",
		func(m *model) { m.deaf = of(claiming, extending, settling, loading, sweeping) },
		[]string{"context/an ended one is an error and changes nothing"},
	},
	{
		"Claim works before it looks at its context",
		func(m *model) { m.open = func(m *model) driver.Store { return tardy{m} } },
		[]string{"context/an ended one is an error and changes nothing"},
	},
	{
		"operators' verbs ignore their context",
		func(m *model) { m.deaf = of(seizing, forgetting) },
		[]string{"context/an ended one stops operators too"},
	},
	{
		"listing ignores its context",
		func(m *model) { m.deaf = of(listing) },
		[]string{"context/an ended one ends a listing"},
	},
	{
		"Claim acknowledges before it writes",
		func(m *model) { m.hasty = of(claiming) },
		[]string{"context/one that ends meanwhile leaves all or nothing"},
	},
	{
		"Settle acknowledges before it writes",
		func(m *model) { m.hasty = of(settling) },
		[]string{"context/one that ends meanwhile leaves all or nothing"},
	},

	// Payloads.
	{
		"bodies are cut at 64 KiB",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				a.Body = a.Body[:min(len(a.Body), 1<<16)]
				return a
			})
		},
		[]string{"payload/bodies are exact"},
	},
	{
		"bodies end at a NUL",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				a.Body, _, _ = bytes.Cut(a.Body, []byte{0})
				return a
			})
		},
		[]string{"payload/bodies are exact"},
	},
	{
		"an empty answer is none",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				if len(a.Body)+len(a.Header)+len(a.Trailer) == 0 {
					return nil
				}
				return a
			})
		},
		[]string{"payload/no answer is not an empty one"},
	},
	{
		"no answer is an empty one",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) {
				if rec.State == driver.Done && rec.Response == nil {
					rec.Response = &driver.Response{}
				}
			})
		},
		[]string{"payload/no answer is not an empty one", "settle/done without an answer is done", "claim/a done key answers"},
	},
	{
		"a status of 0 is 200",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				if a.Status == 0 {
					a.Status = 200
				}
				return a
			})
		},
		[]string{"payload/status and codec are exact"},
	},
	{
		"the codec is lost",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				a.Codec = ""
				return a
			})
		},
		[]string{"payload/status and codec are exact"},
	},
	{
		"header values are joined",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				h := http.Header{}
				for name, values := range a.Header {
					h[name] = []string{strings.Join(values, ", ")}
				}
				a.Header = h
				return a
			})
		},
		[]string{"payload/headers are exact"},
	},
	{
		"header names are made canonical",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				h := http.Header{}
				for name, values := range a.Header {
					h[http.CanonicalHeaderKey(name)] = values
				}
				a.Header = h
				return a
			})
		},
		[]string{"payload/headers are exact"},
	},
	{
		"trailers are dropped",
		func(m *model) {
			m.bendAnswers(func(a *driver.Response) *driver.Response {
				a.Trailer = nil
				return a
			})
		},
		[]string{"payload/trailers are exact", "settle/done keeps the answer"},
	},
	{
		"texts are made valid UTF-8",
		func(m *model) {
			m.stored = func(r driver.Record) driver.Record {
				r.Correlation = strings.ToValidUTF8(r.Correlation, "\ufffd")
				return r
			}
		},
		[]string{"payload/texts are inert"},
	},
	{
		"texts end at a NUL",
		func(m *model) {
			m.stored = func(r driver.Record) driver.Record {
				r.Error, _, _ = strings.Cut(r.Error, "\x00")
				return r
			}
		},
		[]string{"payload/texts are inert"},
	},
	{
		"the sealed request goes with the first run",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, c driver.Claim) {
				if old.State != driver.Absent {
					rec.Sealed = c.Sealed
				}
			})
		},
		[]string{"payload/a sealed request is exact, and stays until the operation is done", "claim/a free key runs again"},
	},
	{
		"a done record keeps its sealed request",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) { rec.Sealed = old.Sealed })
		},
		[]string{
			"payload/a sealed request is exact, and stays until the operation is done",
			"list/it selects by sealed request",
		},
	},
	{
		"a begun record that is released keeps its sealed request",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, _ driver.Owner, o driver.Outcome) {
				if o.State != driver.Done {
					rec.Sealed = old.Sealed
				}
			})
		},
		[]string{"payload/a sealed request is exact, and stays until the operation is done"},
	},
	{
		"the sealed request is dropped by a settle",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) { rec.Sealed = nil })
		},
		[]string{"payload/a sealed request is exact, and stays until the operation is done"},
	},
	{
		"ids are cut to 47 bytes",
		func(m *model) {
			m.filed = func(id driver.ID) driver.ID {
				id[47] = 0
				return id
			}
		},
		[]string{"payload/every id is its own"},
	},
	{
		"ids are compared without case",
		func(m *model) {
			m.filed = func(id driver.ID) driver.ID { return driver.ID(bytes.Map(lower, id[:])) }
		},
		[]string{"payload/every id is its own"},
	},

	// Clocks and restarts.
	{
		"a refused claim does not tell the time",
		func(m *model) {
			m.told = func(v verb, owned bool, now *driver.Time) {
				if v == claiming && !owned {
					*now = 0
				}
			}
		},
		[]string{"clock/each record tells the time"},
	},
	{
		"Seize does not tell the time",
		func(m *model) {
			m.told = func(v verb, _ bool, now *driver.Time) {
				if v == seizing {
					*now = 0
				}
			}
		},
		[]string{"clock/seizing tells the time"},
	},
	{
		"each handle has a clock of its own",
		func(m *model) {
			behind := time.Duration(0)
			m.open = func(m *model) driver.Store {
				behind += time.Hour
				return skewed{m, behind}
			}
		},
		[]string{"clock/it is the same on every handle, and moves"},
	},
	{
		"a restart loses what runs",
		func(m *model) { m.lost = func(r driver.Record) bool { return r.State == driver.Running } },
		[]string{"restart/what was acknowledged is there after a restart"},
	},
	{
		"a restart loses one done record",
		func(m *model) { m.lost = func(r driver.Record) bool { return r.State == driver.Done } },
		[]string{"restart/what was acknowledged is there after a restart"},
	},
}

func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

// A creator writes an empty record where it finds none.
type creator struct{ *model }

func (s creator) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := s.model.Load(ctx, id)
	if err == nil && rec.State == driver.Absent {
		rec.State = driver.Free
	}
	return rec, err
}

// A cached handle believes what it saw last.
type cached struct {
	*model
	seen map[driver.ID]driver.Record
}

func (s *cached) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	s.mu.Lock()
	rec, ok := s.seen[id]
	now := s.clock
	s.mu.Unlock()
	if ok {
		rec.Now = now
		return rec, nil
	}
	rec, err := s.model.Load(ctx, id)
	if err == nil && rec.State != driver.Absent {
		s.mu.Lock()
		s.seen[id] = rec
		s.mu.Unlock()
	}
	return rec, err
}

// A tardy handle looks at the context of a claim when the work is done.
type tardy struct{ *model }

func (s tardy) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := s.model.Claim(context.WithoutCancel(ctx), id, c)
	if ctx.Err() != nil {
		return driver.Record{}, false, ctx.Err()
	}
	return rec, owned, err
}

// A skewed handle tells, and claims at, a time of its own.
type skewed struct {
	*model
	ahead time.Duration
}

func (s skewed) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := s.model.Load(ctx, id)
	rec.Now = rec.Now.Add(s.ahead)
	return rec, err
}

func (s skewed) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	return s.do(ctx, claiming, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return s.claim(r, now.Add(s.ahead), c)
	})
}
