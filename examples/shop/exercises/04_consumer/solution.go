package consumer

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// The mark and the effect are in one transaction: there is no moment in which the message is seen but not handled.
func solved(ctx context.Context, db *drill.DB, message string, amount int64) error {
	return db.Write(ctx, func(tx drill.Queries) error {
		first, err := tx.Exec(ctx, "INSERT INTO seen (message) VALUES ($1) ON CONFLICT (message) DO NOTHING", message)
		if err != nil || first == 0 {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO invoices (message, amount) VALUES ($1, $2)", message, amount)
		return err
	})
}
