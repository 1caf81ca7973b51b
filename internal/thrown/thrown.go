// Package thrown makes errors of what functions of others throw.
package thrown

import (
	"fmt"
	"runtime/debug"
)

// Error describes what was recovered from, and where.
func Error(value any) error { return fmt.Errorf("panic: %v\n%s", value, debug.Stack()) }

// Catch is deferred. It makes an error of a panic. What was thrown is not wrapped: were it an error that means something
// to the caller, it would still be no answer.
func Catch(err *error) {
	if value := recover(); value != nil {
		*err = Error(value)
	}
}
