package gateway

import (
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A screen keeps back what the gateway reads in one way and a service might read in another: names of headers, methods
// and targets. It sees every request before its route does.
type screen struct {
	keepNames bool
	own       map[string]bool // the headers by which the gateway and its service know a request, in canonical form
	dropped   func(n int)

	overrides bool             // a request may ask for another method than its own
	ambiguous bool             // a target may have several readings
	reserved  []*regexp.Regexp // paths at which only the gateway may ask
}

func newScreen(c *Config) *screen {
	s := &screen{
		keepNames: c.KeepUnderscores, own: map[string]bool{"Forwarded": true, c.CorrelationHeader: true}, dropped: c.headersDropped,
		overrides: c.PassOverrides || !c.protects(), ambiguous: c.PassAmbiguous || !c.distinguishes(),
	}
	add := func(names ...string) {
		for _, name := range names {
			s.own[name] = true
		}
	}
	for _, k := range resendKeys {
		add(k.canonical)
	}
	add(runHeaders[:]...)
	add("X-Forwarded-Method", "X-Forwarded-Uri")
	add(forwardedHeaders[:]...)
	add(overrideHeaders[:]...)
	add(c.Scope.headers()...)
	for _, r := range c.all() {
		add(r.keyHeaders()...)
		add(r.credentials(c)...)
		if r.Reconcile != "" {
			s.reserved = append(s.reserved, reservedPath(r.Reconcile))
		}
		if path, inside := r.authorizePath(c); inside {
			s.reserved = append(s.reserved, reservedPath(path))
		}
	}
	return s
}

// protects reports whether any route does more than observe.
func (c *Config) protects() bool {
	return slices.ContainsFunc(c.all(), func(r *Route) bool { return !r.Policy.ObserveOnly })
}

// distinguishes reports whether it matters which path a request is for: whether there are routes, or something that a
// route refuses.
func (c *Config) distinguishes() bool {
	if p := c.Upstream.Path; p != "" && p != "/" {
		return c.protects() // a request must not leave the path under which the service lives
	}
	return slices.ContainsFunc(c.all(), func(r *Route) bool {
		_, asks := r.authorizePath(c)
		return !r.Policy.ObserveOnly && (r.Match != "" || r.Unkeyed != UnkeyedPass || r.Reconcile != "" || asks || len(r.Policy.Methods) > 0)
	})
}

// refuses returns the refusal of a request that must not reach a route.
func (s *screen) refuses(r *http.Request) (localRefusal, bool) {
	switch {
	case !forwardable(r.Method), !s.overrides && overridden(r):
		return methodRefused, true
	case !sendable(r), !s.ambiguous && ambiguous(r.URL):
		return targetRefused, true
	}
	for _, path := range s.reserved {
		if path.MatchString(r.URL.Path) {
			return targetRefused, true
		}
	}
	return localRefusal{}, false
}

// forwardable refuses CONNECT, which asks for a tunnel past the guard, TRACE, whose answer shows what the gateway has
// added, and methods with lower-case letters: "post" is not POST to the guard, so it would pass unprotected to a
// service that doesn't make the difference.
func forwardable(method string) bool {
	return method != http.MethodConnect && method != http.MethodTrace && method == strings.ToUpper(method)
}

// overrideHeaders ask a service for another method than the request has.
var overrideHeaders = [...]string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override"}

// overrideQuery does the same in the query, and in forms, where the gateway does not look.
const overrideQuery = "_method"

// overridden reports whether a request asks for another method than its own: the guard goes by the request's own.
func overridden(r *http.Request) bool {
	other := func(method string) bool { return !strings.EqualFold(strings.TrimSpace(method), r.Method) }
	for _, name := range overrideHeaders {
		if slices.ContainsFunc(r.Header[name], other) {
			return true
		}
	}
	return slices.ContainsFunc(queryOverrides(r.URL.RawQuery), other)
}

// queryOverrides returns what a query asks for. It goes on past what net/url refuses, such as thousands of parameters,
// and takes a semicolon for an ampersand: some services do.
func queryOverrides(query string) (methods []string) {
	for pair := range strings.SplitSeq(strings.ReplaceAll(query, ";", "&"), "&") {
		name, value, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err != nil || decoded != overrideQuery {
			continue
		}
		if decoded, err := url.QueryUnescape(value); err == nil {
			value = decoded
		}
		methods = append(methods, value)
	}
	return methods
}

// clean drops headers whose names a service may take for others, and those that the client's Connection header ends
// here, so that guard and service see the same request.
func (s *screen) clean(r *http.Request) {
	s.dropOdd(r.Header)
	for _, line := range r.Header["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			name := http.CanonicalHeaderKey(textproto.TrimString(option))
			if name != "Upgrade" && name != "Te" && name != "Connection" && !s.own[name] {
				delete(r.Header, name)
			}
		}
	}
}

// dropOdd drops the headers whose names are of more than letters, digits and hyphens, and counts them. To a service
// that reads headers as CGI, WSGI or Rack hand them over X_Account is X-Account. Even where such names are kept those
// go that would be read as one of the gateway's own.
func (s *screen) dropOdd(h http.Header) {
	n := 0
	for name := range h {
		if plainName(name) || s.keepNames && !s.own[http.CanonicalHeaderKey(hyphened(name))] {
			continue
		}
		delete(h, name)
		n++
	}
	if n > 0 && s.dropped != nil {
		s.dropped(n)
	}
}

func plainName(name string) bool {
	for i := range len(name) {
		if !isAlphanumeric(name[i]) && name[i] != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// hyphened is a name as a service may read it.
func hyphened(name string) string {
	b := []byte(name)
	for i := range b {
		if !isAlphanumeric(b[i]) {
			b[i] = '-'
		}
	}
	return string(b)
}
