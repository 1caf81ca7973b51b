package tieredstore

import (
	"context"

	"github.com/semelhq/semel"
)

// transactions adds what [semel.Transactor] asks for besides the verbs: the durable store's transactions. What they
// settle no layer has a copy of before.
type transactions struct{ durable semel.Transactor }

// Begin implements [semel.Transactor].
func (t transactions) Begin(ctx context.Context) (semel.Tx, error) { return t.durable.Begin(ctx) }

// BeginClaim implements [semel.Transactor]. It does not look into the layers: a guard asks the same question once more
// to learn what became of a commit, and must not get an answer from before it.
func (t transactions) BeginClaim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Tx, semel.Record, bool, error) {
	return t.durable.BeginClaim(ctx, id, c)
}

// HoldsSnapshot implements [semel.Snapshotter].
func (t transactions) HoldsSnapshot() bool {
	s, ok := t.durable.(semel.Snapshotter)
	return ok && s.HoldsSnapshot()
}
