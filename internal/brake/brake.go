// Package brake bounds what is written to a log.
package brake

import (
	"sync"
	"time"
)

// A Brake bounds what is written of one kind: a store that is down must not write a line for each request.
type Brake struct {
	mu    sync.Mutex
	kinds map[string]*braked
}

// braked is a kind's present minute.
type braked struct {
	since            time.Time
	written, leftOut int
}

const linesAMinute = 10 // of each kind

// Allow reports whether one more line of the kind may be written, and how many were left out since the last one.
func (b *Brake) Allow(kind string, now time.Time) (leftOut int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.kinds[kind]
	if k == nil {
		if b.kinds == nil {
			b.kinds = map[string]*braked{}
		}
		k = &braked{since: now}
		b.kinds[kind] = k
	}
	if now.Sub(k.since) >= time.Minute {
		k.since, k.written = now, 0
	}
	if k.written == linesAMinute {
		k.leftOut++
		return 0, false
	}
	k.written++
	leftOut, k.leftOut = k.leftOut, 0
	return leftOut, true
}
