// Package proof says in which form tests are to run, and tells "go test" on what their results depend.
package proof

import (
	"math/rand/v2"
	"os"
)

// Long reports whether tests take their long form, as "make test-long" has it: what SEMEL_LONG is set for. In their
// short form they do less of the same, or some of what is alike. Ask when a test runs, not before: of what was looked up
// before, "go test" does not know that the result depends on it, and gives the short form's from its cache.
func Long() bool { return os.Getenv("SEMEL_LONG") != "" }

// Reads says that a test reads what "go test" does not look at when it takes the result from its cache: Code for a
// program that the test builds, which it does not import, or a folder of the repository that is no part of the test's
// module. scripts/test keeps a digest of each in the environment, where go test looks.
func Reads(inputs ...string) {
	for _, in := range inputs {
		_ = os.Getenv("SEMEL_INPUT_" + in)
	}
}

// Code is all of which the repository's programs are built.
const Code = "code"

// Of returns short, or long in the long form.
func Of[T any](short, long T) T {
	if Long() {
		return long
	}
	return short
}

// Some returns n of all, by chance and in their order, or all in the long form. What one run in the short form leaves
// out, another one has. Who uses it names each of them in a subtest, so that a failure says which it was.
func Some[T any](n int, all ...T) []T {
	if Long() {
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
