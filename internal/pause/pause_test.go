package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestABackoffDoublesUpToItsLongest(t *testing.T) {
	t.Parallel()
	const second, forever = time.Second, time.Duration(1<<63 - 1)
	for _, c := range []struct {
		first, longest time.Duration
		tries          int
		want           time.Duration
	}{
		{second, time.Hour, 0, second},
		{second, time.Hour, 1, second},
		{second, time.Hour, 3, 4 * second},
		{second, 5 * second, 4, 5 * second},
		{second, second, 9, second},
		{second, forever, 1000, forever},
	} {
		if got := Backoff(c.first, c.longest, c.tries); got != c.want {
			t.Errorf("from %v to %v, after %d tries: %v, want %v", c.first, c.longest, c.tries, got, c.want)
		}
	}
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !For(ctx, time.Second) || For(ctx, time.Hour) || For(ctx, 0) {
			t.Error("a pause within the context's time does not end well, or one beyond it does")
		}
	})
}

func TestJitterTakesUpToAHalf(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, 1, 2, time.Second} {
		for range 100 {
			if got := Jitter(d); got < d/2 || got > d {
				t.Errorf("of %v: %v", d, got)
			}
		}
	}
}
