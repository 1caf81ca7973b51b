package semel

import (
	"errors"
	"fmt"
)

// Sentinels of refusals. A [*Problem] unwraps to one of them, so that callers of [Do] can use errors.Is.
var (
	// ErrKeyMissing means that the request carries no key and the route requires one.
	ErrKeyMissing = errors.New("idempotency key required")
	// ErrKeyInvalid means that the key breaks the route's key format.
	ErrKeyInvalid = errors.New("idempotency key invalid")
	// ErrScopeInvalid means that the principal of a keyed request could not be told.
	ErrScopeInvalid = errors.New("idempotency scope invalid")
	// ErrKeyReused means that the key was used before with another request.
	ErrKeyReused = errors.New("idempotency key reused with another request")
	// ErrInProgress means that another run of the same operation has not ended.
	ErrInProgress = errors.New("operation in progress")
	// ErrOutcomePending means that the operation may have taken effect, and that its outcome is not known yet.
	ErrOutcomePending = errors.New("outcome pending")
	// ErrOutcomeUnknown means that the operation may have taken effect and that its run was lost.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrNoAnswer means that a handler returned without having written a status or a byte (R-32a). From [RunTx] it means
	// that the function in the transaction returned nil without an answer, and that the transaction was rolled back: what is
	// written later could not be a part of it.
	ErrNoAnswer = errors.New("no answer was written")
	// ErrReplayUnavailable means that the operation has ended but that its answer can't be given again.
	ErrReplayUnavailable = errors.New("replay unavailable")
	// ErrKeyExpired means that the operation has ended, and that its answer is no longer kept.
	ErrKeyExpired = errors.New("idempotency key expired")
	// ErrReplayForbidden means that the caller may no longer see the stored answer.
	ErrReplayForbidden = errors.New("replay forbidden")
	// ErrTooManyAttempts means that one key was asked for more often than [Options].MaxAttempts allows.
	ErrTooManyAttempts = errors.New("too many attempts")
	// ErrTooManyKeys means that a principal has more live keys than [Options].MaxKeys allows.
	ErrTooManyKeys = errors.New("too many keys")
	// ErrBodyTooLarge means that the request's body is above the limit.
	ErrBodyTooLarge = errors.New("request body too large")
	// ErrDigestMismatch means that the body does not match its Content-Digest.
	ErrDigestMismatch = errors.New("content digest mismatch")
	// ErrEarlyData means that the request came as TLS early data, which an attacker can replay.
	ErrEarlyData = errors.New("request sent as early data")
	// ErrRequestUnreadable means that the connection broke while the request's body was read, or that fields of it which the
	// policy names can't be told; nothing was run.
	ErrRequestUnreadable = errors.New("request could not be read")
	// ErrBodyConsumed means that something above the guard, or the scope, has read the request's body; nothing was run.
	ErrBodyConsumed = errors.New("request body was read before the guard")
	// ErrOperationNotFound means that there is no such operation, or that it is another principal's.
	ErrOperationNotFound = errors.New("operation not found")
	// ErrStoreUnavailable means that the store could not be asked; nothing was run.
	ErrStoreUnavailable = errors.New("store unavailable")
)

// Errors that a [Store] returns. Any other error means that the store could not be asked or did not answer; the verb
// may or may not have been executed.
var (
	// ErrFull means that the store has no room. From Claim: for a new record; nothing was written. From Settle: for
	// this answer; the guard settles again without an answer.
	ErrFull = errors.New("store full")
	// ErrShareFull is an ErrFull for the record's principal only: it has all the room that one may have. Policy.FailOpen
	// does not open for it.
	ErrShareFull = fmt.Errorf("%w: the principal's share", ErrFull)
	// ErrUnreadable means that the record exists but can't be read: corrupt, or of an unknown layout version. It is
	// never treated as absent (R-41a).
	ErrUnreadable = errors.New("record unreadable")
	// ErrHeld means that an Extend has not been executed yet, but that nobody else can write to the store before it is:
	// this process holds the store's write lock in a transaction of its own. The lease is not lost.
	ErrHeld = errors.New("store held by a transaction of this process")
	// ErrRolledBack means that a transaction did not commit, and never will.
	ErrRolledBack = errors.New("transaction rolled back")
)

// ErrOperationName means that a call of [Do] does not name what it asks for, neither in Key.Operation nor in
// Policy.Operation, or by what can't be a name. It is a mistake of the program that calls, not of its clients, and therefore no
// [*Problem]. Nothing was claimed.
var ErrOperationName = errors.New("operation not named")

// ErrNested is returned by [RunTx] if the operation works in a transaction already.
var ErrNested = errors.New("the operation is in a transaction already")

// Errors of [Step].
var (
	// ErrStepInTx means that a step was begun within a transaction, or in one-commit mode, where the whole handler is in one.
	// A step's effect is elsewhere, so it comes before the transaction.
	ErrStepInTx = errors.New("a step can't be part of a transaction")
	// ErrStepTaken means that two steps of one run have the same name.
	ErrStepTaken = errors.New("another step of this run has the name")
)

// ErrSettled is returned to a handler that goes on writing its answer after a transaction has committed it, or after the
// handler has returned.
var ErrSettled = errors.New("operation settled: its answer is over")

// Causes with which a run's context is cancelled, see [context.Cause].
var (
	// ErrFenced means that the run no longer owns its record: another run or an operator took it.
	ErrFenced = errors.New("fenced: another run owns the operation")
	// ErrLeaseLost means that 80 % of the lease passed without an acknowledged renewal (only under [Rerun]).
	ErrLeaseLost = errors.New("lease could not be renewed in time")
	// ErrMaxRun means that the run took longer than [Policy].MaxRun.
	ErrMaxRun = errors.New("run took longer than allowed")
)
