//go:build race

package fleet

// The race detector takes memory of its own for each byte, and time for each access.
const raceFactor = 4
