// Package consumer is exercise 4: a consumer that takes each message once.
package consumer

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = `
CREATE TABLE seen (message TEXT PRIMARY KEY);
CREATE TABLE invoices (message TEXT NOT NULL, amount BIGINT NOT NULL);`

// Handle writes an invoice for a message. Brokers deliver at least once: the same message may come again, and it does
// come again if Handle has failed, or if the process has died.
//
// Change this function.
func Handle(ctx context.Context, db *drill.DB, message string, amount int64) error {
	first, err := db.Exec(ctx, "INSERT INTO seen (message) VALUES ($1) ON CONFLICT (message) DO NOTHING", message)
	if err != nil || first == 0 {
		return err
	}
	_, err = db.Exec(ctx, "INSERT INTO invoices (message, amount) VALUES ($1, $2)", message, amount)
	return err
}
