package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Handle, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	handle := Handle
	if solution {
		handle = solved
	}
	db, err := drill.Open(ctx, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for dies := 1; dies <= 3; dies++ {
		message := fmt.Sprintf("message-%d", dies)
		db.Die(dies)
		handle(ctx, db, message, 4900) //nolint:errcheck // the broker delivers it again, whatever it was
		db.Restart()
		for range 2 {
			if err := handle(ctx, db, message, 4900); err != nil {
				return fmt.Errorf("a message was delivered again, and its handler failed: %w", err)
			}
		}
		written, err := db.Number(ctx, "SELECT count(*) FROM invoices WHERE message = $1", message)
		switch {
		case err != nil:
			return err
		case written == 0:
			return fmt.Errorf("the process died after statement %d, the message was delivered again, and there is no invoice: it was marked as seen before it was handled", dies)
		case written > 1:
			return fmt.Errorf("the process died after statement %d, the message was delivered again, and there are %d invoices", dies, written)
		}
	}
	return nil
}
