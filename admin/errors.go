package admin

import "errors"

// Sentinels of refusals. Nothing was changed, unless the error says so.
var (
	// ErrInvalid means that the decision itself is incomplete or not possible: it has no author, no reason, or an answer
	// that can't be replayed.
	ErrInvalid = errors.New("decision not valid")
	// ErrNotFound means that there is no such operation, or that its retention is over.
	ErrNotFound = errors.New("no such operation")
	// ErrAtWork means that a run owns the operation.
	ErrAtWork = errors.New("a run is at work")
	// ErrEnded means that the operation has an outcome already, which may have been told to clients. It can only be
	// forgotten.
	ErrEnded = errors.New("the operation has an outcome already")
	// ErrReleased means that the operation was released: nothing happened, and the next attempt runs it.
	ErrReleased = errors.New("the operation was released, nothing has happened")
	// ErrBegun means that a part of the operation's answer may have left, so that it can't be run again.
	ErrBegun = errors.New("a part of the answer may have left")
	// ErrChanged means that somebody else changed the operation meanwhile. Look at it again.
	ErrChanged = errors.New("the operation was changed meanwhile")
)

// refusals are the errors of a decision that was written to the audit trail and then refused. After any other error it
// may have been executed.
var refusals = []error{ErrNotFound, ErrAtWork, ErrEnded, ErrReleased, ErrBegun, ErrChanged}
