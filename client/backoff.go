package client

import "time"

// Backoff is a law of delays: it returns how long to wait before the retry of the given number, from 0. random is in
// [0, 1). What it returns below 0 counts as 0. It is called concurrently.
type Backoff func(retry int, random float64) time.Duration

// FullJitter spreads the clients over the whole delay: random·min(limit, base·2^retry).
func FullJitter(base, limit time.Duration) Backoff {
	return func(retry int, random float64) time.Duration {
		return time.Duration(random * float64(exponential(base, limit, retry)))
	}
}

// exponential returns min(limit, base·2^n).
func exponential(base, limit time.Duration, n int) time.Duration {
	for ; n > 0 && base < limit; n-- {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}
