package storetest

import (
	"math"

	"github.com/semelhq/semel/driver"
)

var operatorFaults = []fault{
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
		before(sweeping, was(driver.Running, func(x *call) { x.rec.OnLost = driver.Rerun })),
		[]string{"sweep/it spares what is in use or undecided"},
	},
	{
		"Sweep deletes unknown records",
		before(sweeping, was(driver.Unknown, func(x *call) { x.rec.State = driver.Done })),
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
		before(sweeping, func(x *call) { x.rec.Sealed = nil }),
		[]string{"sweep/one with a sealed request is deleted seven retentions later"},
	},
	{
		"a free record is kept for its retention",
		before(sweeping, was(driver.Free, func(x *call) { x.rec.State = driver.Done })),
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
		before(claiming, func(x *call) { x.rec.Tombstone = 0 }),
		[]string{"tombstone/it outlives the answer", "tombstone/a begun run has one too"},
	},
	{
		"tombstones never end",
		before(claiming, when(
			func(x *call) bool { return x.rec.Tombstone > 0 },
			func(x *call) { x.rec.Tombstone = driver.Forever },
		)),
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
		after(seizing, func(x *call) { x.rec.Token = x.old.Token }),
		[]string{"seize/it takes a record from its owner"},
	},
	{
		"Seize keeps the fence",
		after(seizing, func(x *call) { x.rec.Fence = x.old.Fence }),
		[]string{"seize/it takes a record from its owner", "seize/the last who seized it decides", "seize/seizing at once leaves one in charge"},
	},
	{
		"Seize takes what is done",
		both(
			before(seizing, func(x *call) {
				if x.rec.State == driver.Done {
					x.rec.State = driver.Running
					x.rec.LeaseEnd = math.MaxInt64
				}
			}),
			after(seizing, func(x *call) { x.rec.LeaseEnd = x.old.LeaseEnd }),
		),
		[]string{"seize/it leaves alone what needs no decision"},
	},
	{
		"Seize takes what is free for sure",
		both(
			before(seizing, func(x *call) { x.rec.Maybe = x.rec.Maybe || x.rec.State == driver.Free }),
			after(seizing, func(x *call) { x.rec.Maybe = x.old.Maybe }),
		),
		[]string{"seize/it leaves alone what needs no decision"},
	},
	{
		"Seize repeated is another one",
		before(seizing, func(x *call) {
			if x.rec.Token == *x.token {
				x.rec.Token = driver.Token{}
			}
		}),
		[]string{"seize/it can be repeated"},
	},
	{
		"a seizing owner's release keeps maybe",
		after(settling, when(
			func(x *call) bool { return x.old.Seized && x.rec.State == driver.Free },
			func(x *call) { x.rec.Maybe = x.old.Maybe },
		)),
		[]string{"seize/who seized it decides"},
	},
	{
		"the seizing token may claim",
		before(claiming, when(
			func(x *call) bool {
				return x.rec.State == driver.Unknown && x.rec.Seized && x.rec.Token == x.claim.Token
			},
			func(x *call) { x.rec.State = driver.Running },
		)),
		[]string{"seize/a seized record is closed to others"},
	},
	{
		"the seizing token may release",
		before(settling, when(
			func(x *call) bool {
				return x.rec.State == driver.Unknown && x.rec.Seized && x.by.Above && x.by.Fence < x.rec.Fence
			},
			func(x *call) { x.by.Fence, x.by.Above = x.rec.Fence, false },
		)),
		[]string{"seize/a seized record is closed to others"},
	},
	{
		"a seized record counts as settled by its owner",
		before(settling, was(driver.Unknown, func(x *call) { x.rec.Seized = false })),
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
		before(forgetting, func(x *call) { x.by.Fence = x.rec.Fence }),
		[]string{"forget/it needs fence and token"},
	},
	{
		"Forget ignores the token",
		before(forgetting, func(x *call) { x.by.Token = x.rec.Token }),
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
		selecting(func(q *driver.Query) { q.Scope = nil }),
		[]string{"list/it selects by scope and operation", "list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the id's beginning",
		selecting(func(q *driver.Query) { q.Prefix = "" }),
		[]string{"list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the correlation",
		selecting(func(q *driver.Query) { q.Correlation = "" }),
		[]string{"list/it selects by the id's beginning and by correlation"},
	},
	{
		"List ignores the operation",
		selecting(func(q *driver.Query) { q.Operation = "" }),
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
}
