package gateway

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// A localRefusal is an answer of the gateway's own, in the form of the guard's on the same route. Its texts are fixed:
// nothing about the upstream or the cause is shown.
type localRefusal struct {
	slug       string
	code       refusal.Code
	status     int
	title      string
	retryable  bool
	retryAfter time.Duration // zero means that none is sent
}

var (
	// upstreamUnavailable: not one byte of the request was sent to the upstream.
	upstreamUnavailable = localRefusal{
		"upstream-unavailable", "UPSTREAM_UNAVAILABLE", http.StatusServiceUnavailable,
		"the service can't be reached; the request was not run", true, time.Second,
	}
	// upstreamBroken: the connection broke under a request that is not protected. It may have taken effect.
	upstreamBroken = localRefusal{
		"upstream-broken", "UPSTREAM_BROKEN", http.StatusBadGateway,
		"the service gave no answer; the request may have taken effect", false, 0,
	}
	// notForwardable: the request can't be expressed towards the upstream, or its client has not sent it whole.
	notForwardable = localRefusal{
		"not-forwardable", "REQUEST_NOT_FORWARDABLE", http.StatusBadRequest,
		"the request can't be forwarded", false, 0,
	}
	// methodRefused: see forwardable and overridden.
	methodRefused = localRefusal{
		"method-refused", "METHOD_REFUSED", http.StatusNotImplemented,
		"the method, or one that the request asks for instead, is not forwarded", false, 0,
	}
	// hostRefused: see hostList.
	hostRefused = localRefusal{
		"host-refused", "HOST_REFUSED", http.StatusMisdirectedRequest,
		"the request's host is not served here", false, 0,
	}
	// targetRefused: see sendable, ambiguous and reservedPath.
	targetRefused = localRefusal{
		"target-refused", "TARGET_REFUSED", http.StatusBadRequest,
		"the request's target can be read in several ways, or is not for clients", false, 0,
	}
)

// ownCodes are those of the gateway's refusals.
var ownCodes = map[refusal.Code]bool{
	upstreamUnavailable.code: true, upstreamBroken.code: true, notForwardable.code: true, methodRefused.code: true,
	targetRefused.code: true, hostRefused.code: true,
}

// A form is how a route's problems look, the guard's and the gateway's own alike (R-76a).
type form struct {
	base, documentation string
	statuses            map[refusal.Code]int
	write               func(w http.ResponseWriter, p *semel.Problem)
}

func newForm(c *Config, r *Route) *form {
	f := &form{base: c.ProblemBase, documentation: c.Documentation, statuses: r.Problems.Statuses, write: writeProblem}
	if r.Problems.Documentation != "" {
		f.documentation = r.Problems.Documentation
	}
	if r.Problems.Simple {
		f.write = writeSimple
	}
	return f
}

// guards returns the form of the guard's problems.
func (f *form) guards() *semel.ProblemOptions {
	o := &semel.ProblemOptions{
		Base: f.base, Documentation: f.documentation, Status: maps.Clone(f.statuses),
		Write: func(w http.ResponseWriter, _ *http.Request, p *semel.Problem) { f.send(w, p) },
	}
	maps.DeleteFunc(o.Status, func(c refusal.Code, _ int) bool { return ownCodes[c] })
	return o
}

// refuse answers with a problem of the gateway's own, and its code in the header, as a guard does (R-59a).
func (f *form) refuse(w http.ResponseWriter, p localRefusal) {
	if status, ok := f.statuses[p.code]; ok {
		p.status = status
	}
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(p.retryAfter/time.Second)))
	}
	w.Header().Set("Idempotency-Code", string(p.code))
	f.send(w, &semel.Problem{Type: f.base + p.slug, Title: p.title, Status: p.status, Code: p.code, Retryable: p.retryable})
}

// send writes a problem. One whose status asks to come back says when, also if that status is the route's own choice.
func (f *form) send(w http.ResponseWriter, p *semel.Problem) {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if h := w.Header(); h.Get("Retry-After") == "" {
			h.Set("Retry-After", "1")
		}
	}
	f.write(w, p)
}

// writeProblem writes a problem as application/problem+json (RFC 9457).
func writeProblem(w http.ResponseWriter, p *semel.Problem) {
	writeAnswer(w, p.Status, "application/problem+json", p)
}

// simpleProblem is the form of APIs that know of success and error only.
type simpleProblem struct {
	Success bool        `json:"success"`
	Error   simpleError `json:"error"`
}

type simpleError struct {
	Code    refusal.Code `json:"code"`
	Message string       `json:"message"`
}

func writeSimple(w http.ResponseWriter, p *semel.Problem) {
	message := p.Title
	if p.Detail != "" {
		message += ": " + p.Detail
	}
	writeAnswer(w, p.Status, "application/json", simpleProblem{Error: simpleError{p.Code, message}})
}

func writeAnswer(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("gateway: marshal problem: " + err.Error()) // strings, bools and ints always marshal
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; nobody is left to tell
}
