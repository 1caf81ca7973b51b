// Package pause waits.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d and reports whether it did; false means that ctx has ended before.
func For(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Jitter returns a random duration in [d/2, d), so that those who have failed together do not come again together.
func Jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// Backoff returns first, doubled with each try after the first one, up to longest, which is at least first.
func Backoff(first, longest time.Duration, tries int) time.Duration {
	d := first
	for ; tries > 1 && d < longest; tries-- {
		d = min(d, longest-d) + d
	}
	return min(d, longest)
}
