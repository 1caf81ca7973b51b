package gateway

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

const wantDuration = "a time such as 500ms, 30s, 24h or 3d"

// ParseDuration is time.ParseDuration with days and weeks in front: "3d", "1w2d", "1d12h". A day has 24 hours.
func ParseDuration(s string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not "+wantDuration, s)
	rest, sum := s, time.Duration(0)
	for _, unit := range []struct {
		name string
		long time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		digits, after, found := strings.Cut(rest, unit.name)
		n, err := strconv.ParseUint(digits, 10, 63)
		if !found || err != nil {
			continue
		}
		if n > uint64((math.MaxInt64-sum)/unit.long) {
			return 0, wrong
		}
		sum, rest = sum+time.Duration(n)*unit.long, after
	}
	if rest == "" && s != "" {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest != s && (rest[0] < '0' || rest[0] > '9') || d > math.MaxInt64-sum {
		return 0, wrong
	}
	return sum + d, nil
}

// parseKept reads how long something is kept: a time, or "forever".
func parseKept(s string) (time.Duration, error) {
	if s == "forever" {
		return semel.Forever, nil
	}
	d, err := ParseDuration(s)
	if err != nil {
		err = fmt.Errorf("%w, or forever", err)
	}
	return d, err
}
