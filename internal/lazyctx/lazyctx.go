// Package lazyctx has contexts that are made when somebody waits for them.
package lazyctx

import (
	"context"
	"sync"
	"time"
)

// A Context ends at a given time, with its parent, or when it is ended. It is context.WithDeadlineCause and
// WithCancelCause in one, but is made only when somebody asks for Done. So a store that answers at once, or a handler
// that does not wait, never pays for the timers. It behaves as they do, with one exception: if both its parent and its
// time have ended before anybody looked, the parent is the cause. The fields above mu do not change once it is in use.
type Context struct {
	Parent context.Context
	At     time.Time
	Cause  error // the cause when the time has come; nil means the usual one
	Key    any   // Value returns Held for this key; nil for none
	Held   any

	timed  bool // only time ends it, as long as somebody needs it
	mu     sync.Mutex
	real   context.Context // nil until it is needed
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
	ended  bool
}

// Until returns a context that ends at a given time. It must be ended, once nobody needs it any more.
func Until(parent context.Context, at time.Time) *Context { return new(Context).Until(parent, at) }

// Until sets up c, the zero value, as a part of something larger. It returns c.
func (c *Context) Until(parent context.Context, at time.Time) *Context {
	c.Parent, c.At, c.timed = parent, at, parent.Done() == nil
	return c
}

// For returns a context that ends after a time. It must be ended, once nobody needs it any more.
func For(parent context.Context, d time.Duration) *Context { return Until(parent, time.Now().Add(d)) }

// made returns the real context.
func (c *Context) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		parent := c.Parent
		if c.ended {
			parent = context.WithoutCancel(parent) // parent may have ended since, and must not be the reason
		}
		causal, cancel := context.WithCancelCause(parent)
		if c.ended {
			cancel(nil) // before the deadline is added, because the deadline may have passed since
		}
		c.cancel = cancel
		c.real, c.stop = context.WithDeadlineCause(causal, c.At, c.Cause)
	}
	return c.real
}

// over reports whether the time has come or the parent has ended. Then the real context ends as soon as it is made.
func (c *Context) over() bool { return c.Parent.Err() != nil || time.Until(c.At) <= 0 }

// End cancels the context. A nil cause means that it is no longer needed.
func (c *Context) End(cause error) {
	if cause != nil || c.over() {
		c.made() // keeps the reason why it ended
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.real != nil {
		c.cancel(cause)
		c.stop()
	}
}

// Deadline returns the earlier of its own deadline and its parent's.
func (c *Context) Deadline() (time.Time, bool) {
	if at, ok := c.Parent.Deadline(); ok && at.Before(c.At) {
		return at, true
	}
	return c.At, true
}

// Done returns a channel that is closed when the context has ended.
func (c *Context) Done() <-chan struct{} { return c.made().Done() }

// Timed reports whether only time can end the context. Who waits until then need not ask for Done.
func (c *Context) Timed() bool { return c.timed }

// Err says why the context has ended, or returns nil.
func (c *Context) Err() error {
	c.mu.Lock()
	real, ended := c.real, c.ended
	c.mu.Unlock()
	switch {
	case real != nil:
		return real.Err()
	case ended:
		return context.Canceled
	case c.over():
		return c.made().Err()
	}
	return nil
}

// Value returns Held for the context's own key, and the parent's value for others.
func (c *Context) Value(key any) any {
	if c.Key != nil && key == c.Key {
		return c.Held
	}
	c.mu.Lock()
	real, ended := c.real, c.ended
	c.mu.Unlock()
	switch {
	case real != nil:
	case ended || c.over():
		real = c.made()
	default:
		return c.Parent.Value(key)
	}
	return real.Value(key) // context.Cause and child contexts find the real one here
}
