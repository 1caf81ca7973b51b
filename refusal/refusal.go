// Package refusal names the reasons for which a guard refuses a request. The names are the same in the member "code" of
// a problem, in the header Idempotency-Code, in events, and as errors.
package refusal

// A Code names a refusal. It is the member "code" of a problem, and the header Idempotency-Code of every refusal,
// whatever the refusal's form. Such a refusal also unwraps to it as an error, so that callers can use errors.Is.
type Code string

// The codes of a guard. A gateway, or a service, may have codes of its own.
const (
	// KeyMissing means that the request carries no key and the route requires one.
	KeyMissing Code = "IDEMPOTENCY_KEY_REQUIRED"
	// KeyInvalid means that the key breaks the route's key format.
	KeyInvalid Code = "IDEMPOTENCY_KEY_INVALID"
	// ScopeInvalid means that the principal of a keyed request could not be found.
	ScopeInvalid Code = "IDEMPOTENCY_SCOPE_INVALID"
	// KeyReused means that the key was used before with another request.
	KeyReused Code = "IDEMPOTENCY_KEY_REUSED"
	// InProgress means that another run of the same operation has not ended.
	InProgress Code = "IDEMPOTENCY_IN_PROGRESS"
	// OutcomePending means that the operation may have taken effect, and that its outcome is not known yet.
	OutcomePending Code = "IDEMPOTENCY_OUTCOME_PENDING"
	// OutcomeUnknown means that the operation may have taken effect and that its run was lost.
	OutcomeUnknown Code = "IDEMPOTENCY_OUTCOME_UNKNOWN"
	// NoAnswer means that a handler returned without having written a status or a byte. From [RunTx] it means that the
	// function in the transaction returned nil without an answer, and that the transaction was rolled back: an answer that
	// is written later could not be a part of it.
	NoAnswer Code = "IDEMPOTENCY_NO_ANSWER"
	// ReplayUnavailable means that the operation has ended but that its answer can't be given again.
	ReplayUnavailable Code = "IDEMPOTENCY_REPLAY_UNAVAILABLE"
	// KeyExpired means that the operation has ended, and that its answer is no longer kept.
	KeyExpired Code = "IDEMPOTENCY_KEY_EXPIRED"
	// ReplayForbidden means that the caller may no longer see the stored answer.
	ReplayForbidden Code = "IDEMPOTENCY_REPLAY_FORBIDDEN"
	// TooManyAttempts means that one key was asked for more often than [Options].MaxAttempts allows.
	TooManyAttempts Code = "IDEMPOTENCY_TOO_MANY_ATTEMPTS"
	// TooManyKeys means that a principal has more live keys than [Options].MaxKeys allows.
	TooManyKeys Code = "IDEMPOTENCY_TOO_MANY_KEYS"
	// BodyTooLarge means that the request's body is above the limit.
	BodyTooLarge Code = "IDEMPOTENCY_BODY_TOO_LARGE"
	// DigestMismatch means that the body does not match its Content-Digest.
	DigestMismatch Code = "IDEMPOTENCY_DIGEST_MISMATCH"
	// EarlyData means that the request came as TLS early data, which an attacker can replay.
	EarlyData Code = "IDEMPOTENCY_EARLY_DATA"
	// RequestUnreadable means that the connection broke while the request's body was read. Or the policy names fields of
	// the body that can't be found with certainty. Nothing was run.
	RequestUnreadable Code = "IDEMPOTENCY_REQUEST_UNREADABLE"
	// BodyConsumed means that a layer above the guard, or the scope, has read the request's body; nothing was run.
	BodyConsumed Code = "IDEMPOTENCY_BODY_CONSUMED"
	// OperationNotFound means that there is no such operation, or that it belongs to another principal.
	OperationNotFound Code = "IDEMPOTENCY_OPERATION_NOT_FOUND"
	// StoreUnavailable means that the store could not be asked; nothing was run.
	StoreUnavailable Code = "IDEMPOTENCY_STORE_UNAVAILABLE"
)

// Error returns the code itself.
func (c Code) Error() string { return string(c) }
