// Package problemkind says what a refusal of each code looks like to a client.
package problemkind

import "github.com/semelhq/semel/refusal"

// A Kind is what is fixed of the problems of one code.
type Kind struct {
	Slug      string // the short name, with which its type ends
	Status    int
	Retryable bool // with the same key
	Title     string
	Detail    string // used if there is none that says more
}

// Of has the kinds of all codes.
var Of = map[refusal.Code]Kind{
	refusal.KeyMissing: {
		"key-missing", 400, false,
		"an idempotency key is required",
		"send one, and the same one with each attempt",
	},
	refusal.KeyInvalid: {
		"key-invalid", 400, false,
		"the idempotency key is not valid",
		"",
	},
	refusal.ScopeInvalid: {
		"scope-invalid", 400, false,
		"the request's principal could not be told",
		"it carries an idempotency key, but not whose",
	},
	refusal.KeyReused: {
		"key-reused", 422, false,
		"the idempotency key was used with another request",
		"a key stands for one request: send the first one again, or choose a new key",
	},
	refusal.InProgress: {
		"request-in-progress", 409, true,
		"a request with this idempotency key is in progress",
		"ask again after the time in Retry-After",
	},
	refusal.OutcomePending: {
		"outcome-pending", 503, true,
		"the outcome is not known yet; ask again with the same key only",
		"the operation may have taken effect: another key could make it happen twice",
	},
	refusal.OutcomeUnknown: {
		"outcome-unknown", 409, false,
		"the outcome is unknown; the operation may have taken effect",
		"ask for the operation's status, or for its operator's decision",
	},
	refusal.NoAnswer: {
		"no-answer", 500, false,
		"the request was run, but its handler gave no answer",
		"it may have taken effect: ask for the operation's status, or for its operator's decision",
	},
	refusal.ReplayUnavailable: {
		"replay-unavailable", 409, false,
		"the operation has ended, but its answer can't be given again",
		"it is not run again with this key",
	},
	refusal.KeyExpired: {
		"key-expired", 422, false,
		"the idempotency key has expired",
		"the operation has ended, and its answer is no longer kept; it is not run again with this key",
	},
	refusal.ReplayForbidden: {
		"replay-forbidden", 403, false,
		"the stored answer may not be shown",
		"the request has no right to it",
	},
	refusal.TooManyAttempts: {
		"too-many-attempts", 429, true,
		"too many attempts with this idempotency key",
		"ask again after the time in Retry-After",
	},
	refusal.TooManyKeys: {
		"too-many-keys", 429, true,
		"too many idempotency keys",
		"ask again after the time in Retry-After; keys used before are still answered",
	},
	refusal.BodyTooLarge: {
		"body-too-large", 413, false,
		"the request's body is too large",
		"",
	},
	refusal.DigestMismatch: {
		"digest-mismatch", 400, false,
		"the request's body does not match its Content-Digest",
		"it was changed on its way, or the digest is of another body",
	},
	refusal.EarlyData: {
		"early-data", 425, true,
		"the request came as early data; send it again after the handshake",
		"early data can be sent again by others (RFC 8470)",
	},
	refusal.StoreUnavailable: {
		"store-unavailable", 503, true,
		"the request was not run, because its key could not be checked",
		"ask again after the time in Retry-After",
	},
	refusal.RequestUnreadable: {
		"request-unreadable", 400, true,
		"the request's body could not be read",
		"nothing was run",
	},
	refusal.BodyConsumed: {
		"body-consumed", 500, false,
		"the service's set-up keeps the request's body from being checked",
		"nothing was run; the service has to be mended, and its log says how",
	},
	refusal.OperationNotFound: {
		"operation-not-found", 404, false,
		"there is no such operation",
		"it was never asked for, or is no longer kept, or is another principal's",
	},
}
