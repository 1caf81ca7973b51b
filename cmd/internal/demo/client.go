package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// plainTransport opens a connection a request, so that nothing is sent again behind a scene's back.
var plainTransport = &http.Transport{DisableKeepAlives: true}

// A request for a payment, as a scene sends it.
type request struct {
	to      string // base address
	path    string
	key     string // "" sends none
	account string
	prefer  string // "" sends none
	body    string
}

func payFor(order, key string, more ...string) request {
	body := fmt.Sprintf(`{"order":%q,"amount":4900,"currency":"EUR"%s}`, order, strings.Join(more, ""))
	return request{path: "/payments", key: key, account: "acme", body: body}
}

func takes(d time.Duration) string { return fmt.Sprintf(`,"takes":%q`, d) }

func answersAfter(d time.Duration) string { return fmt.Sprintf(`,"answers_after":%q`, d) }

func (r request) via(base string) request {
	r.to = base
	return r
}

// A reply is what came back: an answer, or err if the connection broke.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// send sends the request once.
func (r request) send(ctx context.Context) reply {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.to+r.path, strings.NewReader(r.body))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Account", r.account)
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.prefer != "" {
		req.Header.Set("Prefer", r.prefer)
	}
	return receive(plainTransport.RoundTrip(req))
}

// state asks what became of an operation; "" if that is not told.
func (r request) state(ctx context.Context, location string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.to+location, http.NoBody)
	if err != nil {
		return ""
	}
	req.Header.Set("X-Account", r.account)
	var told struct {
		State string `json:"state"`
	}
	if rep := receive(plainTransport.RoundTrip(req)); rep.err != nil || json.Unmarshal([]byte(rep.body), &told) != nil {
		return ""
	}
	return told.State
}

func receive(res *http.Response, err error) reply {
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(body), err: err}
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// code is that of a problem, else "".
func (r reply) code() string {
	var p struct {
		Code string `json:"code"`
	}
	if r.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(r.body), &p) != nil {
		return ""
	}
	return p.Code
}

// retryAfter is how long the answer asks to wait; 0 if it doesn't.
func (r reply) retryAfter() time.Duration {
	n, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// brief says in a few words what came back.
func (r reply) brief() string {
	switch {
	case r.err != nil:
		return "cut"
	case r.replayed():
		return fmt.Sprintf("%d replayed", r.status)
	}
	return strconv.Itoa(r.status)
}

// describe is an answer's status with the headers that matter here, in one line.
func describe(status int, h http.Header) string {
	s := fmt.Sprintf("%d %s", status, http.StatusText(status))
	for _, name := range shownHeaders {
		if v := h.Get(name); v != "" {
			s += "   " + name + ": " + v
		}
	}
	return s
}

var shownHeaders = [...]string{"Location", "Retry-After", "Idempotent-Replayed"}
