// Package etag is exercise 8: ETag and If-Match.
package etag

import (
	"context"
	"fmt"
	"net/http"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

const schema = `
CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT NOT NULL, version BIGINT NOT NULL);
INSERT INTO notes (id, text, version) VALUES ('note-1', 'hello', 1)`

// Put changes a note. match is the client's If-Match: the ETag of the version that it has seen, such as "1", with the
// quotes. It returns 200; 412 if the note has another version by now; or 428 if the client does not say what it has
// seen. Of two people who change the same version, one has to hear that somebody was faster.
//
// Change this function.
func Put(ctx context.Context, db *drill.DB, id, match, text string) (status int, err error) {
	var version int64
	if err := db.QueryRow(ctx, "SELECT version FROM notes WHERE id = $1", id).Scan(&version); err != nil {
		return 0, err
	}
	if match != "" && match != fmt.Sprintf(`"%d"`, version) {
		return http.StatusPreconditionFailed, nil
	}
	_, err = db.Exec(ctx, "UPDATE notes SET text = $2, version = version + 1 WHERE id = $1", id, text)
	return http.StatusOK, err
}
