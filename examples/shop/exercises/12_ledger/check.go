package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Add, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	tables, add := schema, Add
	if solution {
		tables, add = solvedSchema, solved
	}
	db, err := drill.Open(ctx, tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var failed error
	db.Meanwhile(func() { _, failed = add(ctx, db, "alice", "request-2", 10) })
	_, err = add(ctx, db, "alice", "request-1", 5)
	db.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	books := func(want int64, why string) error {
		total, err := db.Number(ctx, "SELECT total FROM accounts WHERE id = 'alice'")
		if err != nil {
			return err
		}
		sum, err := db.Number(ctx, "SELECT coalesce(sum(points), 0) FROM entries WHERE account = 'alice'")
		if err == nil && (total != want || sum != want) {
			err = fmt.Errorf("%s: the total is %d, the sum of the entries %d, and both should be %d", why, total, sum, want)
		}
		return err
	}
	if err := books(15, "5 and 10 points came in the same moment"); err != nil {
		return err
	}
	if total, err := add(ctx, db, "alice", "request-1", 5); err != nil || total != 15 {
		return fmt.Errorf("the request with 5 points came again, and was told %s: it wants 15", drill.Told(total, err))
	}
	if err := books(15, "a request came again"); err != nil {
		return err
	}
	for dies := 1; dies <= 3; dies++ {
		request := fmt.Sprintf("dies-%d", dies)
		db.Die(dies)
		add(ctx, db, "alice", request, 100) //nolint:errcheck // nobody is there to be told
		db.Restart()
		if _, err := add(ctx, db, "alice", request, 100); err != nil {
			return err
		}
		if err := books(15+int64(dies)*100, fmt.Sprintf("the process died after statement %d, and the request came again", dies)); err != nil {
			return err
		}
	}
	return nil
}
