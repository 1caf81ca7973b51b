package intent

import (
	"context"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Each change of the state names the state that it starts from: of two changes one wins.
func solved(ctx context.Context, db *drill.DB, id string, now int64) (taken bool, err error) {
	_, err = db.Exec(ctx, "UPDATE intents SET state = 'confirmed' WHERE id = $1 AND state = 'created' AND expires > $2", id, now)
	if err != nil {
		return false, err
	}
	var state string
	err = db.QueryRow(ctx, "SELECT state FROM intents WHERE id = $1", id).Scan(&state)
	return state == "confirmed", err
}
