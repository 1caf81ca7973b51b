package proof

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// What fails on a machine that does not stand still fails at once. In a bubble nothing stands still.
func TestSteadyReportsAFailureAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		no, runs := errors.New("no"), 0
		if err := Steady(func() error { runs++; time.Sleep(time.Minute); return no }); !errors.Is(err, no) || runs != 1 {
			t.Errorf("%v after %d runs, want one", err, runs)
		}
		if err := Steady(func() error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
