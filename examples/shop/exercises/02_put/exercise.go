// Package put is exercise 2: PUT as an upsert.
package put

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = "CREATE TABLE profiles (id TEXT PRIMARY KEY, name TEXT NOT NULL)"

// Put stores a profile under the id that the client has chosen. PUT needs no key: a repeat has the same effect, so it
// has to succeed too, also if it comes in the same moment.
//
// Change this function.
func Put(ctx context.Context, db *drill.DB, id, name string) error {
	var there int64
	err := db.QueryRow(ctx, "SELECT count(*) FROM profiles WHERE id = $1", id).Scan(&there)
	if err != nil {
		return err
	}
	if there == 0 {
		_, err = db.Exec(ctx, "INSERT INTO profiles (id, name) VALUES ($1, $2)", id, name)
	} else {
		_, err = db.Exec(ctx, "UPDATE profiles SET name = $2 WHERE id = $1", id, name)
	}
	return err
}
