package redistest

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/storetest"
)

// The suite proves, as far as a store can keep them, R-23, R-26, R-46, R-48, R-50, R-51, R-53, R-54 and R-62, and what
// case 1, case 2, case 3, case 7, case 11, case 12, case 19, case 21, case 24, case 37, case 41 and case 43 ask of a
// store. In the short form one library is tried on a server, and the other one in a Cluster.
func TestR88_TheStoreKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	for _, lib := range proof.Of(clientLibraries[1:], clientLibraries) {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, sharing(lib, single.Get(t).Addr()))
		})
	}
}

func TestR88_TheStoreKeepsEveryPromiseInACluster(t *testing.T) {
	t.Parallel()
	for _, lib := range proof.Of(clientLibraries[:1], clientLibraries) {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, sharing(lib, cluster.Get(t).Addrs()...))
		})
	}
}

// The handles of a check are stores with clients of their own.
func sharing(lib clientLibrary, addrs ...string) func(t *testing.T) storetest.Storage {
	return func(*testing.T) storetest.Storage {
		name := prefix()
		return storetest.Storage{
			Open: func(t *testing.T) driver.Store {
				return open(t, lib.connect(t, addrs...), redisstore.Options{Prefix: name})
			},
		}
	}
}
