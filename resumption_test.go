package semel

import (
	"testing"

	"github.com/semelhq/semel/driver"
)

// Being owed proves that the claim goes on with what was due, if that is still the same operation.
func TestR52_WhatAClaimWithoutAClientMayGoOnWith(t *testing.T) {
	t.Parallel()
	s := resumption{rec: driver.Record{State: driver.Running, Created: 1, Fence: 7}}
	for _, c := range []struct {
		name string
		won  driver.Record
		want bool
	}{
		{"lapsed until the claim, which made it owed", driver.Record{Created: 1, Fence: 8, Owed: true}, true},
		{"owed, and run by others since", driver.Record{Created: 1, Fence: 9, Owed: true}, true},
		{"released with an answer since", driver.Record{Created: 1, Fence: 8}, false},
		{"a new operation", driver.Record{Created: 2, Fence: 8}, false},
		{"a new operation that is owed", driver.Record{Created: 2, Fence: 8, Owed: true}, false},
	} {
		if got := s.continues(&c.won); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
