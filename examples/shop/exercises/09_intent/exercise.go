// Package intent is exercise 9: intent and confirmation.
package intent

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = "CREATE TABLE intents (id TEXT PRIMARY KEY, state TEXT NOT NULL, expires BIGINT NOT NULL)"

// Confirm confirms an intent, if it was created and has not expired. true means that the money is taken. A repeat is
// told the same as the first time. Expire may come in between.
//
// Change this function and, if you like, Expire.
func Confirm(ctx context.Context, db *drill.DB, id string, now int64) (taken bool, err error) {
	var state string
	var expires int64
	if err := db.QueryRow(ctx, "SELECT state, expires FROM intents WHERE id = $1", id).Scan(&state, &expires); err != nil {
		return false, err
	}
	if state != "created" || expires <= now {
		return false, nil
	}
	_, err = db.Exec(ctx, "UPDATE intents SET state = 'confirmed' WHERE id = $1", id)
	return err == nil, err
}

// Expire lets go of the money of an intent whose time is over, and reports whether it did.
func Expire(ctx context.Context, db *drill.DB, id string, now int64) (free bool, err error) {
	n, err := db.Exec(ctx, "UPDATE intents SET state = 'expired' WHERE id = $1 AND state = 'created' AND expires <= $2", id, now)
	return n == 1, err
}
