//go:build !race

package fleet

const raceFactor = 1
