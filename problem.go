package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Code names a refusal. It stands in the member "code" of a problem, and in the header Idempotency-Code of every refusal,
// whatever its form (R-59a).
type Code string

// codeHeader names a guard's refusal to clients and to other guards, which need not know the form of its body.
const codeHeader = "Idempotency-Code"

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
	CodeKeyExpired        Code = "IDEMPOTENCY_KEY_EXPIRED"
	CodeReplayForbidden   Code = "IDEMPOTENCY_REPLAY_FORBIDDEN"
	CodeTooManyAttempts   Code = "IDEMPOTENCY_TOO_MANY_ATTEMPTS"
	CodeTooManyKeys       Code = "IDEMPOTENCY_TOO_MANY_KEYS"
	CodeBodyTooLarge      Code = "IDEMPOTENCY_BODY_TOO_LARGE"
	CodeDigestMismatch    Code = "IDEMPOTENCY_DIGEST_MISMATCH"
	CodeEarlyData         Code = "IDEMPOTENCY_EARLY_DATA"
	CodeStoreUnavailable  Code = "IDEMPOTENCY_STORE_UNAVAILABLE"
	CodeRequestUnreadable Code = "IDEMPOTENCY_REQUEST_UNREADABLE"
	CodeNoAnswer          Code = "IDEMPOTENCY_NO_ANSWER"
	CodeBodyConsumed      Code = "IDEMPOTENCY_BODY_CONSUMED"
	CodeOperationNotFound Code = "IDEMPOTENCY_OPERATION_NOT_FOUND"
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

	// Operation is where the operation can be asked about, a path below [Options].Operations; "" where there is none, or
	// nothing is left open. It is also sent as a Link of relation "status" (RFC 8631).
	Operation string `json:"operation,omitempty"`

	// RetryAfter is the Retry-After header, in whole seconds; zero means none.
	RetryAfter time.Duration `json:"-"`

	cause  error // for logs; never shown
	shut   bool  // Policy.FailOpen does not open for it: the store works, or nobody is there to be served
	stored bool  // the request of the run that is in progress is
}

