package tieredstore_test

import (
	"testing"

	"github.com/semelhq/semel/driver"
)

// A copy of a record that is done says as the record does that there are steps; they are the durable store's.
func TestR84_ACopyKeepsThatThereAreSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true, memory: true})
	id, c := newID(), ask(driver.Rerun)
	rec, owned, err := s.Claim(t.Context(), id, c)
	if err != nil || !owned {
		t.Fatal(owned, err)
	}
	if owned, err := s.(driver.StepStore).SaveStep(t.Context(), id, rec.Owner(), "charge", []byte("7")); err != nil || !owned {
		t.Fatal(owned, err)
	}
	if _, owned, err = s.Settle(t.Context(), id, rec.Owner(), done("paid")); err != nil || !owned {
		t.Fatal(owned, err)
	}
	for i := range 3 { // the first makes the copies
		if got := refuse(t, s, id, retry(c)); !got.Steps {
			t.Errorf("repeat %d: the record says that there are no steps", i)
		}
		saved, err := s.(driver.StepStore).Steps(t.Context(), id)
		if err != nil || string(saved["charge"]) != "7" {
			t.Errorf("repeat %d: the steps are %q, error %v", i, saved, err)
		}
	}
}
