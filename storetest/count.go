package storetest

import (
	"github.com/semelhq/semel/driver"
)

var countChecks = []check{
	{
		name: "it tells what reads unknown",
		promise: "Count tells how many records are stored as running, and how many read unknown to their own policy: also those " +
			"that lapsed under Hold, which nobody has asked for since (R-86).",
		needs: counter,
		run: func(e *env) {
			count := func(when string, running, unknown int64) {
				e.Helper()
				n, err := e.b.Store.(driver.Counter).Count(e.ctx)
				if err != nil {
					e.Fatalf("Count: %v", err)
				}
				if n.Running != running || n.Unknown != unknown {
					e.Errorf("%s: %d running and %d unknown, want %d and %d", when, n.Running, n.Unknown, running, unknown)
				}
				if oldest := n.OldestRunning; (oldest > 0) != (running > 0) {
					e.Errorf("%s: the run that started first is %v old, with %d running", when, oldest, running)
				}
			}
			count("an empty storage", 0, 0)
			var running, unknown int64
			for _, s := range e.situations() {
				if s.rec.State == driver.Running {
					running++
				}
				if s.rec.Reads(s.rec.OnLost) == driver.ReadsUnknown {
					unknown++
				}
			}
			count("all kinds of records", running, unknown)
		},
	},
}
