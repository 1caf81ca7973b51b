package engine

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// A Refusal says why an operation was not run.
type Refusal struct {
	Code       refusal.Code
	Detail     string        // fit to be shown to the client; "" for the detail of the code
	RetryAfter time.Duration // 0 for the time of the code
	Cause      error         // for logs
	Shut       bool          // FailOpen does not apply: the store works, or no client is there to be served
	Stored     bool          // the run in progress has a stored request
}

func (r *Refusal) Error() string {
	s := string(r.Code)
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	if r.Cause != nil {
		s += ": " + r.Cause.Error()
	}
	return s
}

// Unwrap returns the code and the cause of the refusal.
func (r *Refusal) Unwrap() []error {
	if r.Cause == nil {
		return []error{r.Code}
	}
	return []error{r.Code, r.Cause}
}

// unavailable refuses a request that could not be claimed.
func unavailable(ctx context.Context, err error) *Refusal {
	return &Refusal{
		Code: refusal.StoreUnavailable, Cause: err,
		Shut: ctx.Err() != nil || errors.Is(err, driver.ErrShareFull) || errors.Is(err, driver.ErrElsewhere),
	}
}

// InProgress refuses a repeat while another run goes on. Retry-After is the age of that run, but not more than
// the rest of its lease.
func InProgress(rec *driver.Record) *Refusal {
	return &Refusal{Code: refusal.InProgress, RetryAfter: RetryAfter(rec), Stored: len(rec.Sealed) > 0}
}

// RetryAfter returns after what time to ask again about a run in progress, in whole seconds.
func RetryAfter(rec *driver.Record) time.Duration {
	left := min(rec.LeaseEnd.Sub(rec.Now), 30*time.Second)
	age := max(rec.Now.Sub(rec.Started), time.Second)
	return WholeSeconds(min(age, max(time.Second, left)))
}

// WholeSeconds returns d in whole seconds, rounded up.
func WholeSeconds(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Second); whole < d {
		return whole + time.Second
	}
	return d
}
