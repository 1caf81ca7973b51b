package proof

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSomeAreDrawnByChanceInTheirOrder(t *testing.T) {
	t.Parallel()
	all, times := []int{1, 2, 3, 4, 5}, map[int]int{}
	intN := rand.New(rand.NewPCG(1, 2)).IntN
	const rounds = 1000
	for range rounds {
		drawn := some(2, all, intN)
		if len(drawn) != 2 || !slices.IsSorted(drawn) {
			t.Fatalf("drawn are %d", drawn)
		}
		for _, one := range drawn {
			times[one]++
		}
	}
	for _, one := range all {
		if n := times[one]; n < rounds/4 || n > rounds/2 { // two in five are expected
			t.Errorf("%d is drawn %d times in %d", one, n, rounds)
		}
	}
	if got := some(9, all, intN); !slices.Equal(got, all) {
		t.Errorf("more than there are: %d", got)
	}
}
