package semel

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// neverStored are the response headers that must not be replayed, because they belong to one exchange: to its
// connection, its moment, its principal's session, or its trace. So do those that neverStoredPrefixes begin.
var neverStored = map[string]bool{
	"Set-Cookie": true, "Date": true, "Server": true, "Www-Authenticate": true, "Authentication-Info": true,
	"Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Ratelimit": true, "Ratelimit-Policy": true, "Ratelimit-Limit": true, "Ratelimit-Remaining": true, "Ratelimit-Reset": true,
	"X-Request-Id": true, "Request-Id": true, "X-Correlation-Id": true, "X-Trace-Id": true, "Traceparent": true,
	"Tracestate": true, "Traceresponse": true, "Server-Timing": true, "X-Amzn-Trace-Id": true, "X-Amzn-Requestid": true,
	"X-Cloud-Trace-Context": true, "B3": true, "Alt-Svc": true, "Strict-Transport-Security": true,
	"Content-Length": true, "Idempotency-Key": true, "Idempotency-Expires": true, "Idempotency-Status": true,
	"Idempotency-Retryable": true, "Idempotent-Replayed": true, "Preference-Applied": true,
}

var neverStoredPrefixes = []string{"Proxy-", "Access-Control-", "X-Ratelimit-", "X-Rate-Limit-", "X-B3-", http.TrailerPrefix}

// storable reports whether a response header is stored. named holds the headers that Connection names.
func (x *exchange) storable(name string, named []string) bool {
	name = http.CanonicalHeaderKey(name)
	if neverStored[name] || slices.Contains(named, name) || name == x.g.headers.correlation ||
		slices.Contains(x.g.headers.markers, name) || name == x.keyHeader {
		return false
	}
	for _, p := range neverStoredPrefixes {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	return x.g.policy.storeHeaders == nil || x.g.policy.storeHeaders[name]
}

// response makes the stored form of the captured answer, or nil if it can't be replayed.
func (c *capture) response() *Response {
	if c.whyNotStored() != nil {
		return nil
	}
	r := &Response{Status: c.status, Trailer: c.trailer()}
	var named []string
	for _, line := range c.sent["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			named = append(named, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	r.Header = make(http.Header, len(c.sent))
	for name, values := range c.sent {
		if len(values) > 0 && c.x.storable(name, named) {
			r.Header[name] = slices.Clip(values)
		}
	}
	threshold := c.x.g.policy.CompressAbove
	if c.sent.Get("Content-Encoding") != "" {
		threshold = -1
	}
	r.Body, r.Codec = c.x.g.codecs.pack(c.body, threshold)
	return r
}

// whyNotStored says why the answer can't be replayed, or nil.
func (c *capture) whyNotStored() error {
	switch {
	case c.hijacked:
		return errors.New("the connection was hijacked")
	case c.over:
		return errors.New("the answer is larger than Policy.MaxResponseBody")
	case bodyAllowed(c.status) && c.declared >= 0 && c.size != c.declared:
		return errors.New("the answer is shorter than its Content-Length")
	}
	return nil
}

// stored returns the body as Policy.Decide sees it.
func (c *capture) stored() []byte {
	if c.over {
		return nil
	}
	return c.body
}

// trailer returns the trailers that the handler has set, under their own names.
func (c *capture) trailer() http.Header {
	var t http.Header
	set := func(name string, values []string) {
		if t == nil {
			t = http.Header{}
		}
		t[name] = slices.Clone(values)
	}
	for _, line := range c.sent["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values := c.header[name]; len(values) > 0 {
				set(name, values)
			}
		}
	}
	for name, values := range c.header {
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && len(values) > 0 {
			set(http.CanonicalHeaderKey(plain), values)
		}
	}
	return t
}
