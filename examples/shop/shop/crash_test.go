package shop

import (
	"strings"
	"testing"
)

func TestAnUnknownPointNamesTheKnownOnes(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"payments.process.charged", "bulk.chunk.3", "saga.ship.shipped"} {
		if err := CheckCrashPoint(point); err != nil {
			t.Error(err)
		}
	}
	for _, point := range []string{"", "payments.process", "payments.process.charge", "bulk.chunk.x", "bulk.begun.1"} {
		if err := CheckCrashPoint(point); err == nil || !strings.Contains(err.Error(), "bulk.chunk.N, messages.published") {
			t.Errorf("%q: %v", point, err)
		}
	}
}
