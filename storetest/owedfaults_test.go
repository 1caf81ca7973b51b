package storetest

import (
	"github.com/semelhq/semel/driver"
)

var owedFaults = []fault{
	{
		"a taken over run owes nothing",
		after(claiming, when(
			func(x *call) bool { return x.old.State == driver.Running && x.old.Token != x.rec.Token },
			func(x *call) { x.rec.Owed = x.old.Owed },
		)),
		[]string{"lease/a taken over run leaves its end owed"},
	},
	{
		"a taken over run is owed though its request is not stored",
		after(claiming, func(x *call) { x.rec.Owed = x.rec.Owed || x.old.State == driver.Running && x.old.Token != x.rec.Token }),
		[]string{"lease/a taken over run leaves its end owed"},
	},
	{
		"a seized run owes nothing",
		after(seizing, func(x *call) { x.rec.Owed = x.old.Owed }),
		[]string{"seize/it takes a record from its owner"},
	},
	{
		"an outcome's own retention is not heeded",
		before(settling, func(x *call) { x.outcome.Retention = 0 }),
		[]string{"settle/done may be kept for another time than its claim said"},
	},
	{
		"an outcome's own retention goes to what is free, too",
		after(settling, when(
			func(x *call) bool { return x.outcome.Retention > 0 },
			func(x *call) { x.rec.Retention = x.outcome.Retention },
		)),
		[]string{"settle/done may be kept for another time than its claim said"},
	},
	{
		"what is owed is forgotten by the next run",
		after(claiming, func(x *call) { x.rec.Owed = false }),
		[]string{"settle/owed stays until the end"},
	},
	{
		"a release notes nothing that is owed",
		before(settling, func(x *call) { x.outcome.Owed = false }),
		[]string{
			"settle/owed stays until the end",
			"seize/what is owed outlasts a decision to free",
			"sweep/one that is owed is deleted seven retentions later",
		},
	},
	{
		"a release that owes nothing clears what was owed",
		after(settling, becomes(driver.Free, func(x *call) { x.rec.Owed = x.outcome.Owed })),
		[]string{"settle/owed stays until the end", "seize/what is owed outlasts a decision to free"},
	},
	{
		"unknown clears what was owed",
		after(settling, func(x *call) { x.rec.Owed = x.rec.Owed && x.rec.State != driver.Unknown }),
		[]string{"settle/owed stays until the end"},
	},
	{
		"done is still owed",
		after(settling, when(
			func(x *call) bool { return x.outcome.State == driver.Done },
			func(x *call) { x.rec.Owed = x.old.Owed },
		)),
		[]string{"settle/owed stays until the end", "seize/what is owed outlasts a decision to free"},
	},
	{
		"an unknown outcome owes nothing",
		before(settling, func(x *call) { x.outcome.Owed = x.outcome.Owed && x.outcome.State != driver.Unknown }),
		[]string{"settle/what is done is not owed"},
	},
	{
		"any outcome is owed",
		after(settling, func(x *call) { x.rec.Owed = x.rec.Owed || x.outcome.Owed }),
		[]string{"settle/what is done is not owed", "release/it owes nothing"},
	},
	{
		"a begun run that is released is still owed",
		after(settling, when(func(x *call) bool { return x.old.Begun }, func(x *call) { x.rec.Owed = x.old.Owed })),
		[]string{"settle/what is done is not owed"},
	},
	{
		"a repeated release may still be owed",
		func(m *model) {
			m.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				rec, owned := r.Settle(now, by, o)
				if owned && r.State == driver.Free {
					rec.Owed = r.Owed || o.Owed
				}
				return rec, owned
			}
		},
		[]string{"settle/a repeated settle succeeds and changes nothing"},
	},
	{
		"a new operation is owed",
		after(claiming, func(x *call) { x.rec.Owed = x.old.Owed }),
		[]string{"settle/a new operation is not owed"},
	},
	{
		"release-by-token owes",
		after(settling, func(x *call) { x.rec.Owed = x.rec.Owed || x.by.Above && x.outcome.Owed && x.rec.State == driver.Free }),
		[]string{"release/it owes nothing"},
	},
	{
		"release-by-token clears what was owed",
		after(settling, func(x *call) { x.rec.Owed = x.rec.Owed && !x.by.Above }),
		[]string{"release/it owes nothing"},
	},
	{
		"Seize clears what was owed",
		after(seizing, func(x *call) { x.rec.Owed = false }),
		[]string{"seize/what is owed outlasts a decision to free"},
	},
	{
		"a seizing owner's release owes nothing",
		after(settling, func(x *call) { x.rec.Owed = x.rec.Owed && !x.old.Seized }),
		[]string{"seize/what is owed outlasts a decision to free"},
	},
	{
		"Sweep does not mind what is owed",
		before(sweeping, func(x *call) { x.rec.Owed = false }),
		[]string{
			"sweep/one that is owed is deleted seven retentions later",
			"steps/a free record that is owed is kept seven retentions, with steps too",
		},
	},
	{
		"Owed is not stored",
		func(m *model) {
			m.stored = func(r driver.Record) driver.Record {
				r.Owed = false
				return r
			}
		},
		[]string{"settle/owed stays until the end", "sweep/one that is owed is deleted seven retentions later"},
	},
	{
		"List ignores Sealed",
		selecting(func(q *driver.Query) { q.Sealed = false }),
		[]string{"list/it selects by sealed request"},
	},
	{
		"a look for what a scan has found ignores the reading",
		selecting(func(q *driver.Query) {
			if q.Scanned {
				q.Reading = 0
			}
		}),
		[]string{"list/it finds what waits"},
	},
	{
		"List of sealed records ignores the other conditions",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				if q.Sealed {
					q = driver.Query{Sealed: true}
				}
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by sealed request"},
	},
	{
		"List of sealed records leaves out what is unknown",
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				return matches(id, r, q) && !(q.Sealed && r.State == driver.Unknown)
			}
		},
		[]string{"list/it selects by sealed request"},
	},
}
