package gateway

import (
	"net/http"
	"slices"
	"strings"
)

// warn says which requests can take effect more than once, and to whom answers are given, as far as that shows in the
// configuration.
func (c *Config) warn() {
	for _, name := range c.Scope.headers() {
		if rotates(name) {
			c.Log.Warn("the scope is a credential: once it is renewed its client is another principal, and its repeats run again; name a header that says who the client is",
				"header", name)
		}
	}
	c.warnOfReplay()
	if most := enough(descriptors()); c.MaxConnections > most {
		c.Log.Warn("max_connections leaves too few open files for the upstream, the store and administration: raise the limit of open files, or lower it",
			"max_connections", c.MaxConnections, "goes_with_the_limit", most)
	}
	if c.Plain == PlainAllowed {
		c.Log.Warn("stored answers that are not encrypted are replayed, whoever wrote them: say encryption: required once the longest retention has passed")
	}
	for _, r := range c.all() {
		if r.Unkeyed == UnkeyedPass {
			c.Log.Warn("requests without a key pass unprotected", "route", r.name(), "methods", r.passes())
		}
		if r.Policy.ObserveOnly {
			c.Log.Warn("the route only observes: no request is refused or replayed", "route", r.name(), "methods", r.protects())
		}
		r.warnOfMint(c)
	}
	c.warnOfReadings()
}

// warnOfReadings says by which other readings of a request a service may be reached past its route.
func (c *Config) warnOfReadings() {
	if c.KeepUnderscores {
		c.Log.Warn("headers with underscores in their names pass: a service that reads them as WSGI or CGI do takes X_Name for X-Name")
	}
	refusing := slices.ContainsFunc(c.Routes, func(r Route) bool { return r.Unkeyed == UnkeyedRefuse || r.Unkeyed == UnkeyedMint })
	if !refusing || c.Default.Unkeyed == UnkeyedRefuse {
		return
	}
	if c.MatchCase == nil {
		c.Log.Warn("upper and lower case differ in paths: a service for which they do not is reached past its routes; say match_case: false, or true if they do")
	}
	if c.PassAmbiguous {
		c.Log.Warn("paths with several readings pass: a service that reads //a or /a%2Fb otherwise is reached past its routes")
	}
	if c.PassOverrides {
		c.Log.Warn("requests may ask for another method than their own: a service that heeds that is reached past its routes")
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		if method, _, found := strings.Cut(r.Match, " "); found && method != http.MethodPost && r.Unkeyed != UnkeyedPass {
			c.Log.Warn("a service that takes the method from _method in a form is reached past the route, which is for another method than POST", "route", r.name())
		}
	}
}

// warnOfMint says where the repeats of a client that sends no key would not be known as such.
func (r *Route) warnOfMint(c *Config) {
	if r.Unkeyed != UnkeyedMint {
		return
	}
	for _, field := range r.Mint.Fields {
		if varies(field) || strings.EqualFold(field, headerField+c.CorrelationHeader) {
			c.Log.Warn("keys are minted from what differs from one attempt to the next: a repeat gets another key, and runs again",
				"route", r.name(), "field", field)
		}
	}
	if f := &r.Policy.Fingerprint; f.Exclude == nil && f.ExcludeNames == nil {
		c.Log.Warn("repeats without a key are compared by their whole bodies: one with another timestamp or nonce is refused with 422; "+
			"name such fields in exclude, or say exclude: [] if there are none", "route", r.name())
	}
}

// rotates reports whether a header carries a credential that is renewed, and not who has it.
func rotates(header string) bool {
	switch http.CanonicalHeaderKey(header) {
	case "Authorization", "Proxy-Authorization", "Cookie":
		return true
	}
	return slices.ContainsFunc([]string{"token", "session", "jwt", "signature"}, func(part string) bool {
		return strings.Contains(strings.ToLower(header), part)
	})
}

// varies reports whether a field of Mint is one that clients make anew for each attempt, going by its name.
func varies(field string) bool {
	name := field[strings.LastIndexAny(field, ":/")+1:]
	switch strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name)) {
	case "timestamp", "time", "ts", "date", "now", "nonce", "createdat", "sentat", "requestedat", "requesttime", "requestid", "xrequestid",
		"correlationid", "xcorrelationid", "traceid", "traceparent", "attempt", "retry", "signature", "authorization":
		return true
	}
	return false
}
