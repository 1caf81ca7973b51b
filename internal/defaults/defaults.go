// Package defaults has the defaults and limits that a program around the guard has to know as well.
package defaults

import "time"

// MaxRequestLife is the longest that a request to a store may be under way, by whatever options.
const MaxRequestLife = time.Minute

// LeastSecret is the number of bytes that a secret for identities or derived keys has at least, unless there is none.
const LeastSecret = 16

// Defaults of the root package's Policy and Options.
const (
	MaxRun          = 15 * time.Minute
	RequestLife     = 30 * time.Second
	MaxRequestBody  = 1 << 20 // bytes
	MaxResponseBody = 1 << 20 // bytes
)
