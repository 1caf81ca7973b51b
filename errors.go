package semel

import (
	"errors"

	"github.com/semelhq/semel/internal/engine"
)

// ErrOperationName means that a call of [Do] names no operation, neither in Key.Operation nor in Policy.Operation, or
// that the name is not valid. It is a mistake of the calling program, not of its clients, and therefore no [*Problem].
// Nothing was claimed.
var ErrOperationName = errors.New("operation not named")

// ErrNested is returned by [RunTx] if the operation already works in a transaction.
var ErrNested = engine.ErrNested

// Errors of [Step].
var (
	// ErrStepInTx means that a step was begun within a transaction, or in one-commit mode, where the whole handler is in a
	// transaction. A step's effect is outside of the transaction, so the step has to come before it.
	ErrStepInTx = engine.ErrStepInTx
	// ErrStepTaken means that two steps of one run have the same name.
	ErrStepTaken = engine.ErrStepTaken
)

// ErrSettled is returned to a handler that writes to its answer after a transaction has committed the answer, or after
// the handler has returned.
var ErrSettled = engine.ErrSettled

// Causes with which a run's context is cancelled; see [context.Cause].
var (
	// ErrFenced means that the run no longer owns its record: another run or an operator took it.
	ErrFenced = engine.ErrFenced
	// ErrLeaseLost means that 80 % of the lease passed without an acknowledged renewal (only under [driver.Rerun]).
	ErrLeaseLost = engine.ErrLeaseLost
	// ErrMaxRun means that the run took longer than [Policy].MaxRun.
	ErrMaxRun = engine.ErrMaxRun
)
