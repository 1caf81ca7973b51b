package put

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// One statement inserts or updates. There is no moment between looking and writing.
func solved(ctx context.Context, db *drill.DB, id, name string) error {
	_, err := db.Exec(ctx, "INSERT INTO profiles (id, name) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET name = excluded.name", id, name)
	return err
}
