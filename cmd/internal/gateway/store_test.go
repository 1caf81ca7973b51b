package gateway

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

var errStoreDown = errors.New("dial 10.1.2.3: no route to host")

// A brokenStore can't be asked.
type brokenStore struct{ driver.Store }

func (brokenStore) Claim(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
	return driver.Record{}, false, errStoreDown
}

func (brokenStore) Settle(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
	return driver.Record{}, false, errStoreDown
}

func (brokenStore) Load(context.Context, driver.ID) (driver.Record, error) {
	return driver.Record{}, errStoreDown
}

// A fadingStore answers until it is down.
type fadingStore struct {
	driver.Store
	down *atomic.Bool
}

func (s fadingStore) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if s.down.Load() {
		return driver.Record{}, errStoreDown
	}
	return s.Store.Load(ctx, id)
}

// A claimCounter counts claims and remembers the last one.
type claimCounter struct {
	driver.Store
	n    *atomic.Int32
	last *atomic.Pointer[driver.Claim]
}

func (s claimCounter) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	defer s.n.Add(1)
	if s.last != nil {
		s.last.Store(&c)
	}
	return s.Store.Claim(ctx, id, c)
}
