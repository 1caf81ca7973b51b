package outbox

import (
	"context"
	"database/sql"
	"errors"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// The message is a row in the transaction of what it tells of.
func solvedShip(ctx context.Context, db *drill.DB, _ func(string) error, parcel string) error {
	return db.Write(ctx, func(tx drill.Queries) error {
		if _, err := tx.Exec(ctx, "INSERT INTO shipments (parcel) VALUES ($1)", parcel); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO outbox (message) VALUES ($1)", "shipped "+parcel)
		return err
	})
}

// It is marked as sent after it was sent: the other way round a death in between would lose it.
func solvedRelay(ctx context.Context, db *drill.DB, publish func(string) error) error {
	for {
		var id int64
		var message string
		err := db.QueryRow(ctx, "SELECT id, message FROM outbox WHERE NOT sent ORDER BY id LIMIT 1").Scan(&id, &message)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err == nil {
			err = publish(message)
		}
		if err == nil {
			_, err = db.Exec(ctx, "UPDATE outbox SET sent = TRUE WHERE id = $1", id)
		}
		if err != nil {
			return err
		}
	}
}
