package storetest_test

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/storetest"
)

// A store's author writes one test. Here both handles are the store itself, since memory can't be opened twice; a store
// that lasts opens two connections to one file or database.
func ExampleRun() {
	test := func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Storage {
			s := memstore.New()
			return storetest.Storage{
				Open: func(t *testing.T) driver.Store { return s },
			}
		})
	}
	_ = test // TestStore in a file of tests
}
