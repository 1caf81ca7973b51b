package storetest

import (
	"time"

	"github.com/semelhq/semel/driver"
)

var clockChecks = []check{
	{
		name:    "each record tells the time",
		promise: "Every record that a verb returns has Now set to the store's clock: owned or not, absent or not.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			last := e.now()
			if last == 0 {
				e.Fatalf("Load of an absent record: Now is not set")
			}
			tells := func(verb string, rec driver.Record) {
				e.Helper()
				if rec.Now < last {
					e.Errorf("%s: Now is %s, after %s was told", verb, rec.Now.Time(), last.Time())
				}
				last = max(last, rec.Now)
			}
			rec := e.a.begin(id, c)
			tells("Claim, owned", rec)
			tells("Claim, refused", e.b.refuse("running", id, retry(c)))
			tells("Load", e.a.load(id))
			got, _ := e.b.settle(id, driver.Owner{}, done(nil))
			tells("Settle, refused", got)
			got, _ = e.a.settle(newID(), driver.Owner{}, done(nil))
			tells("Settle, absent", got)
			tells("Settle, owned", e.b.end(id, rec.Owner(), done(nil)))
			tells("Settle, repeated", e.a.end(id, rec.Owner(), done(nil)))
		},
	},
	{
		name:    "seizing tells the time",
		promise: "Seize returns Now set to the store's clock, whether or not it changed anything.",
		needs:   seizer,
		run: func(e *env) {
			id := newID()
			e.a.begin(id, ask(driver.Hold))
			before := e.now()
			for what, id := range map[string]driver.ID{"running": id, "absent": newID()} {
				if got := e.b.seize(id, driver.NewToken()); got.Now < before {
					e.Errorf("Seize, %s: Now is %s, after %s was told", what, got.Now.Time(), before.Time())
				}
			}
		},
	},
	{
		name: "it is the same on every handle, and moves",
		promise: "All handles tell the time of one clock, the storage's, which moves on: a caller whose own clock is wrong ends " +
			"no lease early (R-50).",
		run: func(e *env) {
			first := e.now()
			last := first
			for i := range 6 {
				if i == 3 {
					e.pass(2 * time.Millisecond)
				}
				now := e.both(i).load(e.idle).Now
				if now < last {
					e.Errorf("one handle tells %s after the other told %s", now.Time(), last.Time())
				}
				last = now
			}
			if last.Sub(first) < 2*time.Millisecond {
				e.Errorf("the clock moved %s, want 2ms or more", last.Sub(first))
			}
			id, c := newID(), ask(driver.Rerun)
			c.Lease = time.Minute
			e.a.begin(id, c)
			if rec, owned := e.b.claim(id, retry(c)); owned {
				e.Errorf("taken over %s after a claim with a lease of a minute", rec.Started.Sub(last))
			}
		},
	},
}
