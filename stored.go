package semel

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
)

// neverStored are the response headers that must not be replayed, because they belong to one exchange: to its
// connection, its moment, its principal's session, or its trace. Others are known by a part of their names; see
// ofOneExchange.
var neverStored = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Date": true, "Server": true, "Alt-Svc": true, "Strict-Transport-Security": true,
	"Www-Authenticate": true, "Authentication-Info": true,
	"Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Preference-Applied": true,
	"Traceparent": true, "Tracestate": true, "Traceresponse": true, "Baggage": true, "Server-Timing": true,
	"B3": true, "Sentry-Trace": true, "X-Cloud-Trace-Context": true, "X-Amz-Id-2": true, "X-Amz-Cf-Id": true, "Cf-Ray": true,
	"Idempotency-Key": true, "Idempotency-Expires": true, "Idempotency-Status": true, "Idempotency-Retryable": true,
	codeHeader: true, "Idempotent-Replayed": true,
	credentialsField: true, // the guard's own
}

var neverStoredPrefixes = []string{"Proxy-", "X-B3-", http.TrailerPrefix}

// ofOneExchange are the words, and the pairs of them, that name credentials, or an exchange's ids, or its rate limit.
// APIs put them into names of their own. The words of a name are what is between its hyphens.
var ofOneExchange = set(
	"Authorization", "Token", "Csrf", "Xsrf", "Csrftoken", "Xsrftoken", "Authtoken", "Accesstoken", "Refreshtoken", "Jwt",
	"Bearer", "Secret", "Password", "Credential", "Credentials", "Session", "Sessionid", "Cookie", "Apikey", "Api-Key", "Access-Key",
	"Request-Id", "Requestid", "Correlation-Id", "Trace-Id", "Traceid", "Span-Id", "Debug-Id",
	"Ratelimit", "Rate-Limit", "Call-Limit",
)

// listTokens are the words of a name that tell that its token says where a list goes on, and is no credential.
var listTokens = set("Page", "Continuation", "Next", "Cursor", "Sync")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}

// neverReplayed reports whether a response header belongs to one exchange. The name is in canonical form.
func neverReplayed(name string) bool {
	if isCORS(name) {
		return false // it has a rule of its own: mayRead
	}
	if neverStored[name] {
		return true
	}
	for _, p := range neverStoredPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	list := false
	before, from := 0, 0 // where the word before begins, and this one
	for from <= len(name) {
		to := len(name)
		if n := strings.IndexByte(name[from:], '-'); n >= 0 {
			to = from + n
		}
		word := name[from:to]
		list = list || listTokens[word]
		if ofOneExchange[word] && !(list && word == "Token") || ofOneExchange[name[before:to]] {
			return true
		}
		before, from = from, to+1
	}
	return false
}

// storable reports whether a response header is stored, and replayed. named holds the headers that Connection names.
func (x *exchange) storable(name string, named []string) bool {
	name = http.CanonicalHeaderKey(name)
	if neverReplayed(name) || slices.Contains(named, name) || name == x.g.headers.correlation ||
		x.g.headers.sends(name) || name == x.keyHeader {
		return false
	}
	return x.g.policy.storeHeaders == nil || x.g.policy.storeHeaders[name]
}

// allStorable reports whether all the fields are stored, so that they need not be copied.
func (x *exchange) allStorable(fields http.Header, named []string) bool {
	for name := range fields {
		if !x.storable(name, named) {
			return false
		}
	}
	return true
}

// storedFields copies what is stored of header or trailer fields. A name without values is kept: it keeps net/http from
// adding the field by itself.
func (x *exchange) storedFields(fields http.Header, named []string) http.Header {
	n := 0
	for _, values := range fields {
		n += len(values)
	}
	var stored http.Header
	all := make([]string, 0, n)
	for name, values := range fields {
		if !x.storable(name, named) {
			continue
		}
		if stored == nil {
			stored = make(http.Header, len(fields))
		}
		from := len(all)
		all = append(all, values...)
		stored[name] = all[from:len(all):len(all)]
	}
	return stored
}

// response makes the stored form of the captured answer, or nil if it can't be replayed. It shares nothing with the
// live answer that middleware could change, but the body, which is read-only: if the headers are shared, the live
// answer gets a copy.
func (c *capture) response() *driver.Response {
	if c.whyNotStored() != nil {
		return nil
	}
	named := elements(c.sent["Connection"])
	r := &driver.Response{Status: c.status, Trailer: c.x.storedFields(c.trailer(), named)}
	own := &c.x.ask.credentials
	if c.shared = own.digest == "" && c.x.allStorable(c.sent, named); c.shared {
		r.Header = c.sent
	} else {
		r.Header = c.x.storedFields(c.sent, named)
	}
	if own.digest != "" {
		if r.Header == nil {
			r.Header = http.Header{}
		}
		own.store(r.Header)
	}
	threshold := c.x.g.policy.CompressAbove
	if c.sent.Get("Content-Encoding") != "" {
		threshold = -1
	}
	r.Body, r.Codec = c.x.g.codecs.pack(c.body, threshold)
	return r
}

// elements returns the field names that a list-valued header names, in canonical form.
func elements(lines []string) (names []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, http.CanonicalHeaderKey(name))
			}
		}
	}
	return names
}

// whyNotStored says why the answer can't be replayed, or nil.
func (c *capture) whyNotStored() error {
	switch {
	case c.unkept != nil:
		return c.unkept
	case c.hijacked:
		return errors.New("the connection was hijacked")
	case c.status == http.StatusSwitchingProtocols:
		return errors.New("the connection was switched to another protocol")
	case c.cramped:
		return budget.ErrNoRoom
	case c.over:
		return errors.New("the answer is larger than Policy.MaxResponseBody")
	case bodyAllowed(c.status) && c.declared >= 0 && c.size != c.declared:
		return errors.New("the answer is shorter than its Content-Length")
	}
	return nil
}

// stored returns the body as Policy.Decide sees it: nil only where it is too large.
func (c *capture) stored() []byte {
	switch {
	case c.over:
		return nil
	case c.body == nil:
		return []byte{}
	}
	return slices.Clip(c.body)
}

// trailer returns the trailers that the handler has set, under their own names.
func (c *capture) trailer() http.Header {
	if c.frozen {
		return c.trailers
	}
	var t http.Header
	set := func(name string, values []string) {
		if len(values) == 0 {
			return
		}
		if t == nil {
			t = http.Header{}
		}
		t[name] = slices.Clone(values)
	}
	for _, name := range elements(c.sent["Trailer"]) {
		set(name, c.header[name])
	}
	for name, values := range c.header {
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			set(http.CanonicalHeaderKey(plain), values)
		}
	}
	return t
}
