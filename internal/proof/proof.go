// Package proof says in which form tests are to run.
package proof

import "os"

// Long says that tests take their long form, as "make test-long" has it: what SEMEL_LONG is set for. In their short form they
// prove the same with less of it.
var Long = os.Getenv("SEMEL_LONG") != ""

// Of returns short, or long in the long form.
func Of[T any](short, long T) T {
	if Long {
		return long
	}
	return short
}
