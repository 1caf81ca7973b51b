// Package ledger is exercise 12: a ledger.
package ledger

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = `
CREATE TABLE entries (account TEXT NOT NULL, request TEXT NOT NULL, points BIGINT NOT NULL);
CREATE TABLE accounts (id TEXT PRIMARY KEY, total BIGINT NOT NULL);
INSERT INTO accounts (id, total) VALUES ('alice', 0)`

// Add adds points to an account, and returns the total. A request that comes again counts once. Two requests in the
// same moment count both. The total is always the sum of the entries, also if the process dies.
//
// Change the schema and this function.
func Add(ctx context.Context, db *drill.DB, account, request string, points int64) (total int64, err error) {
	if err := db.QueryRow(ctx, "SELECT total FROM accounts WHERE id = $1", account).Scan(&total); err != nil {
		return 0, err
	}
	total += points
	if _, err := db.Exec(ctx, "UPDATE accounts SET total = $2 WHERE id = $1", account, total); err != nil {
		return 0, err
	}
	_, err = db.Exec(ctx, "INSERT INTO entries (account, request, points) VALUES ($1, $2, $3)", account, request, points)
	return total, err
}
