package key

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Order, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	tables, order := schema, Order
	if solution {
		tables, order = solvedSchema, solved
	}
	db, err := drill.Open(ctx, tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var second int64
	var failed error
	db.Meanwhile(func() { second, failed = order(ctx, db, "key-1", "book") })
	first, err := order(ctx, db, "key-1", "book")
	db.Wait()
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("two requests with one key came at the same moment, and one of them failed: %w", err)
	}
	third, err := order(ctx, db, "key-1", "book")
	if err != nil {
		return fmt.Errorf("a repeat failed: %w", err)
	}
	made, err := db.Number(ctx, "SELECT count(*) FROM orders WHERE key = 'key-1'")
	switch {
	case err != nil:
		return err
	case made != 1:
		return fmt.Errorf("two requests with one key came at the same moment, and %d orders were made: both had looked before either had written", made)
	case first != second || first != third:
		return fmt.Errorf("three requests with one key got the ids %d, %d and %d: all want the id of the one order", first, second, third)
	}
	other, err := order(ctx, db, "key-2", "book")
	if err == nil && other == first {
		err = errors.New("another key is another order, but it got the first one's id")
	}
	return err
}
