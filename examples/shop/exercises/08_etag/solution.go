package etag

import (
	"context"
	"net/http"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// The condition is part of the update.
func solved(ctx context.Context, db *drill.DB, id, match, text string) (status int, err error) {
	if match == "" {
		return http.StatusPreconditionRequired, nil
	}
	const update = `UPDATE notes SET text = $3, version = version + 1 WHERE id = $1 AND '"' || version || '"' = $2`
	changed, err := db.Exec(ctx, update, id, match, text)
	if err == nil && changed == 0 {
		return http.StatusPreconditionFailed, nil
	}
	return http.StatusOK, err
}
