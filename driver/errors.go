package driver

import (
	"errors"
	"fmt"
)

// Errors that a [Store] returns. Any other error means that the store could not be asked or did not answer; the verb
// may or may not have been executed.
var (
	// ErrFull means that the store has no room. From Claim: for a new record; nothing was written. From Settle: for
	// this answer; the guard settles again without an answer.
	ErrFull = errors.New("store full")
	// ErrShareFull is an ErrFull for the record's principal only: the principal has used all the room that one principal
	// may have. Policy.FailOpen does not apply to it.
	ErrShareFull = fmt.Errorf("%w: the principal's share", ErrFull)
	// ErrUnreadable means that the record exists but can't be read: corrupt, or of an unknown layout version. It is never
	// treated as absent.
	ErrUnreadable = errors.New("record unreadable")
	// ErrHeld means that an Extend has not been executed yet, but that nobody else can write to the store before it is.
	// The reason is that this process holds the store's write lock in a transaction of its own. The lease is not lost.
	ErrHeld = errors.New("store held by a transaction of this process")
	// ErrNotExecuted means that the verb was not executed, and never will be: the store was not asked. It says nothing
	// about what became of the same verb when it was called before.
	ErrNotExecuted = errors.New("not executed")
	// ErrElsewhere means that a claim may have been executed in one place of a store, but that the operation may be
	// running in another place. The claim has to be released. Policy.FailOpen does not apply to it.
	ErrElsewhere = errors.New("the operation may be running in another place")
	// ErrRolledBack means that a transaction did not commit, and never will.
	ErrRolledBack = errors.New("transaction rolled back")
)
