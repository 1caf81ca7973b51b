package shop

import "testing"

func TestAShareIsRoundedHalfUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount, share, want int64
		why                 string
	}{
		{0, 1250, 0, "nothing of nothing"},
		{1, 4999, 0, "below a half"},
		{1, 5000, 1, "a half"},
		{3, 5000, 2, "one and a half"},
		{999, 500, 50, "49.95"},
		{989, 500, 49, "49.45"},
		{24500, 500, 1225, "no fraction"},
		{2450, 10000, 2450, "all of it"},
		{900_000_000_000_000, 9999, 899_910_000_000_000, "large"},
		{900_719_925_474_993, 10000, 900_719_925_474_993, "as large as the product of the two allows"},
	} {
		if got := shareOf(c.amount, c.share); got != c.want {
			t.Errorf("%d basis points of %d are %d, want %d: %s", c.share, c.amount, got, c.want, c.why)
		}
	}
}
