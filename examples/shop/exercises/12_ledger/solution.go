package ledger

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const solvedSchema = `
CREATE TABLE entries (account TEXT NOT NULL, request TEXT NOT NULL, points BIGINT NOT NULL, PRIMARY KEY (account, request));
CREATE TABLE accounts (id TEXT PRIMARY KEY, total BIGINT NOT NULL);
INSERT INTO accounts (id, total) VALUES ('alice', 0)`

// The entry comes first: only who has inserted it changes the total, in the same transaction, by adding and not by
// setting.
func solved(ctx context.Context, db *drill.DB, account, request string, points int64) (total int64, err error) {
	err = db.Write(ctx, func(tx drill.Queries) error {
		added, err := tx.Exec(ctx, "INSERT INTO entries (account, request, points) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", account, request, points)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, "UPDATE accounts SET total = total + $2 WHERE id = $1 RETURNING total", account, points*added).Scan(&total)
	})
	return total, err
}
