// Package outbox is exercise 5: the outbox.
package outbox

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = `
CREATE TABLE shipments (parcel TEXT PRIMARY KEY);
CREATE TABLE outbox (id INTEGER PRIMARY KEY, message TEXT NOT NULL, sent BOOLEAN NOT NULL DEFAULT FALSE);`

// Ship ships a parcel, and tells others. They have to hear of each shipment, and of nothing that is none, also if the
// broker is down, or if the process dies.
//
// Change this function and Relay.
func Ship(ctx context.Context, db *drill.DB, publish func(message string) error, parcel string) error {
	if _, err := db.Exec(ctx, "INSERT INTO shipments (parcel) VALUES ($1)", parcel); err != nil {
		return err
	}
	return publish("shipped " + parcel)
}

// Relay publishes what was not published yet. It runs all the time. A message may leave twice, since consumers take
// each once.
func Relay(context.Context, *drill.DB, func(message string) error) error {
	return nil
}
