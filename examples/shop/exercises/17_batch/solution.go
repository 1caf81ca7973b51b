package batch

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Each item is an upsert of its own, so that all of them can be sent again.
func solved(ctx context.Context, db *drill.DB, items []Item) (results []string, err error) {
	for _, i := range items {
		result, err := store(ctx, db, i)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", i.ID, err)
		}
		results = append(results, result)
	}
	return results, nil
}

func store(ctx context.Context, db *drill.DB, i Item) (result string, err error) {
	if i.Price < 0 {
		return "invalid", nil
	}
	created, err := db.Exec(ctx, "INSERT INTO items (id, price) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING", i.ID, i.Price)
	if err != nil || created == 1 {
		return "created", err
	}
	updated, err := db.Exec(ctx, "UPDATE items SET price = $2 WHERE id = $1 AND price <> $2", i.ID, i.Price)
	if updated == 1 {
		return "updated", err
	}
	return "unchanged", err
}
