package storetest

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
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
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Absent {
					rec.Attempt = 0
				}
			})
		},
		[]string{"claim/an absent key starts its first run"},
	},
	{
		"fences start at 1",
		func(m *model) {
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Absent {
					rec.Fence = 1
				}
			})
		},
		[]string{"claim/an absent key starts its first run", "fence/it grows over a sweep", "fence/it grows over forget"},
	},
	{
		"loading creates the record",
		func(m *model) { m.open = func(m *model) semel.Store { return creator{m} } },
		[]string{"claim/an absent key starts its first run", "extend/it creates nothing", "settle/it creates nothing"},
	},
	{
		"a running record is anybody's",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, now semel.Time, _ *semel.Claim) {
				if r.State == semel.Running {
					r.LeaseEnd = now
				}
			})
		},
		[]string{"claim/a running key refuses others", "lease/it ends when it says"},
	},
	{
		"a lease is half as long as it says",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, _ *semel.Claim) {
				if r.State == semel.Running {
					r.LeaseEnd = r.Started.Add(r.LeaseEnd.Sub(r.Started) / 2)
				}
			})
		},
		[]string{"lease/it ends when it says"},
	},
	{
		"its own repeated claim is a stranger's",
		func(m *model) {
			m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
				if r.State == semel.Running && r.Token == c.Token {
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
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Running && old.Token == rec.Token {
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
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Running && old.Token == rec.Token {
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
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) {
				if r.State == semel.Free && r.Token == c.Token {
					r.Token = semel.Token{}
				}
			})
		},
		[]string{"claim/a settled token is spent", "release/the released token is spent"},
	},
	{
		"a free record starts afresh",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, _ *semel.Claim) {
				if r.State == semel.Free {
					*r = semel.Record{Fence: r.Fence, Fingerprint: r.Fingerprint}
				}
			})
		},
		[]string{"claim/a free key runs again", "concurrency/one of many reruns wins"},
	},
	{
		"a run inherits the last one's correlation and retention",
		func(m *model) {
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Free {
					rec.Correlation, rec.Retention = old.Correlation, old.Retention
				}
			})
		},
		[]string{"claim/a free key runs again"},
	},
	{
		"what is done without an answer is run again",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, _ *semel.Claim) {
				if r.State == semel.Done && r.Response == nil {
					r.State = semel.Free
				}
			})
		},
		[]string{"claim/a done key answers", "settle/done without an answer is done"},
	},
	{
		"a refused claim hides the answer",
		func(m *model) {
			m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
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
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) {
				if r.State == semel.Unknown && c.OnLost == semel.Rerun && !r.Seized {
					r.State = semel.Free
				}
			})
		},
		[]string{"claim/an unknown key stays closed"},
	},
	{
		"a refused claim writes",
		func(m *model) {
			m.wordy = true
			m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
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
			m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
				rec, owned := r.Claim(now, c)
				if !owned && rec.State == semel.Running && rec.Reads(c.OnLost) == semel.ReadsUnknown {
					rec.State = semel.Unknown
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
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) {
				if r.State != semel.Absent {
					c.Fingerprint = r.Fingerprint
				}
			})
		},
		[]string{"fingerprint/another request is refused in every state", "fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"the owner's own fingerprint is not compared",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) {
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
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) {
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
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) { c.Fingerprint.Settings = r.Fingerprint.Settings })
		},
		[]string{"fingerprint/requests are the same by raw or by canonical digest"},
	},
	{
		"each run brings its own fingerprint",
		func(m *model) {
			m.bendClaimed(func(_ semel.Record, rec *semel.Record, c semel.Claim) { rec.Fingerprint = c.Fingerprint })
		},
		[]string{"fingerprint/the first fingerprint stays"},
	},

	// Leases.
	{
		"a takeover forgets that the lost run may have had its effect",
		func(m *model) {
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Running && !old.Maybe {
					rec.Maybe = false
				}
			})
		},
		[]string{"lease/over under Rerun it is taken over", "release/an earlier run's mark stays"},
	},
	{
		"a lost run is never taken over",
		func(m *model) {
			m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
				if r.State == semel.Running && r.Token != c.Token {
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
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) { r.OnLost = c.OnLost })
		},
		[]string{"lease/over under Hold it reads as unknown"},
	},
	{
		"the caller's Hold is ignored",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) {
				if r.State != semel.Absent {
					c.OnLost = r.OnLost
				}
			})
		},
		[]string{"lease/over under Hold it reads as unknown", "lease/the policy is that of the present run"},
	},
	{
		"the first run's policy stays",
		func(m *model) {
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State != semel.Absent {
					rec.OnLost = old.OnLost
				}
			})
		},
		[]string{"lease/the policy is that of the present run", "claim/a free key runs again"},
	},
	{
		"begun is ignored by claims",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, _ *semel.Claim) { r.Begun = false })
		},
		[]string{"lease/over when begun it is done without an answer", "retention/a begun run is kept from its lease's end"},
	},
	{
		"settling needs a lease",
		func(m *model) {
			m.settle = func(r semel.Record, now semel.Time, by semel.Owner, o semel.Outcome) (semel.Record, bool) {
				if r.State == semel.Running && now >= r.LeaseEnd {
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
			m.extend = func(r semel.Record, now semel.Time, by semel.Owner, x semel.Extension) (semel.Record, bool) {
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
			m.bendClaimed(func(_ semel.Record, rec *semel.Record, c semel.Claim) { rec.LeaseEnd = rec.Now.Add(c.Lease) })
		},
		[]string{"lease/zero or less means the default"},
	},
	{
		"an extension by zero ends the lease",
		func(m *model) {
			m.extend = func(r semel.Record, now semel.Time, by semel.Owner, x semel.Extension) (semel.Record, bool) {
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
			m.bendClaimed(func(_ semel.Record, rec *semel.Record, c semel.Claim) { rec.Retention = c.Retention })
		},
		[]string{"lease/zero or less means the default"},
	},
	{
		"leases are whole seconds",
		func(m *model) {
			m.bendClaimed(func(_ semel.Record, rec *semel.Record, _ semel.Claim) {
				rec.LeaseEnd = rec.Now.Add((rec.LeaseEnd.Sub(rec.Now) + time.Second - 1).Truncate(time.Second))
			})
		},
		[]string{"lease/a very short one is one"},
	},
	{
		"maybe is ignored by claims",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, _ *semel.Claim) { r.Maybe = false })
		},
		[]string{"lease/what may have had its effect is held"},
	},

	// Extend.
	{
		"an extension is added to the old end",
		func(m *model) {
			m.extend = func(r semel.Record, now semel.Time, by semel.Owner, x semel.Extension) (semel.Record, bool) {
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
			m.extend = func(r semel.Record, now semel.Time, by semel.Owner, x semel.Extension) (semel.Record, bool) {
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
			m.bendExtend(func(r *semel.Record, _ semel.Time, _ *semel.Owner, _ *semel.Extension) {
				if r.State != semel.Absent {
					r.State = semel.Running
				}
			})
		},
		[]string{"extend/it acts on a running record only", "seize/a seized record is closed to others", "concurrency/a late heartbeat reopens nothing"},
	},
	{
		"Extend creates a record",
		func(m *model) {
			m.bendExtend(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Extension) {
				if r.State == semel.Absent {
					*r = semel.Record{State: semel.Running, Fence: by.Fence, Token: by.Token}
				}
			})
		},
		[]string{"extend/it creates nothing"},
	},
	{
		"Extend ignores the fence",
		func(m *model) {
			m.bendExtend(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Extension) { by.Fence = r.Fence })
		},
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend ignores the token",
		func(m *model) {
			m.bendExtend(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Extension) { by.Token = r.Token })
		},
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend compares half of the token",
		func(m *model) {
			m.bendExtend(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Extension) {
				copy(by.Token[8:], r.Token[8:])
			})
		},
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend takes any fence above one",
		func(m *model) {
			m.bendExtend(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Extension) {
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
			m.bendExtend(func(r *semel.Record, _ semel.Time, _ *semel.Owner, x *semel.Extension) { r.Begun = x.Begun })
		},
		[]string{"extend/begun is only ever set"},
	},

	// Settle.
	{
		"done keeps maybe",
		func(m *model) {
			m.bendSettled(func(old semel.Record, rec *semel.Record, _ semel.Owner, o semel.Outcome) {
				if o.State == semel.Done {
					rec.Maybe = old.Maybe
				}
			})
		},
		[]string{"settle/done keeps the answer"},
	},
	{
		"a handle serves records from a cache of its own",
		func(m *model) {
			m.open = func(m *model) semel.Store { return &cached{model: m, seen: map[semel.ID]semel.Record{}} }
		},
		[]string{"settle/done keeps the answer", "extend/it moves the lease and nothing else"},
	},
	{
		"a release deletes the record",
		func(m *model) {
			m.bendSettled(func(_ semel.Record, rec *semel.Record, _ semel.Owner, _ semel.Outcome) {
				if rec.State == semel.Free {
					*rec = semel.Record{}
				}
			})
		},
		[]string{"settle/free keeps the operation", "claim/a free key runs again", "release/it can be repeated"},
	},
	{
		"the reason of a release is lost",
		func(m *model) {
			m.bendSettled(func(_ semel.Record, rec *semel.Record, _ semel.Owner, o semel.Outcome) {
				if o.State == semel.Free {
					rec.Error = ""
				}
			})
		},
		[]string{"settle/free keeps the operation"},
	},
	{
		"who wrote unknown may decide",
		func(m *model) {
			m.bendSettle(func(r *semel.Record, _ semel.Time, _ *semel.Owner, o *semel.Outcome) {
				if r.State == semel.Unknown && r.Wrote == semel.Unknown && o.State != semel.Unknown {
					r.State = semel.Running
				}
			})
		},
		[]string{"settle/unknown is closed to its owner", "release/what has another outcome stays"},
	},
	{
		"a repeated settle is fenced",
		func(m *model) {
			m.settle = func(r semel.Record, now semel.Time, by semel.Owner, o semel.Outcome) (semel.Record, bool) {
				rec, owned := r.Settle(now, by, o)
				return rec, owned && (r.State == semel.Running || r.Seized)
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
			m.bendSettle(func(r *semel.Record, _ semel.Time, _ *semel.Owner, o *semel.Outcome) {
				if r.State == r.Wrote && r.Wrote == o.State && r.State != semel.Absent {
					r.State = semel.Running
				}
			})
		},
		[]string{"settle/a repeated settle succeeds and changes nothing"},
	},
	{
		"an owner may think again",
		func(m *model) {
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
				if (r.State == semel.Done || r.State == semel.Free) && !by.Above {
					r.State = semel.Running
				}
			})
		},
		[]string{"settle/an outcome is final"},
	},
	{
		"Settle ignores the fence",
		func(m *model) {
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
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
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
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
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
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
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
				if r.State == semel.Absent && !by.Above {
					*r = semel.Record{State: semel.Running, Fence: by.Fence, Token: by.Token}
				}
			})
		},
		[]string{"settle/it creates nothing"},
	},
	{
		"begun is ignored by settles",
		func(m *model) {
			m.bendSettle(func(r *semel.Record, _ semel.Time, _ *semel.Owner, _ *semel.Outcome) { r.Begun = false })
		},
		[]string{"settle/a begun run is done", "release/a begun run is done, not free", "seize/a begun run stays begun"},
	},
	{
		"any state is an outcome",
		func(m *model) {
			m.settle = func(r semel.Record, now semel.Time, by semel.Owner, o semel.Outcome) (semel.Record, bool) {
				if rec, owned := r.Extend(now, by, semel.Extension{}); owned && (o.State < semel.Done || o.State > semel.Unknown) {
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
			m.bendSettled(func(old semel.Record, rec *semel.Record, by semel.Owner, _ semel.Outcome) {
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
			m.bendSettled(func(old semel.Record, rec *semel.Record, by semel.Owner, _ semel.Outcome) {
				if by.Above && old.State == semel.Free {
					rec.Attempt--
				}
			})
		},
		[]string{"release/it can be repeated"},
	},
	{
		"release-by-token marks maybe",
		func(m *model) {
			m.bendSettled(func(_ semel.Record, rec *semel.Record, by semel.Owner, _ semel.Outcome) {
				rec.Maybe = rec.Maybe || by.Above && rec.State == semel.Free
			})
		},
		[]string{"release/a run that never started is freed by its token"},
	},
	{
		"release-by-token clears maybe",
		func(m *model) {
			m.bendSettled(func(_ semel.Record, rec *semel.Record, by semel.Owner, _ semel.Outcome) {
				rec.Maybe = rec.Maybe && !by.Above
			})
		},
		[]string{"release/an earlier run's mark stays"},
	},
	{
		"release-by-token frees at the fence, too",
		func(m *model) {
			m.bendSettle(func(_ *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
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
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
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
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
				if by.Above && r.State == semel.Done {
					r.State = semel.Running
				}
			})
		},
		[]string{"release/what has another outcome stays"},
	},
	{
		"an owner by token may settle",
		func(m *model) {
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, o *semel.Outcome) {
				if by.Above && o.State != semel.Free && r.Fence > by.Fence {
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
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Running {
					rec.Fence = old.Fence
				}
			})
		},
		[]string{"fence/it grows with each run", "lease/over under Rerun it is taken over"},
	},
	{
		"a new operation starts the fence again",
		func(m *model) {
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Done {
					rec.Fence = 1
				}
			})
		},
		[]string{"fence/it grows with each run", "retention/after it the key is new"},
	},
	{
		"retention counts from the claim",
		func(m *model) {
			m.bendSettled(func(_ semel.Record, rec *semel.Record, _ semel.Owner, _ semel.Outcome) { rec.Settled = rec.Started })
		},
		[]string{"retention/it counts from completion"},
	},
	{
		"an operation past its retention binds the next request",
		func(m *model) {
			m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
				if r.State == semel.Done && !r.Fingerprint.Equal(c.Fingerprint) {
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
			m.bendClaimed(func(old semel.Record, rec *semel.Record, _ semel.Claim) {
				if old.State == semel.Done || old.Begun {
					rec.Error, rec.Response, rec.Begun = old.Error, old.Response, old.Begun
				}
			})
		},
		[]string{"retention/after it the key is new", "retention/a begun run is kept from its lease's end"},
	},
	{
		"forever overflows",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, now semel.Time, _ *semel.Claim) {
				if r.State == semel.Done && int64(r.Settled)*1000+int64(r.Retention) < 0 {
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
			m.expires = func(r semel.Record) semel.Time {
				if r.State == semel.Running {
					r.OnLost = semel.Rerun
				}
				return r.Expires()
			}
		},
		[]string{"sweep/it spares what is in use or undecided"},
	},
	{
		"Sweep deletes unknown records",
		func(m *model) {
			m.expires = func(r semel.Record) semel.Time {
				if r.State == semel.Unknown {
					r.State = semel.Done
				}
				return r.Expires()
			}
		},
		[]string{"sweep/it spares what is in use or undecided"},
	},
	{
		"Sweep deletes runs that outlive their retention",
		func(m *model) {
			m.expires = func(r semel.Record) semel.Time {
				if r.State == semel.Running {
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
			m.expires = func(r semel.Record) semel.Time {
				if r.State == semel.Running && (r.OnLost == semel.Rerun || r.Begun) {
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
			m.expires = func(r semel.Record) semel.Time {
				r.Sealed = nil
				return r.Expires()
			}
		},
		[]string{"sweep/one with a sealed request is deleted seven retentions later"},
	},
	{
		"a free record is kept for its retention",
		func(m *model) {
			m.expires = func(r semel.Record) semel.Time {
				if r.State == semel.Free {
					r.State = semel.Done
				}
				return r.Expires()
			}
		},
		[]string{"sweep/a free record is kept an hour"},
	},
	{
		"Sweep deletes what should leave a tombstone",
		func(m *model) {
			m.swept = func(semel.Record, semel.Time) (semel.Record, bool) { return semel.Record{}, true }
		},
		[]string{"tombstone/Sweep leaves it"},
	},
	{
		"Sweep leaves the answer in the tombstone",
		func(m *model) {
			m.swept = func(r semel.Record, now semel.Time) (semel.Record, bool) {
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
			m.expires = func(r semel.Record) semel.Time {
				if r.State == semel.Done && r.Tombstone > 0 {
					return r.Settled
				}
				return r.Expires()
			}
			m.swept = func(r semel.Record, now semel.Time) (semel.Record, bool) {
				if r.State == semel.Done {
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
			m.bendClaim(func(r *semel.Record, _ semel.Time, _ *semel.Claim) { r.Tombstone = 0 })
		},
		[]string{"tombstone/it outlives the answer", "tombstone/a begun run has one too"},
	},
	{
		"tombstones never end",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, _ *semel.Claim) {
				if r.Tombstone > 0 {
					r.Tombstone = semel.Forever
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
				func(*semel.Record, *semel.Token) {},
				func(old semel.Record, rec *semel.Record) { rec.Token = old.Token },
			)
		},
		[]string{"seize/it takes a record from its owner"},
	},
	{
		"Seize keeps the fence",
		func(m *model) {
			m.bendSeize(
				func(*semel.Record, *semel.Token) {},
				func(old semel.Record, rec *semel.Record) { rec.Fence = old.Fence },
			)
		},
		[]string{"seize/it takes a record from its owner", "seize/the last who seized it decides", "seize/seizing at once leaves one in charge"},
	},
	{
		"Seize takes what is done",
		func(m *model) {
			m.bendSeize(
				func(r *semel.Record, _ *semel.Token) {
					if r.State == semel.Done {
						r.State = semel.Running
						r.LeaseEnd = math.MaxInt64
					}
				},
				func(old semel.Record, rec *semel.Record) { rec.LeaseEnd = old.LeaseEnd },
			)
		},
		[]string{"seize/it leaves alone what needs no decision"},
	},
	{
		"Seize takes what is free for sure",
		func(m *model) {
			m.bendSeize(
				func(r *semel.Record, _ *semel.Token) { r.Maybe = r.Maybe || r.State == semel.Free },
				func(old semel.Record, rec *semel.Record) { rec.Maybe = old.Maybe },
			)
		},
		[]string{"seize/it leaves alone what needs no decision"},
	},
	{
		"Seize repeated is another one",
		func(m *model) {
			m.bendSeize(
				func(r *semel.Record, t *semel.Token) {
					if r.Token == *t {
						r.Token = semel.Token{}
					}
				},
				func(semel.Record, *semel.Record) {},
			)
		},
		[]string{"seize/it can be repeated"},
	},
	{
		"a seizing owner's release keeps maybe",
		func(m *model) {
			m.bendSettled(func(old semel.Record, rec *semel.Record, _ semel.Owner, _ semel.Outcome) {
				if old.Seized && rec.State == semel.Free {
					rec.Maybe = old.Maybe
				}
			})
		},
		[]string{"seize/who seized it decides"},
	},
	{
		"the seizing token may claim",
		func(m *model) {
			m.bendClaim(func(r *semel.Record, _ semel.Time, c *semel.Claim) {
				if r.State == semel.Unknown && r.Seized && r.Token == c.Token {
					r.State = semel.Running
				}
			})
		},
		[]string{"seize/a seized record is closed to others"},
	},
	{
		"the seizing token may release",
		func(m *model) {
			m.bendSettle(func(r *semel.Record, _ semel.Time, by *semel.Owner, _ *semel.Outcome) {
				if r.State == semel.Unknown && r.Seized && by.Above && by.Fence < r.Fence {
					by.Fence, by.Above = r.Fence, false
				}
			})
		},
		[]string{"seize/a seized record is closed to others"},
	},
	{
		"a seized record counts as settled by its owner",
		func(m *model) {
			m.bendSettle(func(r *semel.Record, _ semel.Time, _ *semel.Owner, _ *semel.Outcome) {
				if r.State == semel.Unknown {
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
			m.forgettable = func(r semel.Record, now semel.Time, by semel.Owner) bool {
				return r.State != semel.Free && r.Forgettable(now, by)
			}
		},
		[]string{"forget/it deletes what is done, free or seized"},
	},
	{
		"Forget keeps what counts as done",
		func(m *model) {
			m.forgettable = func(r semel.Record, now semel.Time, by semel.Owner) bool {
				return r.State != semel.Running && r.Forgettable(now, by)
			}
		},
		[]string{"forget/it deletes what is done, free or seized"},
	},
	{
		"Forget deletes what is running or unknown",
		func(m *model) {
			m.forgettable = func(r semel.Record, _ semel.Time, by semel.Owner) bool {
				return r.State != semel.Absent && !by.Above && r.Owner() == by
			}
		},
		[]string{"forget/it spares what runs or is undecided"},
	},
	{
		"Forget ignores the fence",
		func(m *model) {
			m.forgettable = func(r semel.Record, now semel.Time, by semel.Owner) bool {
				by.Fence = r.Fence
				return r.Forgettable(now, by)
			}
		},
		[]string{"forget/it needs fence and token"},
	},
	{
		"Forget ignores the token",
		func(m *model) {
			m.forgettable = func(r semel.Record, now semel.Time, by semel.Owner) bool {
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
			m.matches = func(id semel.ID, r semel.Record, q semel.Query) bool {
				return matches(id, r, q) && (r.State != semel.Running || r.Now < r.LeaseEnd)
			}
		},
		[]string{"list/it shows all as they are", "list/it selects by reading"},
	},
	{
		"List does not tell the time",
		func(m *model) {
			m.told = func(v verb, _ bool, now *semel.Time) {
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
			m.matches = func(id semel.ID, r semel.Record, q semel.Query) bool {
				if r.State == semel.Running {
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
			m.matches = func(id semel.ID, r semel.Record, q semel.Query) bool {
				q.Scope = nil
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by scope and operation", "list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the id's beginning",
		func(m *model) {
			m.matches = func(id semel.ID, r semel.Record, q semel.Query) bool {
				q.Prefix = ""
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the correlation",
		func(m *model) {
			m.matches = func(id semel.ID, r semel.Record, q semel.Query) bool {
				q.Correlation = ""
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the operation",
		func(m *model) {
			m.matches = func(id semel.ID, r semel.Record, q semel.Query) bool {
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
			m.reads = func(r semel.Record) semel.Reading {
				if r.State == semel.Unknown {
					return semel.ReadsUnknown
				}
				return semel.ReadsAbsent
			}
		},
		[]string{"count/it tells what reads unknown"},
	},
	{
		"Count takes all that lapsed for unknown",
		func(m *model) { m.reads = func(r semel.Record) semel.Reading { return r.Reads(semel.Hold) } },
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
		func(m *model) { m.open = func(m *model) semel.Store { return newModel() } },
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
		func(m *model) { m.open = func(m *model) semel.Store { return tardy{m} } },
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
			m.bendAnswers(func(a *semel.Response) *semel.Response {
				a.Body = a.Body[:min(len(a.Body), 1<<16)]
				return a
			})
		},
		[]string{"payload/bodies are exact"},
	},
	{
		"bodies end at a NUL",
		func(m *model) {
			m.bendAnswers(func(a *semel.Response) *semel.Response {
				a.Body, _, _ = bytes.Cut(a.Body, []byte{0})
				return a
			})
		},
		[]string{"payload/bodies are exact"},
	},
	{
		"an empty answer is none",
		func(m *model) {
			m.bendAnswers(func(a *semel.Response) *semel.Response {
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
			m.bendSettled(func(_ semel.Record, rec *semel.Record, _ semel.Owner, _ semel.Outcome) {
				if rec.State == semel.Done && rec.Response == nil {
					rec.Response = &semel.Response{}
				}
			})
		},
		[]string{"payload/no answer is not an empty one", "settle/done without an answer is done", "claim/a done key answers"},
	},
	{
		"a status of 0 is 200",
		func(m *model) {
			m.bendAnswers(func(a *semel.Response) *semel.Response {
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
			m.bendAnswers(func(a *semel.Response) *semel.Response {
				a.Codec = ""
				return a
			})
		},
		[]string{"payload/status and codec are exact"},
	},
	{
		"header values are joined",
		func(m *model) {
			m.bendAnswers(func(a *semel.Response) *semel.Response {
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
			m.bendAnswers(func(a *semel.Response) *semel.Response {
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
			m.bendAnswers(func(a *semel.Response) *semel.Response {
				a.Trailer = nil
				return a
			})
		},
		[]string{"payload/trailers are exact", "settle/done keeps the answer"},
	},
	{
		"texts are made valid UTF-8",
		func(m *model) {
			m.stored = func(r semel.Record) semel.Record {
				r.Correlation = strings.ToValidUTF8(r.Correlation, "\ufffd")
				return r
			}
		},
		[]string{"payload/texts are inert"},
	},
	{
		"texts end at a NUL",
		func(m *model) {
			m.stored = func(r semel.Record) semel.Record {
				r.Error, _, _ = strings.Cut(r.Error, "\x00")
				return r
			}
		},
		[]string{"payload/texts are inert"},
	},
	{
		"the sealed request goes with the first run",
		func(m *model) {
			m.bendClaimed(func(old semel.Record, rec *semel.Record, c semel.Claim) {
				if old.State != semel.Absent {
					rec.Sealed = c.Sealed
				}
			})
		},
		[]string{"payload/a sealed request is exact, and stays until the operation is done", "claim/a free key runs again"},
	},
	{
		"a done record keeps its sealed request",
		func(m *model) {
			m.bendSettled(func(old semel.Record, rec *semel.Record, _ semel.Owner, _ semel.Outcome) { rec.Sealed = old.Sealed })
		},
		[]string{
			"payload/a sealed request is exact, and stays until the operation is done",
			"list/it selects by sealed request",
		},
	},
	{
		"a begun record that is released keeps its sealed request",
		func(m *model) {
			m.bendSettled(func(old semel.Record, rec *semel.Record, _ semel.Owner, o semel.Outcome) {
				if o.State != semel.Done {
					rec.Sealed = old.Sealed
				}
			})
		},
		[]string{"payload/a sealed request is exact, and stays until the operation is done"},
	},
	{
		"the sealed request is dropped by a settle",
		func(m *model) {
			m.bendSettled(func(_ semel.Record, rec *semel.Record, _ semel.Owner, _ semel.Outcome) { rec.Sealed = nil })
		},
		[]string{"payload/a sealed request is exact, and stays until the operation is done"},
	},
	{
		"ids are cut to 47 bytes",
		func(m *model) {
			m.filed = func(id semel.ID) semel.ID {
				id[47] = 0
				return id
			}
		},
		[]string{"payload/every id is its own"},
	},
	{
		"ids are compared without case",
		func(m *model) {
			m.filed = func(id semel.ID) semel.ID { return semel.ID(bytes.Map(lower, id[:])) }
		},
		[]string{"payload/every id is its own"},
	},

	// Clocks and restarts.
	{
		"a refused claim does not tell the time",
		func(m *model) {
			m.told = func(v verb, owned bool, now *semel.Time) {
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
			m.told = func(v verb, _ bool, now *semel.Time) {
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
			m.open = func(m *model) semel.Store {
				behind += time.Hour
				return skewed{m, behind}
			}
		},
		[]string{"clock/it is the same on every handle, and moves"},
	},
	{
		"a restart loses what runs",
		func(m *model) { m.lost = func(r semel.Record) bool { return r.State == semel.Running } },
		[]string{"restart/what was acknowledged is there after a restart"},
	},
	{
		"a restart loses one done record",
		func(m *model) { m.lost = func(r semel.Record) bool { return r.State == semel.Done } },
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

func (s creator) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	rec, err := s.model.Load(ctx, id)
	if err == nil && rec.State == semel.Absent {
		rec.State = semel.Free
	}
	return rec, err
}

// A cached handle believes what it saw last.
type cached struct {
	*model
	seen map[semel.ID]semel.Record
}

func (s *cached) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	s.mu.Lock()
	rec, ok := s.seen[id]
	now := s.clock
	s.mu.Unlock()
	if ok {
		rec.Now = now
		return rec, nil
	}
	rec, err := s.model.Load(ctx, id)
	if err == nil && rec.State != semel.Absent {
		s.mu.Lock()
		s.seen[id] = rec
		s.mu.Unlock()
	}
	return rec, err
}

// A tardy handle looks at the context of a claim when the work is done.
type tardy struct{ *model }

func (s tardy) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	rec, owned, err := s.model.Claim(context.WithoutCancel(ctx), id, c)
	if ctx.Err() != nil {
		return semel.Record{}, false, ctx.Err()
	}
	return rec, owned, err
}

// A skewed handle tells, and claims at, a time of its own.
type skewed struct {
	*model
	ahead time.Duration
}

func (s skewed) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	rec, err := s.model.Load(ctx, id)
	rec.Now = rec.Now.Add(s.ahead)
	return rec, err
}

func (s skewed) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	return s.do(ctx, claiming, id, func(r semel.Record, now semel.Time) (semel.Record, bool) {
		return s.claim(r, now.Add(s.ahead), c)
	})
}
