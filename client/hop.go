package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// A call is one logical call: a request, its repeats, and the hops to which redirects lead. It is used by one goroutine
// at a time.
type call struct {
	t     *Transport
	whole bool // answers are read to their end as a part of each attempt

	begun       bool
	key         Key
	text        string // of the key in the header; "" if the call has none
	correlation string
	step        string   // the key of the step in which the call is made; "" outside of steps
	origin      *url.URL // of the first hop
	foreign     bool     // a redirect has led elsewhere; what comes back from there is not trusted with the key again
	maybe       bool     // an attempt under the key may have arrived before the one under way
	moved       bool     // a redirect that is not the operation's own answer has led to another request
	asks        bool     // only about the operation

	sent    int // requests, over all hops
	arrived bool
	retries int
	waits   int // for an operation that runs: no attempt is spent by that
	verdict Verdict
	doc     *document // of the last answer
	reason  Reason
	retryAt time.Time
	last    *Answer // whole only
	state   string  // of the operation, where it was asked about
}

type (
	doContext   struct{} // the call that Do makes
	sentContext struct{} // the call that a sent request belongs to
)

// sentBy is the context of a sent request. It shows the call to the next hop, and hides from what else the base may
// send that there is one; begin does so for its step.
type sentBy struct {
	context.Context
	c *call
}

func (s sentBy) Value(k any) any {
	switch k.(type) {
	case sentContext:
		return s.c
	case doContext, keyContext:
		return nil
	}
	return s.Context.Value(k)
}

// callOf returns the call that a request belongs to: a new one, unless Do says so or http.Client makes the request for
// a redirect.
func (t *Transport) callOf(r *http.Request) *call {
	if c, ok := r.Context().Value(doContext{}).(*call); ok && (c.t == nil || c.t == t) && (!c.begun || r.Response != nil) {
		c.t = t
		return c // and not to what CheckRedirect sends with the context of the hop to come
	}
	if r.Response != nil && r.Response.Request != nil {
		if c, ok := r.Response.Request.Context().Value(sentContext{}).(*call); ok && c.t == t {
			return c
		}
	}
	return &call{t: t}
}

// A hop is one request of a call, with its repeats.
type hop struct {
	c      *call
	r      *http.Request
	ctx    context.Context
	header http.Header // as sent
	body   body
	keyed  bool
	again  bool // repeating it has no further effect
	number int  // of the attempt under way
}

func (c *call) hop(r *http.Request) (*hop, error) {
	if r.URL == nil {
		return nil, errors.New("client: a request without URL")
	}
	o := &c.t.o
	h := &hop{c: c, r: r, ctx: sentBy{r.Context(), c}, header: r.Header.Clone()}
	if h.header == nil {
		h.header = http.Header{}
	}
	own := takeHeader(h.header, o.Header)
	var fields *fields
	if o.Dialect.field != "" && !safe(r.Method) {
		var err error
		if fields, err = fieldsOf(r, o.MaxBody); err != nil {
			return nil, err
		}
		own = fields.own(o.Dialect.field)
	}
	var id []string
	if o.CorrelationHeader != "" {
		id = takeHeader(h.header, o.CorrelationHeader)
	}
	redirected := c.begun
	switch {
	case !redirected:
		if err := c.begin(r, own, id); err != nil {
			return nil, err
		}
	case !sameOrigin(c.origin, r.URL) && !slices.Contains(o.CrossOrigin, r.URL.Scheme+"://"+r.URL.Host):
		c.foreign = true
	}
	if redirected && c.text != "" && !keepsBody(r.Response) && !(r.Response != nil && replayed(r.Response.Header)) {
		c.moved = true
	}
	if c.foreign && c.text != "" && !safe(r.Method) {
		// Without its key it could take effect there each time that the call is made.
		return nil, c.failed(fmt.Errorf("client: %w: %s://%s", ErrCrossOrigin, r.URL.Scheme, r.URL.Host))
	}
	h.keyed = c.text != "" && !safe(r.Method) && (!redirected || keepsBody(r.Response))
	h.again = h.keyed || safe(r.Method) || c.text == "" && (r.Method == http.MethodPut || r.Method == http.MethodDelete)
	switch {
	case h.keyed && fields != nil:
		h.body = fields.with(o.Dialect.field, c.key.Value)
	case h.keyed:
		h.header[o.Header] = []string{c.text}
	case c.text == "" && len(own) > 0 && !c.foreign:
		h.header[o.Header] = own // of a safe method: it has no meaning for us
	}
	if !c.foreign && c.correlation != "" {
		h.header[o.CorrelationHeader] = []string{c.correlation}
	}
	if err := sendable(r.Method, h.header); err != nil {
		return nil, err
	}
	if !safe(r.Method) {
		conceal(h.header)
	}
	if h.keyed && fields != nil {
		return h, nil
	}
	var err error
	if (!h.keyed || o.MaxAttempts == 1) && streamed(r, o.MaxBody) {
		h.again = false
	}
	h.body, err = bodyOf(r, h.again, o.MaxBody)
	return h, err
}

