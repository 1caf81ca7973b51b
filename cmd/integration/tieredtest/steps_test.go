package tieredtest

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/tieredstore"
)

// steps are saved and read behind the layers, and go with a Forget through them.
func TestR84_StepsThroughTheLayers(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			open, prefix := k.make(t), newPrefix()
			s := tieredstore.New(open(), both.options(cacheOn(sharedClient(t), prefix))).(driver.StepStore)
			other := tieredstore.New(open(), redisOnly.options(cacheOn(sharedClient(t), prefix))).(driver.StepStore)
			id, c := newID(), ask(semel.Hold)
			rec, owned, err := s.Claim(t.Context(), id, c)
			if err != nil || !owned {
				t.Fatal(owned, err)
			}
			owned, err = s.SaveStep(t.Context(), id, rec.Owner(), "charge", []byte("7"))
			if err != nil || !owned {
				t.Fatal(owned, err)
			}
			if rec, _, err = s.Settle(t.Context(), id, rec.Owner(), driver.Outcome{State: driver.Done}); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the first makes the copies
				for who, s := range map[string]driver.StepStore{"here": s, "there": other} {
					saved, err := s.Steps(t.Context(), id)
					if got := load(t, s, id); err != nil || !got.Steps || string(saved["charge"]) != "7" {
						t.Errorf("%s: the record says %t, the steps are %q, error %v", who, got.Steps, saved, err)
					}
				}
			}
			if forgot, err := s.(driver.Seizer).Forget(t.Context(), id, rec.Owner()); err != nil || !forgot {
				t.Fatal(forgot, err)
			}
			next, owned, err := other.Claim(t.Context(), id, c)
			if err != nil || !owned || next.Steps {
				t.Errorf("after Forget: owned is %t, %+v, error %v", owned, next, err)
			}
			if saved, err := other.Steps(t.Context(), id); err != nil || len(saved) > 0 {
				t.Errorf("after Forget the steps are %q, error %v", saved, err)
			}
		})
	}
}
