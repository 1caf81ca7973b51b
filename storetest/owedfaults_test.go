package storetest

import (
	"github.com/semelhq/semel/driver"
)

var owedFaults = []fault{
	{
		"a taken over run owes nothing",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				if old.State == driver.Running && old.Token != rec.Token {
					rec.Owed = old.Owed
				}
			})
		},
		[]string{"lease/a taken over run leaves its end owed"},
	},
	{
		"a taken over run is owed though its request is not stored",
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) {
				rec.Owed = rec.Owed || old.State == driver.Running && old.Token != rec.Token
			})
		},
		[]string{"lease/a taken over run leaves its end owed"},
	},
	{
		"a seized run owes nothing",
		func(m *model) {
			m.bendSeize(func(*driver.Record, *driver.Token) {}, func(old driver.Record, rec *driver.Record) { rec.Owed = old.Owed })
		},
		[]string{"seize/it takes a record from its owner"},
	},
	{
		"an outcome's own retention is not heeded",
		func(m *model) {
			m.bendSettle(func(_ *driver.Record, _ driver.Time, _ *driver.Owner, o *driver.Outcome) { o.Retention = 0 })
		},
		[]string{"settle/done may be kept for another time than its claim said"},
	},
	{
		"an outcome's own retention goes to what is free, too",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, o driver.Outcome) {
				if o.Retention > 0 {
					rec.Retention = o.Retention
				}
			})
		},
		[]string{"settle/done may be kept for another time than its claim said"},
	},
	{
		"what is owed is forgotten by the next run",
		func(m *model) {
			m.bendClaimed(func(_ driver.Record, rec *driver.Record, _ driver.Claim) { rec.Owed = false })
		},
		[]string{"settle/owed stays until the end"},
	},
	{
		"a release notes nothing that is owed",
		func(m *model) {
			m.bendSettle(func(_ *driver.Record, _ driver.Time, _ *driver.Owner, o *driver.Outcome) { o.Owed = false })
		},
		[]string{
			"settle/owed stays until the end",
			"seize/what is owed outlasts a decision to free",
			"sweep/one that is owed is deleted seven retentions later",
		},
	},
	{
		"a release that owes nothing clears what was owed",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, o driver.Outcome) {
				if rec.State == driver.Free {
					rec.Owed = o.Owed
				}
			})
		},
		[]string{"settle/owed stays until the end", "seize/what is owed outlasts a decision to free"},
	},
	{
		"unknown clears what was owed",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) {
				rec.Owed = rec.Owed && rec.State != driver.Unknown
			})
		},
		[]string{"settle/owed stays until the end"},
	},
	{
		"done is still owed",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, _ driver.Owner, o driver.Outcome) {
				if o.State == driver.Done {
					rec.Owed = old.Owed
				}
			})
		},
		[]string{"settle/owed stays until the end", "seize/what is owed outlasts a decision to free"},
	},
	{
		"an unknown outcome owes nothing",
		func(m *model) {
			m.bendSettle(func(_ *driver.Record, _ driver.Time, _ *driver.Owner, o *driver.Outcome) {
				o.Owed = o.Owed && o.State != driver.Unknown
			})
		},
		[]string{"settle/what is done is not owed"},
	},
	{
		"any outcome is owed",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, _ driver.Owner, o driver.Outcome) {
				rec.Owed = rec.Owed || o.Owed
			})
		},
		[]string{"settle/what is done is not owed", "release/it owes nothing"},
	},
	{
		"a begun run that is released is still owed",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) {
				if old.Begun {
					rec.Owed = old.Owed
				}
			})
		},
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
		func(m *model) {
			m.bendClaimed(func(old driver.Record, rec *driver.Record, _ driver.Claim) { rec.Owed = old.Owed })
		},
		[]string{"settle/a new operation is not owed"},
	},
	{
		"release-by-token owes",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, by driver.Owner, o driver.Outcome) {
				rec.Owed = rec.Owed || by.Above && o.Owed && rec.State == driver.Free
			})
		},
		[]string{"release/it owes nothing"},
	},
	{
		"release-by-token clears what was owed",
		func(m *model) {
			m.bendSettled(func(_ driver.Record, rec *driver.Record, by driver.Owner, _ driver.Outcome) {
				rec.Owed = rec.Owed && !by.Above
			})
		},
		[]string{"release/it owes nothing"},
	},
	{
		"Seize clears what was owed",
		func(m *model) {
			m.bendSeize(
				func(*driver.Record, *driver.Token) {},
				func(_ driver.Record, rec *driver.Record) { rec.Owed = false },
			)
		},
		[]string{"seize/what is owed outlasts a decision to free"},
	},
	{
		"a seizing owner's release owes nothing",
		func(m *model) {
			m.bendSettled(func(old driver.Record, rec *driver.Record, _ driver.Owner, _ driver.Outcome) {
				rec.Owed = rec.Owed && !old.Seized
			})
		},
		[]string{"seize/what is owed outlasts a decision to free"},
	},
	{
		"Sweep does not mind what is owed",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				r.Owed = false
				return r.Expires()
			}
		},
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
		func(m *model) {
			m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
				q.Sealed = false
				return matches(id, r, q)
			}
		},
		[]string{"list/it selects by sealed request"},
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