func (p *Problem) Error() string {
	s := string(p.Code)
	for _, text := range []string{p.Title, p.Detail} {
		if text != "" {
			s += ": " + text
		}
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
	retryable bool
	sentinel  error
	title     string
	detail    string // where there is none that says more
}

var problemKinds = map[Code]problemKind{
	CodeKeyMissing: {
		"key-missing", 400, false, ErrKeyMissing,
		"an idempotency key is required",
		"send one, and the same one with each attempt",
	},
	CodeKeyInvalid: {
		"key-invalid", 400, false, ErrKeyInvalid,
		"the idempotency key is not valid",
		"",
	},
	CodeScopeInvalid: {
		"scope-invalid", 400, false, ErrScopeInvalid,
		"the request's principal could not be told",
		"it carries an idempotency key, but not whose",
	},
	CodeKeyReused: {
		"key-reused", 422, false, ErrKeyReused,
		"the idempotency key was used with another request",
		"a key stands for one request: send the first one again, or choose a new key",
	},
	CodeInProgress: {
		"request-in-progress", 409, true, ErrInProgress,
		"a request with this idempotency key is in progress",
		"ask again after the time in Retry-After",
	},
	CodeOutcomePending: {
		"outcome-pending", 503, true, ErrOutcomePending,
		"the outcome is not known yet; ask again with the same key only",
		"the operation may have taken effect: another key could make it happen twice",
	},
	CodeOutcomeUnknown: {
		"outcome-unknown", 409, false, ErrOutcomeUnknown,
		"the outcome is unknown; the operation may have taken effect",
		"ask for the operation's status, or for its operator's decision",
	},
	CodeNoAnswer: {
		"no-answer", 500, false, ErrNoAnswer,
		"the request was run, but its handler gave no answer",
		"it may have taken effect: ask for the operation's status, or for its operator's decision",
	},
	CodeReplayUnavailable: {
		"replay-unavailable", 409, false, ErrReplayUnavailable,
		"the operation has ended, but its answer can't be given again",
		"it is not run again with this key",
	},
	CodeKeyExpired: {
		"key-expired", 422, false, ErrKeyExpired,
		"the idempotency key has expired",
		"the operation has ended, and its answer is no longer kept; it is not run again with this key",
	},
	CodeReplayForbidden: {
		"replay-forbidden", 403, false, ErrReplayForbidden,
		"the stored answer may not be shown",
		"the request has no right to it",
	},
	CodeTooManyAttempts: {
		"too-many-attempts", 429, true, ErrTooManyAttempts,
		"too many attempts with this idempotency key",
		"ask again after the time in Retry-After",
	},
	CodeTooManyKeys: {
		"too-many-keys", 429, true, ErrTooManyKeys,
		"too many idempotency keys",
		"ask again after the time in Retry-After; keys used before are still answered",
	},
	CodeBodyTooLarge: {
		"body-too-large", 413, false, ErrBodyTooLarge,
		"the request's body is too large",
		"",
	},
	CodeDigestMismatch: {
		"digest-mismatch", 400, false, ErrDigestMismatch,
		"the request's body does not match its Content-Digest",
		"it was changed on its way, or the digest is of another body",
	},
	CodeEarlyData: {
		"early-data", 425, true, ErrEarlyData,
		"the request came as early data; send it again after the handshake",
		"early data can be sent again by others (RFC 8470)",
	},
	CodeStoreUnavailable: {
		"store-unavailable", 503, true, ErrStoreUnavailable,
		"the request was not run, because its key could not be checked",
		"ask again after the time in Retry-After",
	},
	CodeRequestUnreadable: {
		"request-unreadable", 400, true, ErrRequestUnreadable,
		"the request's body could not be read",
		"nothing was run",
	},
	CodeBodyConsumed: {
		"body-consumed", 500, false, ErrBodyConsumed,
		"the service's set-up keeps the request's body from being checked",
		"nothing was run; the service has to be mended, and its log says how",
	},
	CodeOperationNotFound: {
		"operation-not-found", 404, false, ErrOperationNotFound,
		"there is no such operation",
		"it was never asked for, or is no longer kept, or is another principal's",
	},
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
	// Write writes a problem in another form. Retry-After, Idempotency-Code and the guard's other headers are set in w's
	// header before; Write sets Content-Type, calls WriteHeader with p.Status, and writes the body. Defaults to
	// application/problem+json.
	Write func(w http.ResponseWriter, r *http.Request, p *Problem)
}

const problemBase = "urn:semel:problem:"

// compile reports what is wrong with the options, all of it, and returns them with their defaults. where names them in
// errors.
func (o ProblemOptions) compile(where string) (*ProblemOptions, error) {
	var errs []error
	fail := func(format string, a ...any) { errs = append(errs, fmt.Errorf(where+": "+format, a...)) }
	if u, err := url.Parse(o.Base); o.Base != "" && (err != nil || !u.IsAbs()) {
		fail("Problems.Base %q is not the beginning of an absolute URI", o.Base)
	}
	// It stands between < and > in a Link (RFC 8288, section 3).
	if _, err := url.Parse(o.Documentation); err != nil || strings.ContainsAny(o.Documentation, "<> \"") {
		fail("Problems.Documentation %q is not a URI", o.Documentation)
	}
	for _, code := range slices.Sorted(maps.Keys(o.Status)) {
		if _, ok := problemKinds[code]; !ok {
			fail("Problems.Status: unknown code %q", code)
		}
		if status := o.Status[code]; status < 400 || status > 599 {
			fail("Problems.Status: %d for %s is not an error status", status, code)
		}
	}
	if o.Base == "" {
		o.Base = problemBase
	}
	o.Status = maps.Clone(o.Status) // the caller may go on changing its own
	return &o, errors.Join(errs...)
}

// problem makes the refusal of the given code. detail must be fit to be shown to the client; "" is that of the
// code.
func (g *Guard) problem(code Code, detail string) *Problem {
	k, form := problemKinds[code], g.policy.problems
	if detail == "" {
		detail = k.detail
	}
	p := &Problem{
		Type: form.Base + k.slug, Title: k.title, Status: k.status, Detail: detail,
		Code: code, Retryable: k.retryable,
	}
	if s, ok := form.Status[code]; ok {
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

// unavailable refuses what could not be claimed.
func (g *Guard) unavailable(ctx context.Context, err error) *Problem {
	p := g.problem(CodeStoreUnavailable, "").because(err)
	p.shut = ctx.Err() != nil || errors.Is(err, ErrShareFull)
	return p
}

// opens reports whether the request that is refused is to run unprotected instead.
func (g *Guard) opens(p *Problem) bool {
	return p.Code == CodeStoreUnavailable && g.policy.FailOpen && !p.shut
}

// nothingProblem tells a client that its run was rolled back.
func (g *Guard) nothingProblem() *Problem {
	p := g.problem(CodeStoreUnavailable, "its transaction was rolled back; the same key may try again")
	p.Title = "the request has had no effect"
	return p
}

// writeProblem answers with p. What the guard adds to each keyed answer is in w's header already.
func (g *Guard) writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	h, form := w.Header(), g.policy.problems
	h.Del("Content-Length")
	h[codeHeader] = []string{string(p.Code)}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.RetryAfter), 10))
	}
	if p.Code == CodeKeyMissing && form.Documentation != "" {
		h.Add("Link", "<"+form.Documentation+`>; rel="describedby"`)
	}
	if p.Operation != "" {
		h.Add("Link", "<"+p.Operation+`>; rel="status"`)
	}
	if form.Write != nil {
		form.Write(w, r, p)
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

func wholeSeconds(d time.Duration) time.Duration { return time.Duration(seconds(d)) * time.Second }

// retryAfterRunning is Retry-After while a run is in progress: the run's age, within what is left of its lease.
func retryAfterRunning(rec *Record) time.Duration {
	left := min(rec.LeaseEnd.Sub(rec.Now), 30*time.Second)
	age := max(rec.Now.Sub(rec.Started), time.Second)
	return wholeSeconds(min(age, max(time.Second, left)))
}
