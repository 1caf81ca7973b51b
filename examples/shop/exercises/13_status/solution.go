package status

import "time"

// A run whose process has gone is not a failure: it may have died after the effect.
func solved(r Record, now time.Time) string {
	switch {
	case r.Done && r.Status < 400:
		return "succeeded"
	case r.Done:
		return "failed"
	case r.Lease.After(now):
		return "running"
	}
	return "unknown"
}