// begin decides on the call's key and correlation id. An error that is the key's wraps refusal.KeyInvalid.
func (c *call) begin(r *http.Request, own, id []string) error {
	c.begun, c.origin = true, r.URL
	o := &c.t.o
	derived, inStep := semel.StepKey(r.Context())
	c.step = derived
	if above, ok := r.Context().Value(sentContext{}).(*call); ok && above.step == derived {
		inStep = false // sent by the base, and no part of the step's effect
	}
	c.t.budget.deposit()
	if o.CorrelationHeader != "" {
		c.correlation = c.correlationOf(r.Context(), id)
	}
	if safe(r.Method) {
		c.key = Key{}
		return nil
	}
	given := c.key // with Do
	if k, ok := r.Context().Value(keyContext{}).(Key); ok && given.Value == "" {
		given = k
	}
	var err error
	switch {
	case len(own) > 1:
		return fmt.Errorf("client: %w: sent in %d field lines, want one", refusal.KeyInvalid, len(own))
	case len(own) == 1:
		value, err := own[0], error(nil)
		if o.Dialect.field != "" {
			_, err = encode(value, o.Bare)
		} else {
			value, err = decode(value)
		}
		if err != nil {
			return fmt.Errorf("client: header %s: %w", o.Header, err)
		}
		if c.key.Value != "" && c.key.Value != value {
			return fmt.Errorf("client: %w: the header %s holds another one", refusal.KeyInvalid, o.Header)
		}
		c.maybe = c.key.Value == "" || c.key.take()
		c.key.Value, c.text = value, own[0]
	case given.Value != "":
		c.key, c.maybe = given, given.take()
		c.text, err = encode(given.Value, o.Bare)
	case !slices.Contains(o.Methods, r.Method):
	case inStep:
		c.key, c.maybe = Key{Value: derived}, true
		c.text, err = encode(derived, o.Bare)
	case o.Key == nil:
		c.key = NewKey()
		c.text, err = encode(c.key.Value, o.Bare)
	default:
		if c.key = (Key{Value: o.Key(r)}); c.key.Value != "" {
			c.maybe = true
			c.text, err = encode(c.key.Value, o.Bare)
		}
	}
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if c.key.Made.IsZero() && c.text != "" {
		c.key.Made = time.Now().Round(0)
	}
	return nil
}

// correlationOf returns the id of a call: the request's own, that of the operation in whose handler the call is made,
// or a new one.
func (c *call) correlationOf(ctx context.Context, own []string) string {
	if len(own) > 0 && own[0] != "" {
		return own[0]
	}
	if op := semel.FromContext(ctx); op != nil && op.Correlation() != "" {
		return op.Correlation()
	}
	return rand.Text()
}

// fresh reports whether the key may be sent at a time.
func (c *call) fresh(at time.Time) bool { return at.Before(c.key.Made.Add(c.t.o.MaxAge)) }

// sendable reports what http.Transport would refuse to send, which an attempt more does not mend. It does not repeat
// what the headers hold.
func sendable(method string, header http.Header) error {
	if method != "" && !isToken(method) {
		return fmt.Errorf("client: %q is not a method", method)
	}
	for name, lines := range header {
		if !isToken(name) {
			return fmt.Errorf("client: %q is not a header's name", name)
		}
		for _, line := range lines {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("client: header %s: a control character, such as the end of a line, can't be sent", name)
			}
		}
	}
	return nil
}

// keepsBody reports whether a redirect asks for the same request elsewhere.
func keepsBody(res *http.Response) bool {
	return res != nil &&
		(res.StatusCode == http.StatusTemporaryRedirect || res.StatusCode == http.StatusPermanentRedirect)
}

// sameOrigin reports whether to is of the origin of from, or what that becomes with TLS.
func sameOrigin(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	a, b := port(from), port(to)
	return from.Scheme == to.Scheme && a == b ||
		from.Scheme == "http" && to.Scheme == "https" && a == "80" && b == "443"
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "http":
		return "80"
	case u.Scheme == "https":
		return "443"
	}
	return ""
}
