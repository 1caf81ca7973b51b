package saga_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/saga"
)

// A state is kept to the end if a step may save it. With a larger one the saga can't go on.
func TestASagaWithALargeState(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]saga.State{1 << 20: saga.Done, 2 << 20: saga.Stuck} {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			p := newProcess(t, memstore.New(), saga.Options{MaxAttempts: 2}, l.define(t, "charge"))
			defer p.end()
			_, err := p.orders.Start(t.Context(), "a", order{Done: []string{strings.Repeat("x", size)}})
			must(t, err)
			got := p.ends(t, "a")
			if got.State != want || l.took("charge") != 1 || (len(got.Value.Done) == 2) != (want == saga.Done) {
				t.Errorf("ended: %s %q, %v", got.State, got.Error, l.called())
			}
			if want == saga.Stuck && !strings.Contains(got.Error, "MaxStepResult") {
				t.Errorf("it is stuck because of %q", got.Error)
			}
		})
	}
}
