// Package status is exercise 13: telling what became of an operation.
package status

import "time"

// A Record is what is stored of an operation that runs at most once.
type Record struct {
	Done   bool
	Status int       // of the answer, if it is done
	Lease  time.Time // until when whoever runs it has it; a process that lives renews that
}

// State tells a client what became of its operation: running, succeeded, failed (it had no effect, or a definite
// refusal) or unknown (it may have taken effect). A client that is told "failed" makes another order.
//
// Change this function.
func State(r Record, now time.Time) string {
	switch {
	case r.Done && r.Status < 300:
		return "succeeded"
	case r.Lease.After(now) && !r.Done:
		return "running"
	}
	return "failed"
}
