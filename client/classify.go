package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// document is what is read from a body of JSON: a problem's members (RFC 9457), and the state of an operation.
type document struct {
	Type, Title, Detail string
	Code                refusal.Code
	Retryable           *bool
	State, Operation    string
}

const (
	mediaProblem = "application/problem+json"
	mediaJSON    = "application/json"
)

// media returns the type of a body, in lower case and without parameters.
func media(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return ""
	}
	return t
}

// readProblem returns the problem that a response holds, nil if it is none. A guard says in a header which one it is
// (R-59a), in whatever form the body tells it.
func readProblem(status int, h http.Header, body []byte) (d *document) {
	if status < 400 {
		return nil
	}
	if media(h) == mediaProblem {
		d = readDocument(body)
	}
	if code := strings.Join(h["Idempotency-Code"], ", "); code != "" {
		if d == nil {
			d = &document{}
		}
		d.Code = refusal.Code(code)
	}
	return d
}

// readDocument returns what an object of JSON tells, nil if the text is none.
func readDocument(text []byte) *document {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return nil
	}
	var d document
	member(members, "type", &d.Type)
	member(members, "title", &d.Title)
	member(members, "detail", &d.Detail)
	member(members, "code", &d.Code)
	member(members, "retryable", &d.Retryable)
	member(members, "state", &d.State)
	member(members, "operation", &d.Operation)
	return &d
}

// member reads one member. One of another type counts as absent (RFC 9457, section 3.1).
func member[T any](members map[string]json.RawMessage, name string, v *T) {
	var value T
	if json.Unmarshal(members[name], &value) == nil {
		*v = value
	}
}

// problem returns d as what the guard would have written.
func (d *document) problem(status int, h http.Header) *semel.Problem {
	if d == nil || status < 400 { // or the state of an operation
		return nil
	}
	p := &semel.Problem{
		Type: d.Type, Title: d.Title, Status: status, Detail: d.Detail, Code: d.Code,
		Retryable: d.Retryable != nil && *d.Retryable, Operation: d.Operation,
	}
	p.RetryAfter, _ = deltaOrDate(h.Get("Retry-After"), h.Get("Date"), time.Now())
	return p
}

// again has the guard's codes after which the same request under the same key may fare better.
var again = map[refusal.Code]bool{
	refusal.InProgress:       true,
	refusal.OutcomePending:   true,
	refusal.TooManyAttempts:  true,
	refusal.TooManyKeys:      true,
	refusal.EarlyData:        true,
	refusal.StoreUnavailable: true,
	refusal.NoAnswer:         true, // unless the problem says that it may not
}

// A Verdict says what an answer to a request with a key means.
type Verdict string

// The verdicts that Options.Classify may give.
const (
	VerdictAnswer     Verdict = "answer"      // the operation's own answer, whatever its status
	VerdictRetry      Verdict = "retry"       // the same request under the same key may fare better
	VerdictInProgress Verdict = "in-progress" // the operation runs: to be asked again, which is no attempt
	VerdictReused     Verdict = "reused"      // the key was used for another request
	VerdictUnknown    Verdict = "unknown"     // it leaves open what became of the operation

	refused Verdict = "refused" // by the guard
)

// again reports whether an answer is worth another attempt.
func (v Verdict) again() bool { return v == VerdictRetry || v == VerdictInProgress }

// err returns the error that a verdict stands for, nil if it has an answer or the guard's own problem says it.
func (v Verdict) err(status int) error {
	switch v {
	case VerdictInProgress:
		return refusal.InProgress
	case VerdictReused:
		return refusal.KeyReused
	case VerdictUnknown:
		return fmt.Errorf("%d: %w", status, refusal.OutcomePending)
	}
	return nil
}

// guards reports whether a code is one of the guard's: its problem is no answer of the operation.
func (d *document) guards() bool {
	return d != nil && strings.HasPrefix(string(d.Code), "IDEMPOTENCY_")
}

// judge says what an answer to a request comes to. The guard's code goes first, since a server may give it
// another status; then what the server says in so many words; then the status. keyed says that the request has a key.
func judge(status int, h http.Header, d *document, keyed bool) Verdict {
	if d.guards() {
		switch {
		case d.Code == refusal.InProgress:
			return VerdictInProgress
		case again[d.Code] && (d.Code != refusal.NoAnswer || d.Retryable == nil || *d.Retryable):
			return VerdictRetry
		}
		return refused
	}
	if d != nil && d.Retryable != nil && !*d.Retryable || kept(h) {
		return VerdictAnswer
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return VerdictRetry
	case http.StatusConflict:
		if keyed && inProgress(h, d) {
			return VerdictInProgress
		}
	}
	return VerdictAnswer
}

// kept reports whether an answer is said to be kept, so that it will only be replayed.
func kept(h http.Header) bool {
	return strings.EqualFold(strings.Trim(h.Get("Idempotency-Retryable"), " \t"), "false")
}

// replayed reports whether an answer was given before.
func replayed(h http.Header) bool { return h.Get("Idempotent-Replayed") == "true" }

// open reports whether an answer to the call leaves open what became of the operation. Whatever stands between may
// answer with any 5xx after it has passed the request on, and so may a server that has failed halfway. And once an
// earlier attempt may have arrived, what is said before the key is looked at, or by somebody else, says nothing of that
// one: a login that is asked for, a refusal whose code is not known, an answer to which a redirect has led. Only what a
// guard marks is about the operation.
func (c *call) open(status int, h, sent http.Header) bool {
	if kept(h) || replayed(h) {
		return false
	}
	page := strings.Contains(media(h), "html") && isJSON(media(sent)) // such as a login's
	switch {
	case status >= 500, page && status < 400:
		return true
	case !c.maybe, h.Get("Idempotency-Retryable") != "":
		return false
	case page, c.moved:
		return true
	}
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusConflict, http.StatusExpectationFailed, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// inProgress reports whether a 409 means that the same call is being worked on, and not a conflict of the
// application's, which repeating can't solve. Servers that don't say so in a problem say when to come again.
func inProgress(h http.Header, d *document) bool {
	if d != nil && (strings.HasSuffix(d.Type, "request-in-progress") || d.Retryable != nil && *d.Retryable) {
		return true
	}
	_, told := deltaOrDate(h.Get("Retry-After"), h.Get("Date"), time.Now())
	return told
}

// lost reports whether an answer leaves open whether there was an effect, so that asking about the operation is of use.
func lost(status int, d *document) bool {
	return status == http.StatusGatewayTimeout || d != nil && d.Code == refusal.OutcomePending
}

// unsent reports whether the error of an attempt says that nothing of it can have arrived: no connection was made.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || !transient(err)
}

// transient reports whether the error of an attempt is of the network, and not of the request or of who answers there.
func transient(err error) bool {
	for _, text := range [...]string{"unsupported protocol scheme", "no Host in request URL"} { // of http.Transport, without a type
		if strings.Contains(err.Error(), text) {
			return false
		}
	}
	if errors.Is(err, http.ErrSchemeMismatch) || errors.Is(err, ErrBodyNotRepeatable) ||
		errors.Is(err, errAskElsewhere) {
		return false
	}
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		certificate  x509.CertificateInvalidError
	)
	return !errors.As(err, &verification) && !errors.As(err, &authority) && !errors.As(err, &hostname) &&
		!errors.As(err, &certificate)
}
