package storetest

import (
	"github.com/semelhq/semel/driver"
)

// bendAnother replaces the rule for another request that finds a free record.
func (m *model) bendAnother(rule func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool)) {
	m.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
		if r.State == driver.Free && !r.Fingerprint.Equal(c.Fingerprint) {
			return rule(r, now, c)
		}
		return r.Claim(now, c)
	}
}

// heedless lets another request have a free record that remembers what forget drops.
func heedless(forget func(*driver.Record)) func(m *model) {
	return func(m *model) {
		m.bendAnother(func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
			bent := r
			forget(&bent)
			if rec, owned := bent.Claim(now, c); owned {
				return rec, true
			}
			return r, false
		})
	}
}

var unusedFaults = []fault{
	{
		"a released key keeps its request",
		func(m *model) {
			m.bendAnother(func(r driver.Record, _ driver.Time, _ driver.Claim) (driver.Record, bool) { return r, false })
		},
		[]string{
			"fingerprint/a released key takes another request",
			"fingerprint/a late copy of the first request's claim is released",
			"fingerprint/a decision sets the key free for any request",
			"fingerprint/one of many other requests wins",
		},
	},
	{
		"another request is the next run of a released operation",
		func(m *model) {
			m.bendAnother(func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if !unused(r) {
					return r, false
				}
				r.Fingerprint = c.Fingerprint
				return r.Claim(now, c)
			})
		},
		[]string{
			"fingerprint/a released key takes another request",
			"fingerprint/a decision sets the key free for any request",
			"fingerprint/one of many other requests wins",
		},
	},
	{
		"another request starts a released key's fences again",
		func(m *model) {
			m.bendAnother(func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				rec, owned := r.Claim(now, c)
				if owned {
					rec.Fence = r.Fence
				}
				return rec, owned
			})
		},
		[]string{"fingerprint/a released key takes another request", "fingerprint/a late copy of the first request's claim is released"},
	},
	{
		"a spent token may come with another request",
		func(m *model) {
			m.bendAnother(func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.Token == c.Token {
					r.Token = driver.Token{}
				}
				return r.Claim(now, c)
			})
		},
		[]string{"fingerprint/another request is refused in every state"},
	},
	{
		"another request does not mind maybe",
		heedless(func(r *driver.Record) { r.Maybe = false }),
		[]string{"fingerprint/a key that may have been used keeps its request"},
	},
	{
		"another request does not mind what is owed",
		heedless(func(r *driver.Record) { r.Owed = false }),
		[]string{"fingerprint/a key that may have been used keeps its request", "fingerprint/a decision sets the key free for any request"},
	},
	{
		"another request does not mind steps",
		heedless(func(r *driver.Record) { r.Steps = false }),
		[]string{"fingerprint/a key with steps keeps its request"},
	},
	{
		"Claim of another request is read, then written",
		func(m *model) { m.torn = of(claiming) },
		[]string{"fingerprint/one of many other requests wins"},
	},
}
