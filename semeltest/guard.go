package semeltest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

const (
	shortLease      = 300 * time.Millisecond
	shortMaxRun     = 10 * time.Second
	shortSettleWait = 300 * time.Millisecond
	drainWait       = 15 * time.Second // a run may go on for MaxRun
)

// New returns a guard for a test, over a memory store of its own: see [NewOn].
func New(t testing.TB, p semel.Policy) *semel.Guard {
	t.Helper()
	return NewOn(t, memstore.New(), p)
}

// NewOn returns a guard for a test, over a store that it may share with others. It has a single tenant, no caps, and
// short times where the policy has none: a lease of 300 ms, a MaxRun of 10 s, a SettleWait of 300 ms. A policy that is
// not valid fails the test. When the test ends the guard is drained; a run that has not ended by then fails the test.
func NewOn(t testing.TB, store driver.Store, p semel.Policy) *semel.Guard {
	t.Helper()
	p.Lease = cmp.Or(p.Lease, shortLease)
	p.MaxRun = cmp.Or(p.MaxRun, shortMaxRun)
	p.SettleWait = cmp.Or(p.SettleWait, shortSettleWait)
	g, err := semel.New(store, semel.SingleTenant, p.OnLost, semel.Options{
		Policy: p, MaxAttempts: -1, MaxKeys: -1, RequestLife: shortLease,
	})
	if err != nil {
		t.Fatalf("semeltest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainWait)
		defer cancel()
		if err := g.Drain(ctx); err != nil {
			t.Errorf("semeltest: the guard has not come to an end: %v", err)
		}
	})
	return g
}
