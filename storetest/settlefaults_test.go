package storetest

import (
	"github.com/semelhq/semel/driver"
)

var settleFaults = []fault{
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
		before(extending, when(
			func(x *call) bool { return x.rec.State != driver.Absent },
			func(x *call) { x.rec.State = driver.Running },
		)),
		[]string{"extend/it acts on a running record only", "seize/a seized record is closed to others", "concurrency/a late heartbeat reopens nothing"},
	},
	{
		"Extend creates a record",
		before(extending, was(driver.Absent, func(x *call) { *x.rec = driver.Record{State: driver.Running, Fence: x.by.Fence, Token: x.by.Token} })),
		[]string{"extend/it creates nothing"},
	},
	{
		"Extend ignores the fence",
		before(extending, func(x *call) { x.by.Fence = x.rec.Fence }),
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend ignores the token",
		before(extending, func(x *call) { x.by.Token = x.rec.Token }),
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend compares half of the token",
		before(extending, func(x *call) { copy(x.by.Token[8:], x.rec.Token[8:]) }),
		[]string{"extend/it is the owner's"},
	},
	{
		"Extend takes any fence above one",
		before(extending, when(
			func(x *call) bool { return x.by.Above && x.rec.Fence > x.by.Fence },
			func(x *call) { x.by.Fence, x.by.Above = x.rec.Fence, false },
		)),
		[]string{"extend/it is the owner's"},
	},
	{
		"a heartbeat clears begun",
		before(extending, func(x *call) { x.rec.Begun = x.extension.Begun }),
		[]string{"extend/begun is only ever set"},
	},

	// Settle.
	{
		"done keeps maybe",
		after(settling, when(
			func(x *call) bool { return x.outcome.State == driver.Done },
			func(x *call) { x.rec.Maybe = x.old.Maybe },
		)),
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
		after(settling, becomes(driver.Free, func(x *call) { *x.rec = driver.Record{} })),
		[]string{"settle/free keeps the operation", "claim/a free key runs again", "release/it can be repeated"},
	},
	{
		"the reason of a release is lost",
		after(settling, when(
			func(x *call) bool { return x.outcome.State == driver.Free },
			func(x *call) { x.rec.Error = "" },
		)),
		[]string{"settle/free keeps the operation"},
	},
	{
		"who wrote unknown may decide",
		before(settling, when(
			func(x *call) bool {
				return x.rec.State == driver.Unknown && x.rec.Wrote == driver.Unknown && x.outcome.State != driver.Unknown
			},
			func(x *call) { x.rec.State = driver.Running },
		)),
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
		before(settling, when(
			func(x *call) bool {
				return x.rec.State == x.rec.Wrote && x.rec.Wrote == x.outcome.State && x.rec.State != driver.Absent
			},
			func(x *call) { x.rec.State = driver.Running },
		)),
		[]string{"settle/a repeated settle succeeds and changes nothing"},
	},
	{
		"an owner may think again",
		before(settling, when(
			func(x *call) bool { return (x.rec.State == driver.Done || x.rec.State == driver.Free) && !x.by.Above },
			func(x *call) { x.rec.State = driver.Running },
		)),
		[]string{"settle/an outcome is final"},
	},
	{
		"Settle ignores the fence",
		before(settling, when(func(x *call) bool { return !x.by.Above }, func(x *call) { x.by.Fence = x.rec.Fence })),
		[]string{"settle/it is the owner's"},
	},
	{
		"Settle ignores the token",
		before(settling, when(func(x *call) bool { return !x.by.Above }, func(x *call) { x.by.Token = x.rec.Token })),
		[]string{"settle/it is the owner's"},
	},
	{
		"Settle ignores who asks",
		before(settling, when(func(x *call) bool { return !x.by.Above }, func(x *call) { *x.by = x.rec.Owner() })),
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
		before(settling, when(
			func(x *call) bool { return x.rec.State == driver.Absent && !x.by.Above },
			func(x *call) { *x.rec = driver.Record{State: driver.Running, Fence: x.by.Fence, Token: x.by.Token} },
		)),
		[]string{"settle/it creates nothing"},
	},
	{
		"begun is ignored by settles",
		before(settling, func(x *call) { x.rec.Begun = false }),
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
		after(settling, when(func(x *call) bool { return x.by.Above }, func(x *call) { x.rec.Attempt = x.old.Attempt })),
		[]string{"release/a run that never started is freed by its token", "release/a lapsed run is freed too"},
	},
	{
		"release-by-token counts down each time",
		after(settling, when(
			func(x *call) bool { return x.by.Above && x.old.State == driver.Free },
			func(x *call) { x.rec.Attempt-- },
		)),
		[]string{"release/it can be repeated"},
	},
	{
		"release-by-token marks maybe",
		after(settling, func(x *call) { x.rec.Maybe = x.rec.Maybe || x.by.Above && x.rec.State == driver.Free }),
		[]string{"release/a run that never started is freed by its token"},
	},
	{
		"release-by-token clears maybe",
		after(settling, func(x *call) { x.rec.Maybe = x.rec.Maybe && !x.by.Above }),
		[]string{"release/an earlier run's mark stays"},
	},
	{
		"release-by-token frees at the fence, too",
		before(settling, when(
			func(x *call) bool { return x.by.Above && x.by.Fence > 0 },
			func(x *call) { x.by.Fence-- },
		)),
		[]string{"release/a started run is safe from it"},
	},
	{
		"release-by-token takes any token",
		before(settling, when(func(x *call) bool { return x.by.Above }, func(x *call) { x.by.Token = x.rec.Token })),
		[]string{
			"release/it needs the token",
			"fence/a late owner changes nothing after a takeover",
			"fence/a late owner changes nothing after a release",
		},
	},
	{
		"release-by-token frees what is done",
		before(settling, when(
			func(x *call) bool { return x.by.Above && x.rec.State == driver.Done },
			func(x *call) { x.rec.State = driver.Running },
		)),
		[]string{"release/what has another outcome stays"},
	},
	{
		"an owner by token may settle",
		before(settling, when(
			func(x *call) bool { return x.by.Above && x.outcome.State != driver.Free && x.rec.Fence > x.by.Fence },
			func(x *call) { x.by.Fence, x.by.Above = x.rec.Fence, false },
		)),
		[]string{"release/it only frees"},
	},

	// Fences and retention.
	{
		"a takeover keeps the fence",
		after(claiming, was(driver.Running, func(x *call) { x.rec.Fence = x.old.Fence })),
		[]string{"fence/it grows with each run", "lease/over under Rerun it is taken over"},
	},
	{
		"a new operation starts the fence again",
		after(claiming, was(driver.Done, func(x *call) { x.rec.Fence = 1 })),
		[]string{"fence/it grows with each run", "retention/after it the key is new"},
	},
	{
		"retention counts from the claim",
		after(settling, func(x *call) { x.rec.Settled = x.rec.Started }),
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
		after(claiming, when(
			func(x *call) bool { return x.old.State == driver.Done || x.old.Begun },
			func(x *call) { x.rec.Error, x.rec.Response, x.rec.Begun = x.old.Error, x.old.Response, x.old.Begun },
		)),
		[]string{"retention/after it the key is new", "retention/a begun run is kept from its lease's end"},
	},
	{
		"forever overflows",
		before(claiming, when(
			func(x *call) bool {
				return x.rec.State == driver.Done && int64(x.rec.Settled)*1000+int64(x.rec.Retention) < 0
			},
			func(x *call) { x.rec.Settled, x.rec.Retention = 1, 1 },
		)),
		[]string{"retention/forever is long"},
	},
}
