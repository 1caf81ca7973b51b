package mapstore

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, newStorage)
}

func newStorage(*testing.T) storetest.Storage {
	s := New()
	return storetest.Storage{Open: func(*testing.T) driver.Store { return s }}
}
