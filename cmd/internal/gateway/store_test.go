package gateway

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/semelhq/semel"
)

var errStoreDown = errors.New("dial 10.1.2.3: no route to host")

// A brokenStore can't be asked.
type brokenStore struct{ semel.Store }

func (brokenStore) Claim(context.Context, semel.ID, semel.Claim) (semel.Record, bool, error) {
	return semel.Record{}, false, errStoreDown
}

func (brokenStore) Settle(context.Context, semel.ID, semel.Owner, semel.Outcome) (semel.Record, bool, error) {
	return semel.Record{}, false, errStoreDown
}

func (brokenStore) Load(context.Context, semel.ID) (semel.Record, error) {
	return semel.Record{}, errStoreDown
}

// A fadingStore answers until it is down.
type fadingStore struct {
	semel.Store
	down *atomic.Bool
}

func (s fadingStore) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	if s.down.Load() {
		return semel.Record{}, errStoreDown
	}
	return s.Store.Load(ctx, id)
}

// A claimCounter counts claims and remembers the last one.
type claimCounter struct {
	semel.Store
	n    *atomic.Int32
	last *atomic.Pointer[semel.Claim]
}

func (s claimCounter) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	defer s.n.Add(1)
	if s.last != nil {
		s.last.Store(&c)
	}
	return s.Store.Claim(ctx, id, c)
}
