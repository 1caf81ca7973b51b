// Package insertfirst is exercise 6: insert first.
package insertfirst

import (
	"context"
	"database/sql"
	"errors"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// ErrInProgress means that the charge was begun before, here or in a process that has died. Somebody else finds out how
// it ended.
var ErrInProgress = errors.New("the charge has begun")

const schema = "CREATE TABLE charges (key TEXT PRIMARY KEY, state TEXT NOT NULL)"

// Charge asks the bank for money. The bank knows nothing of keys, so it must not be asked twice under one: not while it
// works, and not if the process dies after it has worked. nil means that it was charged, now or earlier.
//
// Change this function.
func Charge(ctx context.Context, db *drill.DB, bank func() error, key string) error {
	var state string
	err := db.QueryRow(ctx, "SELECT state FROM charges WHERE key = $1", key).Scan(&state)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := bank(); err != nil {
		return err
	}
	_, err = db.Exec(ctx, "INSERT INTO charges (key, state) VALUES ($1, 'charged')", key)
	return err
}
