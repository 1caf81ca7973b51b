package etag

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
	var second int
	var failed error
	db.Meanwhile(func() { second, failed = put(ctx, db, "note-1", `"1"`, "from Bob") })
	first, err := put(ctx, db, "note-1", `"1"`, "from Alice")
	db.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	switch {
	case first == 200 && second == 200:
		return errors.New("two people changed version 1 at the same moment and both heard 200, but one of the texts is lost: one came between the other's look at the version and its change")
	case first+second != 200+412:
		return fmt.Errorf("two people changed version 1, and heard %d and %d: one wants 200, the other 412", first, second)
	}
	if status, err := put(ctx, db, "note-1", `"1"`, "late"); err != nil || status != 412 {
		return fmt.Errorf("the note has version 2, and a change of version 1 heard %s: it wants 412", drill.Told(status, err))
	}
	if status, err := put(ctx, db, "note-1", "", "blind"); err != nil || status != 428 {
		return fmt.Errorf("a change without If-Match heard %s: it wants 428, or it overwrites what it has not seen", drill.Told(status, err))
	}
	if status, err := put(ctx, db, "note-1", `"2"`, "right"); err != nil || status != 200 {
		return fmt.Errorf("the note has version 2, and a change of that heard %s", drill.Told(status, err))
	}
	return nil
}
