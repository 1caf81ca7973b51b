package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
)

// A refusal is an answer of the gateway's own, in the form of the guard's (RFC 9457). Its texts are fixed: nothing about
// the upstream or the cause is shown.
type refusal struct {
	slug       string
	code       semel.Code
	status     int
	title      string
	retryable  bool
	retryAfter time.Duration // zero means that none is sent
}

var (
	// upstreamUnavailable: not one byte of the request was sent to the upstream.
	upstreamUnavailable = refusal{
		"upstream-unavailable", "UPSTREAM_UNAVAILABLE", http.StatusServiceUnavailable,
		"the service can't be reached; the request was not run", true, time.Second,
	}
	// upstreamBroken: the connection broke under a request that is not protected. It may have taken effect.
	upstreamBroken = refusal{
		"upstream-broken", "UPSTREAM_BROKEN", http.StatusBadGateway,
		"the service gave no answer; the request may have taken effect", false, 0,
	}
	// notForwardable: the request can't be expressed towards the upstream.
	notForwardable = refusal{
		"not-forwardable", "REQUEST_NOT_FORWARDABLE", http.StatusBadRequest,
		"the request can't be forwarded", false, 0,
	}
	// methodRefused: see forwardable.
	methodRefused = refusal{
		"method-refused", "METHOD_REFUSED", http.StatusNotImplemented,
		"the method is not forwarded", false, 0,
	}
)

func (p refusal) write(w http.ResponseWriter) {
	body, err := json.Marshal(semel.Problem{
		Type: problemBase + p.slug, Title: p.title, Status: p.status, Code: p.code, Retryable: p.retryable,
	})
	if err != nil {
		panic("gateway: marshal problem: " + err.Error()) // strings, a bool and an int always marshal
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(p.retryAfter/time.Second)))
	}
	w.WriteHeader(p.status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; nobody is left to tell
}

// problemBase is put before a problem's short name, in the guard's problems too.
const problemBase = "urn:semel:problem:"
