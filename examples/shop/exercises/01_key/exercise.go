// Package key is exercise 1: key and constraint.
package key

import (
	"context"
	"database/sql"
	"errors"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = "CREATE TABLE orders (id INTEGER PRIMARY KEY, key TEXT NOT NULL, product TEXT NOT NULL)"

// Order orders a product. A client that has lost the answer sends the same request again, under the same key: there has
// to be one order for each key, whose id all requests get. Two of them may come in the same moment.
//
// Change the schema and this function.
func Order(ctx context.Context, db *drill.DB, key, product string) (id int64, err error) {
	err = db.QueryRow(ctx, "SELECT id FROM orders WHERE key = $1", key).Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	err = db.QueryRow(ctx, "INSERT INTO orders (key, product) VALUES ($1, $2) RETURNING id", key, product).Scan(&id)
	return id, err
}
