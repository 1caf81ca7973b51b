package pgstore

import (
	"context"
	"errors"
	"testing"

	"github.com/semelhq/semel/driver"
)

// Steps that are lost are no steps that were never saved: whoever took them for that would do their effects again.
func TestR41a_LostStepsAreUnreadable(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	id := newID()
	rec := claim(t, s, id, ask(driver.Rerun))
	saveStep(t, s, id, rec.Owner(), "charge", "paid")
	exec(t, s, "DELETE FROM {schema}.steps WHERE id = $1", id[:])
	if saved, err := s.Steps(ctx, id); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("the steps are %q, error %v", saved, err)
	}
	settle(t, s, id, rec.Owner(), done("x"))
	if forgot, err := s.Forget(ctx, id, rec.Owner()); !forgot || err != nil {
		t.Errorf("forget: %t, %v", forgot, err)
	}
	claim(t, s, id, ask(driver.Rerun))
	if saved, err := s.Steps(ctx, id); len(saved) != 0 || err != nil {
		t.Errorf("the next operation has steps %q, error %v", saved, err)
	}
}
