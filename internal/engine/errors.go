package engine

import "errors"

// Errors that the root package documents under the same names.
var (
	ErrNested      = errors.New("the operation is in a transaction already")
	ErrStepInTx    = errors.New("a step can't be part of a transaction")
	ErrStepTaken   = errors.New("another step of this run has the name")
	ErrSettled     = errors.New("operation settled: its answer is over")
	ErrFenced      = errors.New("fenced: another run owns the operation")
	ErrLeaseLost   = errors.New("lease could not be renewed in time")
	ErrMaxRun      = errors.New("run took longer than allowed")
	ErrOtherSecret = errors.New("the store was made with another identity secret")
)
