package semel

import (
	"context"
	"time"
)

// An Observer is told every decision and every dangerous event of a guard. It is called on the request's path,
// concurrently, and must not block, nor call runtime.Goexit. A panic in it changes nothing for the operation; the guard
// writes it to slog.Default().
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// EventKind says what an [Event] is about.
type EventKind string

// The kinds of events.
const (
	// EventDecision comes once a request, when it has been answered or refused.
	EventDecision EventKind = "decision"
	// EventTakeover: a run started under Rerun after one that may have had its effect, because it was lost or released.
	EventTakeover EventKind = "takeover"
	// EventFenced: a late owner was refused; it has changed nothing.
	EventFenced EventKind = "fenced"
	// EventLeaseLost: a run was cancelled because its lease could not be renewed in time.
	EventLeaseLost EventKind = "lease_lost"
	// EventLapsed: a claim found a run whose lease had run out.
	EventLapsed EventKind = "lapsed"
	// EventRunTooLong: a run has passed MaxRun; its lease is no longer renewed.
	EventRunTooLong EventKind = "run_too_long"
	// EventStoreError: a verb failed. Verb names it.
	EventStoreError EventKind = "store_error"
	// EventSettleAbandoned: an outcome could not be made durable within MaxRun.
	EventSettleAbandoned EventKind = "settle_abandoned"
	// EventNoAnswer: a handler returned without an answer (R-32a), so its run counts as lost. Err says whether the guard had
	// ended its context.
	EventNoAnswer EventKind = "no_answer"
	// EventNotReplayable: an operation ended done, but its answer could not be stored.
	EventNotReplayable EventKind = "not_replayable"
	// EventUnreadable: a record, or a part of it, could not be read; the request was refused, or the operation is not asked about.
	EventUnreadable EventKind = "unreadable"
	// EventPlainStored: an answer, a step or a name that is not encrypted was taken from the store, because the keyring allows that
	// ([Keyring.AllowPlain]).
	EventPlainStored EventKind = "plain_stored"
	// EventGaveUp: a guard gave up on a claim that may have been executed; it releases it by its token.
	EventGaveUp EventKind = "gave_up"
	// EventPanic: a handler ended by a panic or by runtime.Goexit.
	EventPanic EventKind = "panic"
	// EventBodyConsumed: a request was refused because something above the guard, or the scope, has read its body. Err says
	// how that shows. Every such request is refused until the service is mended.
	EventBodyConsumed EventKind = "body_consumed"
	// EventPlainIdentity: a guard without an identity secret was made; identities are plain SHA-256. Err says what that means.
	EventPlainIdentity EventKind = "plain_identity"
	// EventOtherSecret: requests were refused because the store was made with another identity secret ([ErrOtherSecret]), or
	// with one where this guard has none.
	EventOtherSecret EventKind = "other_secret"
	// EventNoPrincipal: a keyed request was refused because its scope could not be told; Err says why. Often the guard stands
	// above the authentication, or looks under another key.
	EventNoPrincipal EventKind = "no_principal"
)

// Result is what became of a request. The names are those of the metric idempotency_requests_total.
type Result string

// The results.
const (
	ResultExecuted   Result = "executed"
	ResultReplayed   Result = "replayed"
	ResultAccepted   Result = "accepted" // run, and told 202 before its end (Policy.RespondAsync); a repeat that is told 202 is in_progress
	ResultInProgress Result = "in_progress"
	ResultMismatch   Result = "mismatch"
	ResultUnknown    Result = "unknown"
	ResultBypassed   Result = "bypassed" // run unprotected, since the store failed (FailOpen)
	ResultUnkeyed    Result = "unkeyed"  // run unprotected, since it carries no key (Policy.KeyOptional, Policy.Methods)
	ResultRefused    Result = "refused"  // not run: by the guard, or by its handler (Operation.Refuse)
	ResultFailed     Result = "failed"   // run, but its answer is not the one that counts: pending, lost or fenced
)

// Event is one decision or dangerous event. It holds no raw key.
type Event struct {
	Kind        EventKind
	Result      Result // of a decision
	Code        Code   // of a decision that refused
	Observed    bool   // the decision is what would have happened (Policy.Observe)
	ID          ID     // zero if the request was refused before its identity was known
	Operation   string
	Correlation string
	Attempt     uint32
	Fence       uint64
	Status      int           // of the answer
	Duration    time.Duration // of a decision
	Verb        string        // of a store error
	Err         error
}
