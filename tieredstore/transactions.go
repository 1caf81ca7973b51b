package tieredstore

import (
	"context"

	"github.com/semelhq/semel/driver"
)

// transactions adds what [driver.Transactor] asks for besides the verbs: the durable store's transactions. What they
// settle no layer has a copy of before.
type transactions struct{ durable driver.Transactor }

// Begin implements [driver.Transactor].
func (t transactions) Begin(ctx context.Context) (driver.Tx, error) { return t.durable.Begin(ctx) }

// BeginClaim implements [driver.Transactor]. It does not look into the layers: a guard asks the same question once more
// to learn what became of a commit, and must not get an answer from before it.
func (t transactions) BeginClaim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Tx, driver.Record, bool, error) {
	return t.durable.BeginClaim(ctx, id, c)
}

// HoldsSnapshot implements [driver.Snapshotter].
func (t transactions) HoldsSnapshot() bool {
	s, ok := t.durable.(driver.Snapshotter)
	return ok && s.HoldsSnapshot()
}
