// Package batch is exercise 17: a batch.
package batch

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = "CREATE TABLE items (id TEXT PRIMARY KEY, price BIGINT NOT NULL)"

// An Item is one of a batch, under the id that the client has given it.
type Item struct {
	ID    string
	Price int64
}

// Import stores items, and says of each what became of it: created, updated, unchanged, or invalid (its price is
// negative). One that is invalid does not stop the others. The process may die in the middle: the client then sends all
// of them again.
//
// Change this function.
func Import(ctx context.Context, db *drill.DB, items []Item) (results []string, err error) {
	for _, i := range items {
		if i.Price < 0 {
			return nil, fmt.Errorf("the price of %s is negative", i.ID)
		}
		if _, err := db.Exec(ctx, "INSERT INTO items (id, price) VALUES ($1, $2)", i.ID, i.Price); err != nil {
			return nil, fmt.Errorf("store %s: %w", i.ID, err)
		}
		results = append(results, "created")
	}
	return results, nil
}
