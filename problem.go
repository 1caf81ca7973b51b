package semel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Code names a refusal. It stands in the member "code" of a problem.
type Code string

// The codes, with the type each has.
const (
	CodeKeyMissing        Code = "IDEMPOTENCY_KEY_REQUIRED"
	CodeKeyInvalid        Code = "IDEMPOTENCY_KEY_INVALID"
	CodeScopeInvalid      Code = "IDEMPOTENCY_SCOPE_INVALID"
	CodeKeyReused         Code = "IDEMPOTENCY_KEY_REUSED"
	CodeInProgress        Code = "IDEMPOTENCY_IN_PROGRESS"
	CodeOutcomePending    Code = "IDEMPOTENCY_OUTCOME_PENDING"
	CodeOutcomeUnknown    Code = "IDEMPOTENCY_OUTCOME_UNKNOWN"
	CodeReplayUnavailable Code = "IDEMPOTENCY_REPLAY_UNAVAILABLE"
	CodeReplayForbidden   Code = "IDEMPOTENCY_REPLAY_FORBIDDEN"
	CodeTooManyAttempts   Code = "IDEMPOTENCY_TOO_MANY_ATTEMPTS"
	CodeTooManyKeys       Code = "IDEMPOTENCY_TOO_MANY_KEYS"
	CodeBodyTooLarge      Code = "IDEMPOTENCY_BODY_TOO_LARGE"
	CodeDigestMismatch    Code = "IDEMPOTENCY_DIGEST_MISMATCH"
	CodeEarlyData         Code = "IDEMPOTENCY_EARLY_DATA"
	CodeStoreUnavailable  Code = "IDEMPOTENCY_STORE_UNAVAILABLE"
	CodeRequestUnreadable Code = "IDEMPOTENCY_REQUEST_UNREADABLE"
)

// A Problem is a refusal: an answer of the guard's own, as application/problem+json (RFC 9457). It is also the error
// that [Do] returns, and unwraps to the sentinel of its code.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Code      Code   `json:"code"`
	Retryable bool   `json:"retryable"` // with the same key

	// RetryAfter is the Retry-After header, in whole seconds; zero means none.
	RetryAfter time.Duration `json:"-"`

	cause error // for logs; never shown
}

func (p *Problem) Error() string {
	s := string(p.Code) + ": " + p.Title
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	return s
}

// Unwrap returns the sentinel of the problem's code, and what caused it.
func (p *Problem) Unwrap() []error {
	errs := []error{problemKinds[p.Code].sentinel}
	if p.cause != nil {
		errs = append(errs, p.cause)
	}
	return errs
}

type problemKind struct {
	slug      string
	status    int
	title     string
	retryable bool
	sentinel  error
}

var problemKinds = map[Code]problemKind{
	CodeKeyMissing:        {"key-missing", 400, "an idempotency key is required", true, ErrKeyMissing},
	CodeKeyInvalid:        {"key-invalid", 400, "the idempotency key is not valid", false, ErrKeyInvalid},
	CodeScopeInvalid:      {"scope-invalid", 400, "the request's principal could not be told", false, ErrScopeInvalid},
	CodeKeyReused:         {"key-reused", 422, "the idempotency key was used with another request", false, ErrKeyReused},
	CodeInProgress:        {"request-in-progress", 409, "a request with this idempotency key is in progress", true, ErrInProgress},
	CodeOutcomePending:    {"outcome-pending", 503, "the outcome is not known yet; ask again with the same key only", true, ErrOutcomePending},
	CodeOutcomeUnknown:    {"outcome-unknown", 409, "the outcome is unknown; the operation may have taken effect", false, ErrOutcomeUnknown},
	CodeReplayUnavailable: {"replay-unavailable", 409, "the operation has ended, but its answer can't be given again", false, ErrReplayUnavailable},
	CodeReplayForbidden:   {"replay-forbidden", 403, "the stored answer may not be shown", false, ErrReplayForbidden},
	CodeTooManyAttempts:   {"too-many-attempts", 429, "too many attempts with this idempotency key", true, ErrTooManyAttempts},
	CodeTooManyKeys:       {"too-many-keys", 429, "too many idempotency keys", true, ErrTooManyKeys},
	CodeBodyTooLarge:      {"body-too-large", 413, "the request's body is too large", false, ErrBodyTooLarge},
	CodeDigestMismatch:    {"digest-mismatch", 400, "the request's body does not match its Content-Digest", false, ErrDigestMismatch},
	CodeEarlyData:         {"early-data", 425, "the request came as early data; send it again after the handshake", true, ErrEarlyData},
	CodeStoreUnavailable:  {"store-unavailable", 503, "the request was not run, because its key could not be checked", true, ErrStoreUnavailable},
	CodeRequestUnreadable: {"request-unreadable", 400, "the request's body could not be read", true, ErrRequestUnreadable},
}

// ProblemOptions changes the form of the guard's own answers.
type ProblemOptions struct {
	// Base is put before a problem's short name to make its type, an absolute URI. Defaults to "urn:semel:problem:".
	Base string
	// Status replaces the statuses of some codes; 400 to 599.
	Status map[Code]int
	// Documentation is the address of the API's page about idempotency, sent as a Link of relation "describedby" when a
	// key is missing. Defaults to none.
	Documentation string
	// Write writes a problem in another form. Status, Retry-After and the guard's other headers are set in w's header
	// before; Write sets Content-Type, calls WriteHeader with p.Status, and writes the body. Defaults to
	// application/problem+json.
	Write func(w http.ResponseWriter, r *http.Request, p *Problem)
}

func (o ProblemOptions) validate() error {
	for code, status := range o.Status {
		if _, ok := problemKinds[code]; !ok {
			return fmt.Errorf("problems: unknown code %q", code)
		}
		if status < 400 || status > 599 {
			return fmt.Errorf("problems: status %d for %s is not an error status", status, code)
		}
	}
	return nil
}

// problem makes the refusal of the given code. detail must be fit to be shown to the client.
func (c *core) problem(code Code, detail string) *Problem {
	k := problemKinds[code]
	p := &Problem{
		Type: c.problems.Base + k.slug, Title: k.title, Status: k.status, Detail: detail,
		Code: code, Retryable: k.retryable,
	}
	if s, ok := c.problems.Status[code]; ok {
		p.Status = s
	}
	switch code {
	case CodeOutcomePending:
		p.RetryAfter = time.Second
	case CodeStoreUnavailable:
		p.RetryAfter = 5 * time.Second
	}
	return p
}

func (p *Problem) because(err error) *Problem {
	p.cause = err
	return p
}

// writeProblem answers with p. What the guard adds to each keyed answer is in w's header already.
func (c *core) writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	h := w.Header()
	h.Del("Content-Length")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.RetryAfter), 10))
	}
	if p.Code == CodeKeyMissing && c.problems.Documentation != "" {
		h.Add("Link", "<"+c.problems.Documentation+`>; rel="describedby"`)
	}
	if c.problems.Write != nil {
		c.problems.Write(w, r, p)
		return
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic("semel: marshal problem: " + err.Error()) // strings, a bool and an int always marshal
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; nobody is left to tell
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// retryAfterRunning is Retry-After while a run is in progress: the run's age, within what is left of its lease.
func retryAfterRunning(rec *Record) time.Duration {
	left := min(rec.LeaseEnd.Sub(rec.Now), 30*time.Second)
	age := max(rec.Now.Sub(rec.Started), time.Second)
	return time.Duration(seconds(min(age, max(time.Second, left)))) * time.Second
}
