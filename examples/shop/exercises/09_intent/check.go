package intent

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Confirm, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	confirm := Confirm
	if solution {
		confirm = solved
	}
	db, err := drill.Open(ctx, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, id := range []string{"in-time", "late", "racing"} {
		if _, err := db.Exec(ctx, "INSERT INTO intents (id, state, expires) VALUES ($1, 'created', 100)", id); err != nil {
			return err
		}
	}
	var free bool
	var failed error
	db.Meanwhile(func() { free, failed = Expire(ctx, db, "racing", 101) }) // another process's clock is a little ahead
	taken, err := confirm(ctx, db, "racing", 99)
	db.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if taken && free {
		return errors.New("a confirmation and the expiry came in the same moment, and both won: the money was let go, and taken")
	}
	for range 2 {
		if taken, err := confirm(ctx, db, "in-time", 99); err != nil || !taken {
			return fmt.Errorf("a confirmation in time, or its repeat, was told %s: it wants true, each time", drill.Told(taken, err))
		}
	}
	if taken, err := confirm(ctx, db, "late", 100); err != nil || taken {
		return fmt.Errorf("a confirmation when the time was over was told %s", drill.Told(taken, err))
	}
	return nil
}
