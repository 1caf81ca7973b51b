package ttl

import "time"

// The time counts from the end. What has not ended is never forgotten: it may still take effect.
func solved(r Record, now time.Time) bool {
	return !r.Ended.IsZero() && now.Sub(r.Ended) > kept
}
