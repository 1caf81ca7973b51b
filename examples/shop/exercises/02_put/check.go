package put

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Put, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	put := Put
	if solution {
		put = solved
	}
	db, err := drill.Open(ctx, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var failed error
	db.Meanwhile(func() { failed = put(ctx, db, "alice", "Alice") })
	err = put(ctx, db, "alice", "Alice")
	db.Wait()
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("the same PUT came twice in the same moment, and one of them failed: %w", err)
	}
	if err := put(ctx, db, "alice", "Alice B."); err != nil {
		return fmt.Errorf("a PUT with another name failed: %w", err)
	}
	right, err := db.Number(ctx, "SELECT count(*) FROM profiles WHERE id = 'alice' AND name = 'Alice B.'")
	if err == nil && right != 1 {
		err = errors.New("the last PUT said Alice B., but that is not the name now")
	}
	return err
}
