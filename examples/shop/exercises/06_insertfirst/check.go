package insertfirst

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Charge, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	charge := Charge
	if solution {
		charge = solved
	}
	db, err := drill.Open(ctx, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	asked := 0
	var second error
	bank := func() error {
		if asked++; asked == 1 {
			second = charge(ctx, db, func() error { asked++; return nil }, "key-1")
		}
		return nil
	}
	if err := charge(ctx, db, bank, "key-1"); err != nil && asked == 1 {
		return fmt.Errorf("the bank has charged, but the answer was: %w", err)
	}
	switch {
	case asked != 1:
		return fmt.Errorf("a second request came while the bank worked, and the bank was asked %d times: nothing was written before it was asked", asked)
	case !errors.Is(second, ErrInProgress):
		return fmt.Errorf("a second request came while the bank worked, and was told %s: it wants ErrInProgress", drill.Told("that all is well", second))
	}
	if err := charge(ctx, db, bank, "key-1"); err != nil || asked != 1 {
		return fmt.Errorf("a repeat, when all was done, was told %s, and the bank was asked %d times", drill.Told("that all is well", err), asked)
	}
	asked = 1
	dies := func() error { asked++; db.Die(0); return nil }
	charge(ctx, db, dies, "key-2") //nolint:errcheck // nobody is there to be told
	db.Restart()
	if err := charge(ctx, db, dies, "key-2"); asked != 2 || !errors.Is(err, ErrInProgress) {
		return fmt.Errorf("the process died after the bank had charged; the repeat was told %s, and the bank was asked %d times", drill.Told("that all is well", err), asked-1)
	}
	return nil
}
