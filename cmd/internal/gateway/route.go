package gateway

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// A Route says how requests are treated. It is whole: nothing is taken over from another one.
type Route struct {
	// Match is a pattern of [http.ServeMux], such as "POST /payments/{id}"; it names the operation in records, logs and
	// metrics. Empty in [Config].Default, whose operations are named by method and path.
	Match string
	// Policy is the guard's. Operation, Decide, KeyOptional, Mint, Problems and AuthorizeReplay are the gateway's
	// to set.
	Policy semel.Policy
	// Unkeyed says what becomes of a POST or PATCH without a key, or, if Policy.Methods names methods, of one of these.
	// Others pass without one. Defaults to passing it on unprotected.
	Unkeyed Unkeyed
	// Mint says what keys are made from, with UnkeyedMint.
	Mint Mint
	// KeyPattern, if set, is what a whole key must match.
	KeyPattern *regexp.Regexp
	// KeepIf, if set, keeps a successful answer only if its body says so.
	KeepIf *Condition
	// ReleaseOn lists statuses by which the upstream promises that nothing happened.
	ReleaseOn []int
	// Problems is the form of the guard's and the gateway's own answers.
	Problems Problems
	// Reconcile is the path at the upstream that is asked about an operation whose outcome is unknown, with {operation}
	// for its id (R-75a). Defaults to none.
	Reconcile string
	// ReplayTo says to whom stored answers are given. Where Policy.Credentials names none, they are, if there is only one
	// principal, what services commonly read credentials from, and else none: the scope tells who asks.
	ReplayTo ReplayTo
	// Authorize is the path at the upstream, or the address of a service of its own, that is asked whether a stored answer
	// may be given to a repeat with other credentials than the first request, or, where none are compared, to any.
	// Defaults to none.
	Authorize string
}

// Unkeyed says what becomes of a request without a key.
type Unkeyed uint8

const (
	// UnkeyedPass passes it on unprotected, and counts it.
	UnkeyedPass Unkeyed = iota
	// UnkeyedRefuse refuses it with 400.
	UnkeyedRefuse
	// UnkeyedMint makes its key from named fields, so that a repeat gets the same one; see [Mint].
	UnkeyedMint
	// UnkeyedMintRandom gives it a key of its own, by which its client can find out what became of it. A repeat runs
	// again.
	UnkeyedMintRandom
)

var unkeyedNames = map[string]Unkeyed{
	"pass": UnkeyedPass, "refuse": UnkeyedRefuse, "mint": UnkeyedMint, "mint-random": UnkeyedMintRandom,
}

// ParseUnkeyed reads "pass", "refuse", "mint" or "mint-random".
func ParseUnkeyed(s string) (Unkeyed, bool) {
	u, ok := unkeyedNames[s]
	return u, ok
}

func (u Unkeyed) String() string {
	for name, v := range unkeyedNames {
		if v == u {
			return name
		}
	}
	return "unknown"
}

// Problems is the form of the gateway's and the guard's own answers on a route (R-76a).
type Problems struct {
	// Statuses replaces the statuses of some codes; 400 to 599.
	Statuses map[refusal.Code]int
	// Simple answers with {"success":false,"error":{"code":…,"message":…}} instead of application/problem+json.
	Simple bool
	// Documentation is the address of the API's page about idempotency. Defaults to [Config].Documentation.
	Documentation string
}

// policy returns the guard's policy of the route.
func (r *Route) policy(c *Config) semel.Policy {
	p := r.Policy
	p.Operation = r.Match
	p.Decide = r.decide
	p.Credentials = r.credentials(c)
	p.KeyOptional = r.Unkeyed == UnkeyedPass
	p.Problems = newForm(c, r).guards()
	if c.PassOverrides {
		p.Fingerprint.Headers = append(slices.Clone(p.Fingerprint.Headers), overrideHeaders[:]...)
	}
	if r.KeyPattern != nil {
		p.KeyFormat.Check = r.checkKey
	}
	switch r.Unkeyed {
	case UnkeyedMint:
		p.Mint = r.Mint.minter(r.Match, c.IdentitySecret)
	case UnkeyedMintRandom:
		p.Mint = mintRandom
	}
	return p
}

// checkKey refuses a key that does not match the route's pattern, which is no secret.
func (r *Route) checkKey(key string) error {
	if at := r.KeyPattern.FindStringIndex(key); at == nil || at[0] > 0 || at[1] < len(key) {
		return fmt.Errorf("does not match %s", r.KeyPattern)
	}
	return nil
}

// methods are those that the route's policy protects with a key and without; if it names none, also others that carry
// one.
func (r *Route) methods() []string {
	if len(r.Policy.Methods) > 0 {
		return r.Policy.Methods
	}
	return []string{http.MethodPost, http.MethodPatch}
}

// protects says for people which methods the route protects and whose requests can come to it.
func (r *Route) protects() []string {
	if method, _, found := strings.Cut(r.Match, " "); found {
		return []string{method}
	}
	if len(r.Policy.Methods) == 0 {
		return append(r.methods(), "others keyed")
	}
	return r.methods()
}

// passes are the methods whose requests without a key pass unprotected, if the route lets any.
func (r *Route) passes() []string {
	if method, _, found := strings.Cut(r.Match, " "); found {
		return []string{method}
	}
	return r.methods()
}

// keyHeaders are the names under which the key may come, in canonical form.
func (r *Route) keyHeaders() []string {
	if len(r.Policy.KeyHeaders) == 0 {
		return []string{"Idempotency-Key"}
	}
	names := slices.Clone(r.Policy.KeyHeaders)
	for i, n := range names {
		names[i] = http.CanonicalHeaderKey(n)
	}
	return names
}

// name is how the route is called towards operators.
func (r *Route) name() string {
	if r.Match == "" {
		return "default"
	}
	return r.Match
}

// mintsFor is how long minted keys are remembered, if that differs from the route's retention; else 0.
func (r *Route) mintsFor() time.Duration {
	if r.Unkeyed != UnkeyedMint {
		return 0
	}
	return r.Mint.Window
}
