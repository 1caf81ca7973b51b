// Package proof says in which form tests are to run.
package proof

import (
	"math/rand/v2"
	"os"
)

// Long says that tests take their long form, as "make test-long" has it: what SEMEL_LONG is set for. In their short
// form they do less of the same, or some of what is alike.
var Long = os.Getenv("SEMEL_LONG") != ""

// Of returns short, or long in the long form.
func Of[T any](short, long T) T {
	if Long {
		return long
	}
	return short
}

// Some returns n of all, by chance and in their order, or all in the long form. What one run in the short form leaves
// out, another one has. Who uses it names each of them in a subtest, so that a failure says which it was.
func Some[T any](n int, all ...T) []T {
	if Long {
		return all
	}
	return some(n, all, rand.IntN)
}

func some[T any](n int, all []T, intN func(int) int) []T {
	var drawn []T
	for i, one := range all {
		// So many are left to be drawn, of so many that are left.
		if intN(len(all)-i) < n-len(drawn) {
			drawn = append(drawn, one)
		}
	}
	return drawn
}
