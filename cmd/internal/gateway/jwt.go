package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// JWT says how a bearer token is verified that tells who asks (RFC 6750, RFC 7519), with scope jwt.
type JWT struct {
	// Keys is where the issuer's public keys are, a JWK Set (RFC 7517): a file, or an https:// address; http:// on this
	// machine only.
	Keys string
	// Algorithms are the only ones that a token may be signed with: of RS256, RS384, RS512, PS256, PS384, PS512, ES256,
	// ES384, ES512 and EdDSA.
	Algorithms []string
	// Issuer is the only one whose tokens count, and Audience must be among those that a token is for.
	Issuer, Audience string
	// Claims name the principal: texts, all of which a token must have. Defaults to sub.
	Claims []string
	// Leeway is how far the issuer's clock may be off; at most 5 min. Defaults to 30 s.
	Leeway time.Duration
}

const (
	jwtLeeway     = 30 * time.Second
	jwtMostLeeway = 5 * time.Minute
	jwtLongest    = 16 << 10 // bytes of a token
	jwksLargest   = 1 << 20  // bytes of a key set
	jwksFresh     = 5 * time.Minute
	jwksKept      = time.Hour        // without a fresh one
	jwksAgain     = 10 * time.Second // between two attempts to get it
	jwksTime      = 5 * time.Second
)

var jwtAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// check says what is wrong with the settings of scope jwt, or that they are there without it.
func (j *JWT) check(scope Scope, fail func(string, string, ...any)) {
	if !scope.jwt {
		if j.Keys != "" || j.Issuer != "" || j.Audience != "" || j.Algorithms != nil || j.Claims != nil || j.Leeway != 0 {
			fail("jwt", "jwt is only for scope: jwt")
		}
		return
	}
	for _, s := range []struct{ name, value, what string }{
		{"keys", j.Keys, "a JWK Set, in a file or at an https:// address"},
		{"issuer", j.Issuer, "the iss of its tokens"},
		{"audience", j.Audience, "the aud that tokens for this service have"},
	} {
		if s.value == "" {
			fail("jwt", "jwt.%s is missing: %s", s.name, s.what)
		}
	}
	if len(j.Algorithms) == 0 {
		fail("jwt", "jwt.algorithms is missing: those that the issuer signs with, such as [RS256]")
	}
	for _, a := range j.Algorithms {
		if !slices.Contains(jwtAlgorithms, a) {
			fail("jwt.algorithms", "jwt.algorithms: %q is none of %s", a, strings.Join(jwtAlgorithms, ", "))
		}
	}
	if j.Claims != nil && (len(j.Claims) == 0 || slices.Contains(j.Claims, "")) {
		fail("jwt.claims", "jwt.claims: want names of claims; sub is the default")
	}
	if j.Leeway < 0 || j.Leeway > jwtMostLeeway {
		fail("jwt.leeway", "jwt.leeway is %v, want at most %v", j.Leeway, jwtMostLeeway)
	}
	if j.Keys == "" {
		return
	}
	if address, remote, err := j.address(); err != nil {
		fail("jwt.keys", "jwt.keys: %v", err)
	} else if !remote {
		if _, err := readKeyFile(address); err != nil {
			fail("jwt.keys", "jwt.keys: %v", err)
		}
	}
}

// address returns where the keys are, and whether that is an address and no file.
func (j *JWT) address() (string, bool, error) {
	if !strings.Contains(j.Keys, "://") {
		return j.Keys, false, nil
	}
	u, err := url.Parse(j.Keys)
	switch {
	case err != nil:
		return "", true, errors.New("this is no address")
	case u.User != nil:
		return "", true, errors.New("user and password don't belong into the address; they would not be sent")
	case u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return "", true, fmt.Errorf("%s: want a file or an https:// address", j.Keys)
	case u.Scheme == "http" && !thisMachine(u.Hostname()):
		return "", true, fmt.Errorf("%s: want https://: whoever is on the way could give keys of their own", j.Keys)
	}
	return j.Keys, true, nil
}

func thisMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A verifier tells the principal of a request by its bearer token.
type verifier struct {
	settings   JWT
	algorithms []jose.SignatureAlgorithm
	keys       keySet
}

func newVerifier(j JWT, client *http.Client) *verifier {
	v := &verifier{settings: j}
	if len(j.Claims) == 0 {
		v.settings.Claims = []string{"sub"}
	}
	if j.Leeway == 0 {
		v.settings.Leeway = jwtLeeway
	}
	for _, a := range j.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(a))
	}
	address, remote, _ := j.address() // check has refused what is none
	v.keys.read = func(ctx context.Context) (*jose.JSONWebKeySet, error) {
		if remote {
			return fetchKeys(ctx, client, address)
		}
		return readKeyFile(address)
	}
	return v
}

