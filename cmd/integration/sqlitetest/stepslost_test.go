package sqlitetest

import (
	"context"
	"errors"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

// Steps that are lost are no steps that were never saved: whoever took them for that would do their effects again.
func TestR41a_LostStepsAreUnreadable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, db := openStore(t, newFile(t), sqlitestore.Options{})
	id := newID()
	rec := claim(t, s, id, ask(semel.Rerun))
	saveStep(t, s, id, rec.Owner(), "charge", "paid")
	execSQL(t, db, "DELETE FROM semel_steps WHERE id = ?", id[:])
	if saved, err := s.Steps(ctx, id); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("lost: the steps are %q, error %v", saved, err)
	}
	settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Done})
	if forgot, err := s.Forget(ctx, id, rec.Owner()); !forgot || err != nil {
		t.Errorf("forget: %t, %v", forgot, err)
	}

	id = newID()
	rec = claim(t, s, id, ask(semel.Rerun))
	saveStep(t, s, id, rec.Owner(), "charge", "paid")
	execSQL(t, db, "UPDATE semel_records SET record = substr(record, 1, 20) WHERE id = ?", id[:])
	if saved, err := s.Steps(ctx, id); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("of a damaged record: the steps are %q, error %v", saved, err)
	}
}

// Steps that a damaged record has left are not those of the operation that begins later, also before it has saved one.
func TestR84_StepsLeftBehindAreNobodys(t *testing.T) {
	t.Parallel()
	s, db := openStore(t, newFile(t), sqlitestore.Options{})
	id := newID()
	execSQL(t, db, "INSERT INTO semel_steps (id, name, saved, result) VALUES (?, 'charge', 0, x'00')", id[:])
	if saved := steps(t, s, id); len(saved) != 0 {
		t.Errorf("an absent record has steps %q", saved)
	}
	rec := claim(t, s, id, ask(semel.Rerun))
	if saved := steps(t, s, id); len(saved) != 0 || rec.Steps {
		t.Errorf("a new operation has steps %q; its record says %t", saved, rec.Steps)
	}
	saveStep(t, s, id, rec.Owner(), "ship", "sent")
	if saved := steps(t, s, id); len(saved) != 1 || string(saved["ship"]) != "sent" {
		t.Errorf("after a step of its own it has %q", saved)
	}
}
