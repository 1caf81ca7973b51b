package event

import (
	"context"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// An Observer is told every decision and every dangerous event of a guard. It is called concurrently, while the request
// waits. It must not block, nor call runtime.Goexit. A panic in it changes nothing for the operation; the guard writes
// the panic to slog.Default().
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Kind says what an [Event] is about.
type Kind string

// The kinds of events.
const (
	// Decision comes once for each request, when it has been answered or refused.
	Decision Kind = "decision"
	// Takeover: under Rerun, a run started after an earlier run that was lost or released and may have had its effect.
	Takeover Kind = "takeover"
	// Fenced: a late owner was refused; it has changed nothing.
	Fenced Kind = "fenced"
	// LeaseLost: a run was cancelled because its lease could not be renewed in time.
	LeaseLost Kind = "lease_lost"
	// Lapsed: a claim found a run whose lease had run out.
	Lapsed Kind = "lapsed"
	// RunTooLong: a run has passed MaxRun; its lease is no longer renewed.
	RunTooLong Kind = "run_too_long"
	// StoreError: a verb failed. Verb names it.
	StoreError Kind = "store_error"
	// SettleAbandoned: an outcome could not be made durable within MaxRun.
	SettleAbandoned Kind = "settle_abandoned"
	// NoAnswer: a handler returned without an answer, so its run counts as lost. Err says whether the guard had ended its
	// context.
	NoAnswer Kind = "no_answer"
	// NotReplayable: an operation ended done, but its answer could not be stored.
	NotReplayable Kind = "not_replayable"
	// Unreadable: a record, or a part of it, could not be read. The request was refused, or nobody is asked about the
	// operation.
	Unreadable Kind = "unreadable"
	// PlainStored: an answer, a step or a name that is not encrypted was read from the store, because the keyring allows
	// it (keyring.Ring.AllowPlain).
	PlainStored Kind = "plain_stored"
	// GaveUp: a guard gave up on a claim that may have been executed; it releases the claim by its token.
	GaveUp Kind = "gave_up"
	// Panic: a handler ended by a panic or by runtime.Goexit.
	Panic Kind = "panic"
	// BodyConsumed: a request was refused because a layer above the guard, or the scope, has read its body. Err says how
	// this was found. All such requests are refused until the service is corrected.
	BodyConsumed Kind = "body_consumed"
	// PlainIdentity: a guard without an identity secret was made; identities are plain SHA-256. Err says what that means.
	PlainIdentity Kind = "plain_identity"
	// OtherSecret: requests were refused because the store was first used with another identity secret,
	// or with a secret while this guard has none.
	OtherSecret Kind = "other_secret"
	// NoPrincipal: a keyed request was refused because its principal could not be found; Err says why. Often the guard
	// stands above the authentication, or reads the wrong context key.
	NoPrincipal Kind = "no_principal"
	// CompletionFailed: an operation that was due could not be run without its client, or could not be asked about; Err
	// says why. It is tried again later, at growing intervals.
	CompletionFailed Kind = "completion_failed"
	// CompletionGivenUp: an operation was run as often as the completer allows, and has ended unknown.
	CompletionGivenUp Kind = "completion_given_up"
)

// Executed is what became of a request. The names are those of the metric idempotency_requests_total.
type Result string

// The results.
const (
	Executed   Result = "executed"
	Replayed   Result = "replayed"
	Accepted   Result = "accepted" // run, and told 202 before its end (Policy.RespondAsync); a repeat that is told 202 is in_progress
	InProgress Result = "in_progress"
	Mismatch   Result = "mismatch"
	Unknown    Result = "unknown"
	Bypassed   Result = "bypassed" // run unprotected, because the store failed (FailOpen)
	Unkeyed    Result = "unkeyed"  // run unprotected, because it carries no key (Policy.KeyOptional, Policy.Methods)
	Refused    Result = "refused"  // not run: refused by the guard, or by its handler (Operation.Refuse)
	Failed     Result = "failed"   // run, but its answer is not the one that counts: pending, lost or fenced
)

// Event is one decision or dangerous event. It holds no raw key.
type Event struct {
	Kind        Kind
	Result      Result       // set for a decision
	Code        refusal.Code // set for a decision that refused
	Observed    bool         // the event says what would have been decided (Policy.ObserveOnly)
	ID          driver.ID    // zero if the request was refused before its identity was known
	Operation   string
	Correlation string
	Attempt     uint32
	Fence       uint64
	Status      int           // of the answer; 0 if no answer was sent, as by Do
	Duration    time.Duration // set for a decision
	Verb        string        // set for a store error
	Err         error
}