// principal returns who asks. Its text is that of semel.ScopeAll for several claims. Nothing of a token counts before
// its signature is verified, but the id of the key that it names.
func (v *verifier) principal(r *http.Request) (string, error) {
	lines := r.Header["Authorization"]
	if len(lines) != 1 {
		return "", fmt.Errorf("scope: %d Authorization headers, want one with a bearer token", len(lines))
	}
	scheme, raw, _ := strings.Cut(lines[0], " ")
	if raw = strings.TrimSpace(raw); !strings.EqualFold(scheme, "Bearer") || raw == "" || len(raw) > jwtLongest {
		return "", errors.New("scope: the Authorization header has no bearer token")
	}
	token, err := jwt.ParseSigned(raw, v.algorithms)
	if err != nil {
		return "", fmt.Errorf("scope: read the token: %w", err)
	}
	if len(token.Headers) != 1 {
		return "", errors.New("scope: the token has not one signature")
	}
	key, err := v.keys.find(r.Context(), token.Headers[0].KeyID, token.Headers[0].Algorithm)
	if err != nil {
		return "", fmt.Errorf("scope: %w", err)
	}
	var (
		standard jwt.Claims
		all      map[string]any
	)
	if err := token.Claims(key.Key, &standard, &all); err != nil {
		return "", fmt.Errorf("scope: verify the token: %w", err)
	}
	if standard.Expiry == nil {
		return "", errors.New("scope: the token never expires")
	}
	if err := standard.ValidateWithLeeway(jwt.Expected{
		Issuer: v.settings.Issuer, AnyAudience: jwt.Audience{v.settings.Audience}, Time: time.Now(),
	}, v.settings.Leeway); err != nil {
		return "", fmt.Errorf("scope: %w", err)
	}
	var parts []string
	for _, name := range v.settings.Claims {
		value, ok := all[name].(string)
		if !ok || value == "" {
			return "", fmt.Errorf("scope: the token has no text as claim %s", name)
		}
		parts = append(parts, value)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	var text []byte
	for _, part := range parts {
		text = fmt.Appendf(text, "%d:%s", len(part), part)
	}
	return string(text), nil
}

// A keySet holds the issuer's keys. They are read again when they have become old, or when a token names one that is
// not among them, but not more often than every 10 s, whoever asks. Only who can't do without waits for that.
type keySet struct {
	read func(context.Context) (*jose.JSONWebKeySet, error)

	mu      sync.Mutex
	set     *jose.JSONWebKeySet
	at      time.Time // when set was read
	tried   time.Time
	reading chan struct{} // closed when the attempt under way has ended; nil if there is none
	err     error         // of the last attempt
}

// find returns the key that a token names. One that names none needs a set with only one that fits.
func (k *keySet) find(ctx context.Context, id, algorithm string) (*jose.JSONWebKey, error) {
	key, wait := k.look(id, algorithm)
	if key == nil && wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the issuer's keys: %w", ctx.Err())
		}
		key, _ = k.look(id, algorithm)
	}
	if key != nil {
		return key, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, fmt.Errorf("the issuer's keys could not be read: %w", k.err)
	}
	return nil, errors.New("the issuer has no key such as the token names")
}

// look returns the key, or nil; and, if the keys are being read, what is closed when that has ended.
func (k *keySet) look(id, algorithm string) (*jose.JSONWebKey, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.set != nil && now.Sub(k.at) > jwksKept {
		k.set = nil // one that was withdrawn must not count for ever
	}
	key := k.fitting(id, algorithm)
	if (key == nil || now.Sub(k.at) > jwksFresh) && k.reading == nil && (k.tried.IsZero() || now.Sub(k.tried) >= jwksAgain) {
		k.tried, k.reading = now, make(chan struct{})
		go k.refresh()
	}
	return key, k.reading
}

// refresh reads the keys again. If that fails the old ones stay.
func (k *keySet) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), jwksTime)
	defer cancel()
	set, err := k.read(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.set, k.at = set, time.Now()
	}
	close(k.reading)
	k.reading = nil
}

func (k *keySet) fitting(id, algorithm string) (found *jose.JSONWebKey) {
	if k.set == nil {
		return nil
	}
	for i := range k.set.Keys {
		key := &k.set.Keys[i]
		if key.Use == "enc" || key.Algorithm != "" && key.Algorithm != algorithm || id != "" && key.KeyID != id {
			continue
		}
		if found != nil {
			return nil // which one is meant can't be told
		}
		found = key
	}
	return found
}

func readKeyFile(name string) (*jose.JSONWebKeySet, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the key set: %w", err)
	}
	return parseKeys(content)
}

func fetchKeys(ctx context.Context, client *http.Client, address string) (*jose.JSONWebKeySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(io.LimitReader(res.Body, jwksLargest))
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetch the key set: %w", err)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("fetch the key set: the answer is %d", res.StatusCode)
	}
	return parseKeys(content)
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// parseKeys reads a JWK Set. A key that is secret has no place in it: whoever could read the set could sign.
func parseKeys(content []byte) (*jose.JSONWebKeySet, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("read the key set: %w", err)
	}
	for i := range set.Keys {
		if key := &set.Keys[i]; !key.IsPublic() {
			return nil, fmt.Errorf("read the key set: key %d (%q) is not a public key", i+1, key.KeyID)
		}
	}
	set.Keys = slices.DeleteFunc(set.Keys, func(key jose.JSONWebKey) bool { return !key.Valid() })
	if len(set.Keys) == 0 {
		return nil, errors.New("read the key set: it has no keys")
	}
	return &set, nil
}
