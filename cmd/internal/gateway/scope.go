package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
)

// Scope says how the gateway tells who asks. There is no default: whoever runs it must know.
type Scope struct {
	header string // with a comma between several; "" and neither of the two below: there is only one principal
	jwt    bool   // a verified token tells who asks; see [JWT]
	mtls   bool   // the client's certificate does; see [MTLS]
	set    bool
}

// ParseScope reads "single", for one principal only; "jwt", for the bearer token that [JWT] says how to verify; "mtls",
// for the client's certificate; or "header:NAME", for the header in which a trusted proxy names the authenticated
// principal; "header:NAME,NAME" for several that name it together, such as a tenant and a user of it.
func ParseScope(s string) (Scope, error) {
	switch s {
	case "single":
		return Scope{set: true}, nil
	case "jwt":
		return Scope{jwt: true, set: true}, nil
	case "mtls":
		return Scope{mtls: true, set: true}, nil
	}
	list, ok := strings.CutPrefix(s, headerField)
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		ok = ok && names[i] != ""
	}
	if !ok {
		return Scope{}, fmt.Errorf("scope %q: want header:NAME, the header in which a trusted proxy says who asks (header:NAME,NAME for several), jwt, for a bearer token, mtls, for a client certificate, or single, if there is only one principal", s)
	}
	return Scope{header: strings.Join(names, ","), set: true}, nil
}

// Single reports whether there is only one principal.
func (s Scope) Single() bool { return s.set && s.header == "" && !s.jwt && !s.mtls }

func (s Scope) String() string {
	switch {
	case s.jwt:
		return "jwt"
	case s.mtls:
		return "mtls"
	case s.header == "":
		return "single"
	}
	return headerField + s.header
}

// headers are the names of the headers that tell who asks, in canonical form; none if it is not headers that do.
func (s Scope) headers() (names []string) {
	if s.header == "" {
		return nil
	}
	for name := range strings.SplitSeq(s.header, ",") {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	return names
}

// guard returns the library's scope; its zero value, which New refuses, if none was decided.
func (s Scope) guard(trusted []netip.Prefix, v *verifier, m *clientCertificates) semel.Scope {
	switch {
	case !s.set:
		return semel.Scope{}
	case s.jwt:
		return semel.ScopeFunc(v.principal)
	case s.mtls:
		return semel.ScopeFunc(m.principal)
	case s.header == "":
		return semel.SingleTenant
	}
	var parts []semel.Scope
	for _, name := range s.headers() {
		parts = append(parts, semel.ScopeTrustedHeader(name, trusted...))
	}
	return semel.ScopeAll(parts...)
}

// values returns what the headers held of a principal, by its text: that of semel.ScopeAll.
func (s Scope) values(principal string) ([]string, error) {
	names := s.headers()
	if len(names) < 2 {
		return []string{principal}, nil
	}
	var values []string
	for principal != "" {
		digits, rest, _ := strings.Cut(principal, ":")
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > len(rest) {
			break
		}
		values, principal = append(values, rest[:n]), rest[n:]
	}
	if principal != "" || len(values) != len(names) {
		return nil, errors.New("the principal is not one of this scope: was it another one when the request came?")
	}
	return values, nil
}
