package pgstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/storetest"
)

// The suite proves, as far as a store can keep them, R-16, R-23, R-26, R-46, R-48, R-50, R-51, R-53, R-54, R-55 and
// R-62, and what case 1, case 2, case 3, case 7, case 11, case 12, case 19, case 21, case 24, case 37, case 41 and case
// 43 ask of a store.
//
// A role may have another default than READ COMMITTED; the strictest has the snapshots of those between. Where answers
// are, and who is told, makes no difference. In the short form READ COMMITTED is left to the suite behind PgBouncer.
func TestStoreKeepsItsPromisesOverACrashOfTheServer(t *testing.T) {
	levels := map[string]Options{"serializable": {PartitionAnswers: true, Notify: true, ahead: 1}}
	if proof.Long() {
		levels["read committed"] = Options{}
	}
	for level, o := range levels {
		t.Run(level, func(t *testing.T) {
			own := ownServer(t, servers.PostgresOptions{})
			role := newSchema() // a name that nobody else has
			if _, err := newPool(t, own.URL()).Exec(context.Background(), fmt.Sprintf(`CREATE ROLE %[1]s LOGIN SUPERUSER;
				ALTER ROLE %[1]s SET default_transaction_isolation = '%[2]s'`, role, level)); err != nil {
				t.Fatal(err)
			}
			storages := newStorages(t, asRole(t, own.URL(), role), o)
			storetest.Run(t, func(t *testing.T) storetest.Storage {
				s := storages.next(t)
				s.Restart = func(t *testing.T) {
					storages.forget()
					if err := own.Kill(); err != nil {
						t.Fatal(err)
					}
					if err := own.Start(); err != nil {
						t.Fatal(err)
					}
				}
				return s
			})
		})
	}
}

func TestStoreKeepsItsPromisesBehindPgBouncer(t *testing.T) {
	storages := newStorages(t, bouncer.URL(), Options{})
	storetest.Run(t, func(t *testing.T) storetest.Storage {
		s := storages.next(t)
		s.Advance = nil // as in production: the suite waits
		return s
	})
}
