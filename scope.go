package semel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/semelhq/semel/internal/certsubject"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/structuredfield"
)

// A Scope tells who asks: the authenticated principal or tenant of an HTTP request. Two principals never get each
// other's operations, whatever keys they choose. A Scope must be stable: with a refreshed access token, the same
// principal is still the same principal. The zero Scope is refused by [New].
type Scope struct {
	of     func(*http.Request) (string, error)
	single bool  // there is only one principal
	err    error // what is wrong with the Scope, reported by New
}

// SingleTenant says that there is only one principal.
var SingleTenant = Scope{of: func(*http.Request) (string, error) { return "single", nil }, single: true}

// ScopeFunc takes the principal from a function. An error, or an empty string, refuses a keyed request with 400; the
// error's text is not shown to the client.
func ScopeFunc(of func(*http.Request) (string, error)) Scope {
	if of == nil {
		return Scope{err: errors.New("scope: the function is nil")}
	}
	return Scope{of: of}
}

// ScopeContext takes the principal from the request's context, where the authentication middleware has put it under
// key, as a string or fmt.Stringer. Use an account's id, or the subject of a verified JWT, but not the token itself.
func ScopeContext(key any) Scope {
	if key == nil {
		return Scope{err: errors.New("scope: the context key is nil")}
	}
	return Scope{of: func(r *http.Request) (string, error) { return contextScope(r.Context(), key) }}
}

func contextScope(ctx context.Context, key any) (string, error) {
	switch v := ctx.Value(key).(type) {
	case string:
		return v, nil
	case fmt.Stringer:
		return v.String(), nil
	case nil:
		return "", fmt.Errorf("scope: no value in the context under %v", key)
	default:
		return "", fmt.Errorf("scope: the value in the context under %v is a %T, want a string", key, v)
	}
}

// ScopeClientCert takes the principal from the subject of the verified TLS client certificate, as RFC 4514 writes it.
// The authority that has signed the certificate does not count: accept only authorities that give each subject to one
// client only.
var ScopeClientCert = Scope{of: func(r *http.Request) (string, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return "", errors.New("scope: no verified client certificate")
	}
	subject, ok := certsubject.Of(r.TLS.VerifiedChains[0][0])
	if !ok {
		return "", errors.New("scope: the client's certificate has no subject")
	}
	return subject, nil
}}

// ScopeTrustedHeader takes the principal from a request header that a trusted proxy sets. The header counts only if the
// connection comes from one of the proxies' networks; if none is given, only from loopback. Anybody else could write
// the header, so from elsewhere a keyed request is refused.
func ScopeTrustedHeader(name string, proxies ...netip.Prefix) Scope {
	if !structuredfield.IsToken(name) {
		return Scope{err: fmt.Errorf("scope: %q is not a header name", name)}
	}
	if len(proxies) == 0 {
		proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	networks := make([]netip.Prefix, 0, len(proxies))
	for _, p := range proxies {
		if !p.IsValid() {
			return Scope{err: errors.New("scope: a proxy's network is not valid")}
		}
		networks = append(networks, network.PlainPrefix(p))
	}
	name = http.CanonicalHeaderKey(name)
	return Scope{of: func(r *http.Request) (string, error) {
		if !network.Contain(networks, network.Peer(r.RemoteAddr)) {
			return "", fmt.Errorf("scope: %s came from %s, which is no trusted proxy", name, r.RemoteAddr)
		}
		switch v := r.Header[name]; len(v) {
		case 0:
			return "", fmt.Errorf("scope: no %s header", name)
		case 1:
			return v[0], nil
		default:
			return "", fmt.Errorf("scope: %d %s headers", len(v), name)
		}
	}}
}

// ScopeAll takes the principal from all of the scopes together, such as a tenant and one of its users. Two requests
// have the same principal if they agree in each scope. If one scope refuses a request, it is refused. With a single
// scope, ScopeAll is that scope. The text of a principal is that of each part, after its length in bytes and a colon:
// "4:acme3:ann".
func ScopeAll(scopes ...Scope) Scope {
	var errs []error
	for _, s := range scopes {
		switch {
		case s.err != nil:
			errs = append(errs, s.err)
		case s.of == nil:
			errs = append(errs, errors.New("scope: one of several is zero"))
		}
	}
	switch {
	case len(scopes) == 0:
		return Scope{err: errors.New("scope: none of several is given")}
	case len(errs) > 0:
		return Scope{err: errors.Join(errs...)}
	case len(scopes) == 1:
		return scopes[0]
	}
	scopes = slices.Clone(scopes)
	return Scope{of: func(r *http.Request) (string, error) {
		var all []byte
		for _, s := range scopes {
			part, err := s.of(r)
			switch {
			case err != nil:
				return "", err
			case part == "":
				return "", errors.New("scope: one of several is empty")
			}
			// The length comes first, so that two different lists never make the same text.
			all = fmt.Appendf(all, "%d:%s", len(part), part)
		}
		return string(all), nil
	}}
}
