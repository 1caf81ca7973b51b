// Package ttl is exercise 7: how long a key is remembered.
package ttl

import "time"

// kept is how long answers are promised to be kept.
const kept = 24 * time.Hour

// A Record is what is remembered of an operation.
type Record struct {
	Begun time.Time
	Ended time.Time // zero while it runs
}

// Expired reports whether a record may be deleted: its key is new then, and a request with it runs. A client may send a
// request again until kept has passed since it could have had the answer.
//
// Change this function.
func Expired(r Record, now time.Time) bool {
	return now.Sub(r.Begun) > kept
}
