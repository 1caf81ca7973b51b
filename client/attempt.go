package client

import "time"

// An Attempt is one request of a call, as [Options].OnAttempt is told. It is fit for logs; no field grows a metric's
// labels but Key and Correlation.
type Attempt struct {
	Kind        AttemptKind
	Number      int    // in the call, from 1; a question has the number of the attempt in whose place or after which it is asked
	Key         string // the key's digest, "" if there is none; see [Key].Digest
	Correlation string // "" if that is turned off
	Method      string
	Host        string
	Status      int   // 0 if there was no answer
	Err         error // why there was none
	Took        time.Duration
	Again       bool          // there is another one, after Delay
	Delay       time.Duration // as decided; the context may end it
	Reason      Reason        // why there is none although it was worth it
}

// AttemptKind says what was sent.
type AttemptKind string

// The kinds of attempts.
const (
	KindRequest AttemptKind = "request" // the request itself
	KindStatus  AttemptKind = "status"  // a question to Options.StatusURL
	KindPoll    AttemptKind = "poll"    // a question to the Location of a 202
)
