//go:build !race

package child

const race = false
