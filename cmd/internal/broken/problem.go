package broken

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// A problem is a refusal (RFC 9457).
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"` // with the same key

	retryAfter time.Duration
	stored     []byte // an answer, for the bug leaky-errors
}

var (
	keyMissing = problem{
		Type: "urn:semel:problem:key-missing", Status: 400, Code: "IDEMPOTENCY_KEY_REQUIRED", Retryable: true,
		Title: "an idempotency key is required",
	}
	keyInvalid = problem{
		Type: "urn:semel:problem:key-invalid", Status: 400, Code: "IDEMPOTENCY_KEY_INVALID",
		Title: "the idempotency key is not valid",
	}
	scopeInvalid = problem{
		Type: "urn:semel:problem:scope-invalid", Status: 400, Code: "IDEMPOTENCY_SCOPE_INVALID",
		Title: "the request names more than one account",
	}
	keyReused = problem{
		Type: "urn:semel:problem:key-reused", Status: 422, Code: "IDEMPOTENCY_KEY_REUSED",
		Title: "the idempotency key was used with another request",
	}
	outcomeUnknown = problem{
		Type: "urn:semel:problem:outcome-unknown", Status: 409, Code: "IDEMPOTENCY_OUTCOME_UNKNOWN",
		Title: "the outcome is unknown; the operation may have taken effect",
	}
	outcomePending = problem{
		Type: "urn:semel:problem:outcome-pending", Status: 503, Code: "IDEMPOTENCY_OUTCOME_PENDING", Retryable: true,
		Title: "the outcome is not known yet; ask again with the same key only", retryAfter: time.Second,
	}
	storeUnavailable = problem{
		Type: "urn:semel:problem:store-unavailable", Status: 503, Code: "IDEMPOTENCY_STORE_UNAVAILABLE", Retryable: true,
		Title: "the request was not run, because its key could not be noted", retryAfter: 5 * time.Second,
	}
	bodyTooLarge = problem{
		Type: "urn:semel:problem:body-too-large", Status: 413, Code: "IDEMPOTENCY_BODY_TOO_LARGE",
		Title: "the request's body is too large",
	}
	unreadable = problem{
		Type: "urn:semel:problem:request-unreadable", Status: 400, Code: "IDEMPOTENCY_REQUEST_UNREADABLE", Retryable: true,
		Title: "the request's body could not be read",
	}
)

// inProgress refuses a repeat of what still runs, with at least a second to wait.
func inProgress(wait time.Duration) problem {
	return problem{
		Type: "urn:semel:problem:request-in-progress", Status: 409, Code: "IDEMPOTENCY_IN_PROGRESS", Retryable: true,
		Title: "a request with this idempotency key is in progress", retryAfter: max(wait, time.Second),
	}
}

func (p problem) because(err error) problem {
	p.Detail = err.Error()
	return p
}

// refuse answers with a problem. Retry-After is in whole seconds, rounded up.
func (l *Layer) refuse(w http.ResponseWriter, p problem) {
	if p.retryAfter > 0 && l.bug != "retry-after" {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((p.retryAfter+time.Second-1)/time.Second), 10))
	}
	if l.bug == "plain-errors" {
		http.Error(w, p.Title, p.Status)
		return
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic("broken: marshal problem: " + err.Error()) // texts, a number and a bool always marshal
	}
	if l.bug == "leaky-errors" && p.stored != nil {
		body = append(append(append(body[:len(body)-1], `,"stored":`...), p.stored...), '}')
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; nobody is left to tell
}
