package semel

import (
	"context"
	"sync"
	"time"
)

// A deadline is a context that ends at a given time, with its parent, or when it is cancelled. It is
// context.WithDeadlineCause and WithCancelCause in one, made only when somebody asks for Done: a store that answers at
// once, or a handler that does not wait, never pays for the timers. It behaves as they do, except that its parent is
// blamed if both its parent and its time have ended before anybody looked. What stands above mu does not change once it
// is in use.
type deadline struct {
	parent context.Context
	at     time.Time
	cause  error      // when the time has come; nil means none of its own
	op     *Operation // found by FromContext; nil for the contexts of store verbs

	mu     sync.Mutex
	real   context.Context // nil until needed
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
	ended  bool
}

func newDeadline(parent context.Context, after time.Duration) *deadline {
	return newDeadlineAt(parent, time.Now().Add(after))
}

func newDeadlineAt(parent context.Context, at time.Time) *deadline {
	return &deadline{parent: parent, at: at}
}

// made returns the real context.
func (d *deadline) made() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.real == nil {
		parent := d.parent
		if d.ended {
			parent = context.WithoutCancel(parent) // may have ended since, and must not be the reason
		}
		causal, cancel := context.WithCancelCause(parent)
		if d.ended {
			cancel(nil) // before the deadline is added, which may have passed since
		}
		d.cancel = cancel
		d.real, d.stop = context.WithDeadlineCause(causal, d.at, d.cause)
	}
	return d.real
}

// over reports whether the time has come or the parent has ended, so that the real context ends as soon as it is made.
func (d *deadline) over() bool { return d.parent.Err() != nil || time.Until(d.at) <= 0 }

// end cancels the context. A nil cause means that it is no longer needed.
func (d *deadline) end(cause error) {
	if cause != nil || d.over() {
		d.made() // keeps why it ended
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.real != nil {
		d.cancel(cause)
		d.stop()
	}
}

func (d *deadline) Deadline() (time.Time, bool) {
	if at, ok := d.parent.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

func (d *deadline) Done() <-chan struct{} { return d.made().Done() }

func (d *deadline) Err() error {
	d.mu.Lock()
	real, ended := d.real, d.ended
	d.mu.Unlock()
	switch {
	case real != nil:
		return real.Err()
	case ended:
		return context.Canceled
	case d.over():
		return d.made().Err()
	}
	return nil
}

func (d *deadline) Value(key any) any {
	if key == (operationKey{}) && d.op != nil {
		return d.op
	}
	d.mu.Lock()
	real, ended := d.real, d.ended
	d.mu.Unlock()
	switch {
	case real != nil:
	case ended || d.over():
		real = d.made()
	default:
		return d.parent.Value(key)
	}
	return real.Value(key) // context.Cause and child contexts find the real one here
}
