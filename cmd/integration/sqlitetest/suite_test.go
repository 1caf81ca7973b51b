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
// a store. Here two handles of one process, each with a DB of its own, share a file. The DBs have no more than two
// connections, or as many as they like.
func TestR88_TheStoreKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	for name, connections := range proof.Of(map[string]int{"two connections": 2}, map[string]int{"two connections": 2, "many": 0}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Storage {
				path, c := newFile(t), newClock()
				return storetest.Storage{
					Open: func(t *testing.T) driver.Store {
						db := openDB(t, path, "")
						db.SetMaxOpenConns(connections)
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

// Here the second handle of each check is another process's.
func TestR88_TwoProcessesKeepEveryPromiseOnOneFile(t *testing.T) {
	t.Parallel()
	other := start(t)
	storetest.Run(t, func(t *testing.T) storetest.Storage {
		path, c := newFile(t), newClock()
		opened := 0
		return storetest.Storage{
			Open: func(t *testing.T) driver.Store {
				if opened++; opened%2 == 0 {
					return other.open(t, path, c)
				}
				s, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now})
				return s
			},
			Advance: c.Advance,
			Restart: func(*testing.T) {},
		}
	})
}
