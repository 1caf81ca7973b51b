package engine

import (
	"context"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
)

// An Ask is one request for an operation.
type Ask struct {
	ID          driver.ID
	Fingerprint driver.Fingerprint
	Operation   string
	Correlation string
	Wait        time.Duration // how long to wait for another run
	Sealed      []byte        // the request, for a completer; nil if it is not stored
	Credentials string        // digest of the request's credentials: an attempt is counted with it
	Room        *Run          // unused memory for a run, which is never used again; nil for none
}

// About returns an event about the operation that a asks for.
func (a *Ask) About(kind event.Kind, err error) event.Event {
	return event.Event{Kind: kind, ID: a.ID, Operation: a.Operation, Correlation: a.Correlation, Err: err}
}

// Tell tells the observer about an operation that is asked for. rec is the operation's record.
func (e *Engine) Tell(ctx context.Context, a *Ask, rec *driver.Record, kind event.Kind, err error) {
	told := a.About(kind, err)
	told.Attempt, told.Fence = rec.Attempt, rec.Fence
	e.observer.Observe(context.WithoutCancel(ctx), told)
}

// Tell tells the observer about the run.
func (r *Run) Tell(kind event.Kind, err error) { r.observer.Observe(r.base, r.About(kind, err)) }

// About returns an event about the run.
func (r *Run) About(kind event.Kind, err error) event.Event {
	told := r.ask.About(kind, err)
	told.Attempt, told.Fence = uint32(r.attempt), r.owner.Fence
	return told
}
