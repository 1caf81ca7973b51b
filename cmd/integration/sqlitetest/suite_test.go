package sqlitetest

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/sqlitestore"
	"github.com/semelhq/semel/storetest"
)

// The suite proves, as far as a store can keep them, R-16, R-23, R-26, R-46, R-48, R-50, R-51, R-53, R-55 and R-62, and
// what case 1, case 2, case 3, case 7, case 11, case 12, case 19, case 21, case 24, case 37, case 41 and case 43 ask of
// a store. Two handles share a file: of one process, each with a DB of its own that has no more than two connections,
// or as many as it likes, or of two processes. In the short form it is one of the three, by chance.
func TestR88_TheStoreKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	for _, handles := range proof.Some(1, "two connections each", "many connections", "two processes") {
		t.Run(handles, func(t *testing.T) {
			t.Parallel()
			var other *process
			if handles == "two processes" {
				other = start(t)
			}
			storetest.Run(t, func(t *testing.T) storetest.Storage {
				path, c, opened := newFile(t), newClock(), 0
				return storetest.Storage{
					Open: func(t *testing.T) driver.Store {
						if opened++; other != nil && opened%2 == 0 {
							return other.open(t, path, c)
						}
						db := openDB(t, path, "")
						if handles == "two connections each" {
							db.SetMaxOpenConns(2)
						}
						s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{Clock: c.Now})
						if err != nil {
							t.Fatal(err)
						}
						t.Cleanup(func() { s.Close() })
						return s
					},
					Advance: c.Advance,
					Restart: func(*testing.T) {},
				}
			})
		})
	}
}
