// Package defaults has the defaults that a program around the guard has to know as well.
package defaults

import "time"

// Defaults of the root package's Policy and Options.
const (
	MaxRun          = 15 * time.Minute
	RequestLife     = 30 * time.Second
	MaxRequestBody  = 1 << 20 // bytes
	MaxResponseBody = 1 << 20 // bytes
)
