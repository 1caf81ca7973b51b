package semeltest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// ErrKilled is what a guard gets from a [Mortal] store after its death.
var ErrKilled = errors.New("semeltest: the process was killed")

// Mortal is a store as one process has it, which can be killed: what the process has written stays, and nothing more of
// it arrives. Other guards, on the store itself or on another Mortal, go on. The dead guard is told that it owns
// nothing any more, so that its handlers' contexts end and it comes to an end by itself; what it still answers, a dead
// process would not: its clients should take that for a broken connection.
type Mortal struct {
	store driver.Store
	dead  atomic.Bool
}

// NewMortal returns store as one process has it.
func NewMortal(store driver.Store) *Mortal { return &Mortal{store: store} }

// Kill ends the process. A verb that is under way may still be executed. A handler that calls it should end soon.
func (m *Mortal) Kill() { m.dead.Store(true) }

// Dead reports whether the process was killed.
func (m *Mortal) Dead() bool { return m.dead.Load() }

// Claim implements [driver.Store].
func (m *Mortal) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if m.Dead() {
		return driver.Record{}, false, ErrKilled
	}
	return m.store.Claim(ctx, id, c)
}

// Extend implements [driver.Store].
func (m *Mortal) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if m.Dead() {
		return false, nil
	}
	return m.store.Extend(ctx, id, by, x)
}

// Settle implements [driver.Store].
func (m *Mortal) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if m.Dead() {
		return driver.Record{}, false, nil
	}
	return m.store.Settle(ctx, id, by, o)
}

// Load implements [driver.Store].
func (m *Mortal) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if m.Dead() {
		return driver.Record{}, ErrKilled
	}
	return m.store.Load(ctx, id)
}

// Sweep implements [driver.Store].
func (m *Mortal) Sweep(ctx context.Context, limit int) (int, error) {
	if m.Dead() {
		return 0, ErrKilled
	}
	return m.store.Sweep(ctx, limit)
}
