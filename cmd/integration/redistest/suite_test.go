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
// store. In the short form it is one of the libraries, on a server or in a Cluster, by chance.
func TestR88_TheStoreKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	type way struct {
		on    string
		addrs func(testing.TB) []string
		lib   clientLibrary
	}
	var all []way
	for _, lib := range clientLibraries {
		all = append(all,
			way{"a server", func(t testing.TB) []string { return []string{single.Get(t).Addr()} }, lib},
			way{"a Cluster", func(t testing.TB) []string { return cluster.Get(t).Addrs() }, lib})
	}
	for _, w := range proof.Some(1, all...) {
		t.Run(w.lib.name+" on "+w.on, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, sharing(w.lib, w.addrs(t)...))
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
