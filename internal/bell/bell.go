// Package bell wakes all who wait for the next change of something.
package bell

import "sync"

// A Bell is rung when something has changed. The zero value is ready. It is safe for concurrent use.
type Bell struct {
	mu   sync.Mutex
	next chan struct{}
}

// Next returns a channel that is closed when the bell is rung next. Who takes it before looking misses no change.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Ring wakes all who wait.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
