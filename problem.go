package semel

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/problemkind"
	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/refusal"
)

// A Problem is a refusal: an answer that the guard itself gives, as application/problem+json (RFC 9457). It is also the
// error that [Do] returns, and unwraps to its code.
type Problem struct {
	Type      string       `json:"type"`
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Detail    string       `json:"detail,omitempty"`
	Code      refusal.Code `json:"code"`
	Retryable bool         `json:"retryable"` // whether the client may try again with the same key

	// Operation is where a client can ask about the operation: a path below [Options].Operations. It is "" if there is no
	// such path, or if no outcome is open. It is also sent as a Link of relation "status" (RFC 8631).
	Operation string `json:"operation,omitempty"`

	// RetryAfter is the Retry-After header, in whole seconds; zero means none.
	RetryAfter time.Duration `json:"-"`

	cause  error // for logs; never shown
	shut   bool  // Policy.FailOpen does not apply: the store works, or no client is there to be served
	stored bool  // the run in progress has a stored request
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

// Unwrap returns the problem's code and its cause.
func (p *Problem) Unwrap() []error {
	errs := []error{p.Code}
	if p.cause != nil {
		errs = append(errs, p.cause)
	}
	return errs
}

// ProblemOptions changes the form of the guard's own answers.
type ProblemOptions struct {
	// Base is put before a problem's short name; the two together are the problem's type, an absolute URI. Defaults to
	// "urn:semel:problem:".
	Base string
	// Status replaces the statuses of some codes; 400 to 599.
	Status map[refusal.Code]int
	// Documentation is the address of the API's page about idempotency, sent as a Link of relation "describedby" when a
	// key is missing. Defaults to none.
	Documentation string
	// Write writes a problem in another form. Retry-After, Idempotency-Code and the guard's other headers are already set
	// in w's header. Write sets Content-Type, calls WriteHeader with p.Status, and writes the body. Defaults to
	// application/problem+json.
	Write func(w http.ResponseWriter, r *http.Request, p *Problem)
}

const problemBase = "urn:semel:problem:"

// compile returns the options with their defaults.
func (o ProblemOptions) compile(f *settings.Faults) *ProblemOptions {
	u, err := url.Parse(o.Base)
	f.If(o.Base != "" && (err != nil || !u.IsAbs()), "Problems.Base %q is not the beginning of an absolute URI", o.Base)
	// The address stands between < and > in a Link (RFC 8288, section 3).
	_, err = url.Parse(o.Documentation)
	f.If(err != nil || strings.ContainsAny(o.Documentation,
		"<> \""), "Problems.Documentation %q is not a URI", o.Documentation)
	for _, code := range slices.Sorted(maps.Keys(o.Status)) {
		_, known := problemkind.Of[code]
		f.If(!known, "Problems.Status: unknown code %q", code)
		status := o.Status[code]
		f.If(status < 400 || status > 599, "Problems.Status: %d for %s is not an error status", status, code)
	}
	o.Base = cmp.Or(o.Base, problemBase)
	o.Status = maps.Clone(o.Status) // the caller may change its own map later
	return &o
}

// problem makes the refusal of the given code. detail must be fit to be shown to the client; if it is "", the
// detail of the code is used.
func (g *Guard) problem(code refusal.Code, detail string) *Problem {
	k, form := problemkind.Of[code], g.policy.problems
	if detail == "" {
		detail = k.Detail
	}
	p := &Problem{
		Type: form.Base + k.Slug, Title: k.Title, Status: k.Status, Detail: detail,
		Code: code, Retryable: k.Retryable,
	}
	if s, ok := form.Status[code]; ok {
		p.Status = s
	}
	switch code {
	case refusal.OutcomePending:
		p.RetryAfter = time.Second
	case refusal.StoreUnavailable:
		p.RetryAfter = 5 * time.Second
	}
	return p
}

func (p *Problem) because(err error) *Problem {
	p.cause = err
	return p
}

// refusedBy returns the problem for a refusal of the engine.
func (g *Guard) refusedBy(r *engine.Refusal) *Problem {
	p := g.problem(r.Code, r.Detail).because(r.Cause)
	p.shut, p.stored = r.Shut, r.Stored
	if r.RetryAfter > 0 {
		p.RetryAfter = r.RetryAfter
	}
	return p
}

// opens reports whether the refused request is to run unprotected instead.
func (g *Guard) opens(p *Problem) bool {
	return p.Code == refusal.StoreUnavailable && g.policy.FailOpen && !p.shut
}

// writeProblem answers with p. w's header already has what the guard adds to each keyed answer.
func (g *Guard) writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	h, form := w.Header(), g.policy.problems
	h.Del("Content-Length")
	h[answer.CodeHeader] = []string{string(p.Code)}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(engine.WholeSeconds(p.RetryAfter)/time.Second)))
	}
	if p.Code == refusal.KeyMissing && form.Documentation != "" {
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
		panic("semel: marshal problem: " + err.Error()) // strings, a bool and an int can always be marshalled
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; nobody is left to tell
}
