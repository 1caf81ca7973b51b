package tieredstore

import (
	"context"
	"sync"
	"time"
)

// windows makes contexts that end a time after they were made, or up to a quarter of it later. Calls that begin at
// about the same time share a timer: one for each would cost as much as a good part of the call that it bounds.
type windows struct {
	life time.Duration

	mu   sync.RWMutex
	last *shared
}

// shared ends by its timer alone.
type shared struct {
	context.Context
	end  context.CancelFunc
	from time.Time
}

// A window is a context that has the values of its parent, and ends by itself: a call that nobody waits for any more
// goes on until then.
type window struct {
	parent context.Context
	*shared
}

// Value implements [context.Context].
func (w window) Value(key any) any { return w.parent.Value(key) }

func (w *windows) open(parent context.Context) context.Context {
	now := time.Now()
	w.mu.RLock()
	s := w.last
	w.mu.RUnlock()
	if s == nil || now.Sub(s.from) > w.life/4 {
		s = w.renew(now)
	}
	return window{parent, s}
}

func (w *windows) renew(now time.Time) *shared {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil || now.Sub(w.last.from) > w.life/4 {
		s := &shared{from: now}
		s.Context, s.end = context.WithDeadline(context.Background(), now.Add(w.life+w.life/4))
		w.last = s
	}
	return w.last
}
