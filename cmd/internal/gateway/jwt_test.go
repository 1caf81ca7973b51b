package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/semelhq/semel/refusal"
)

// An issuer signs tokens.
type issuer struct {
	id  string
	alg jose.SignatureAlgorithm
	key any
}

func newIssuer(t *testing.T, id string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{id, jose.ES256, key}
}

// set is the issuer's JWK Set.
func (i *issuer) set(t *testing.T) string {
	t.Helper()
	key := jose.JSONWebKey{Key: i.key, KeyID: i.id}
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

const tokenIssuer, tokenAudience = "https://login.example.com/", "payments"

// token is a bearer token of alice's, with some claims changed; nil takes one out.
func (i *issuer) token(t *testing.T, change map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"iss": tokenIssuer, "aud": []string{"others", tokenAudience}, "sub": "alice", "tenant": "acme",
		"exp": time.Now().Add(time.Hour).Unix(), "nbf": time.Now().Add(-time.Hour).Unix(),
	}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: i.alg, Key: i.key}, (&jose.SignerOptions{}).WithHeader("kid", i.id))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + token
}

func byToken(keys string) func(*Config) {
	return func(c *Config) {
		c.Scope = Scope{jwt: true, set: true}
		c.JWT = JWT{Keys: keys, Algorithms: []string{"ES256"}, Issuer: tokenIssuer, Audience: tokenAudience}
	}
}

func TestAttack02_R11_R12_AVerifiedTokenTellsWhoAsks(t *testing.T) {
	t.Parallel()
	i, u := newIssuer(t, "k1"), newUpstream(t, created)
	g := start(t, u.URL, byToken(writeFile(t, "jwks.json", i.set(t))))
	alice := i.token(t, nil)
	postAs(t, g, "k", alice).wants(t, 201, "")
	for name, token := range map[string]string{
		"the same": alice, "renewed": i.token(t, map[string]any{"exp": time.Now().Add(2 * time.Hour).Unix(), "jti": "2"}),
		"with one audience": i.token(t, map[string]any{"aud": tokenAudience}), "in another case": "bearer " + strings.TrimPrefix(alice, "Bearer "),
		"within the leeway": i.token(t, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}),
	} {
		if a := postAs(t, g, "k", token); a.status != 201 || !a.replayed() {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := postAs(t, g, "k", i.token(t, map[string]any{"sub": "bob"})); a.status != 201 || a.replayed() {
		t.Errorf("bob's own operation under the same key: %d, replayed %v", a.status, a.replayed())
	}
	if n := u.executions("k"); n != 2 {
		t.Errorf("%d executions, want one each", n)
	}
}

func TestAttack02_R11_ATokenThatIsNotVerifiedIsNobody(t *testing.T) {
	t.Parallel()
	i, u := newIssuer(t, "k1"), newUpstream(t, created)
	g := start(t, u.URL, byToken(writeFile(t, "jwks.json", i.set(t))))
	good := i.token(t, nil)
	head, rest, _ := strings.Cut(strings.TrimPrefix(good, "Bearer "), ".")
	payload, signature, _ := strings.Cut(rest, ".")
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	public, err := x509.MarshalPKIXPublicKey(i.key.(*ecdsa.PrivateKey).Public())
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	forged := part(strings.Replace(string(decoded(t, payload)), "alice", "admin", 1))
	now := time.Now()
	for name, token := range map[string]string{
		"none":                     "",
		"not a bearer":             "Basic YWxpY2U6cHc=",
		"empty":                    "Bearer ",
		"no token":                 "Bearer abc",
		"alg none":                 "Bearer " + part(`{"alg":"none"}`) + "." + payload + ".",
		"no signature":             "Bearer " + head + "." + payload + ".",
		"another's payload":        "Bearer " + head + "." + forged + "." + signature,
		"HMAC by the public key":   (&issuer{"k1", jose.HS256, public}).token(t, nil),
		"another algorithm":        (&issuer{"k1", jose.RS256, rsaKey}).token(t, nil),
		"a key of the same id":     newIssuer(t, "k1").token(t, nil),
		"a key that nobody knows":  newIssuer(t, "k2").token(t, nil),
		"expired":                  i.token(t, map[string]any{"exp": now.Add(-time.Minute).Unix()}),
		"never expiring":           i.token(t, map[string]any{"exp": nil}),
		"not yet valid":            i.token(t, map[string]any{"nbf": now.Add(10 * time.Minute).Unix()}),
		"another issuer's":         i.token(t, map[string]any{"iss": "https://evil.example/"}),
		"without an issuer":        i.token(t, map[string]any{"iss": nil}),
		"for another service":      i.token(t, map[string]any{"aud": "shop"}),
		"for nobody":               i.token(t, map[string]any{"aud": nil}),
		"without a subject":        i.token(t, map[string]any{"sub": nil}),
		"with an empty subject":    i.token(t, map[string]any{"sub": ""}),
		"of a subject that's none": i.token(t, map[string]any{"sub": 7}),
		"too long":                 i.token(t, map[string]any{"x": strings.Repeat("x", jwtLongest)}),
		"with spaces behind":       good + " x",
	} {
		a := postAs(t, g, "k", token)
		if a.status != 400 || !strings.Contains(a.body, string(refusal.ScopeInvalid)) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	ask(t, "POST", g.url+"/accounts", "{}", "Idempotency-Key", "k", "Authorization", good, "Authorization", good).wants(t, 400, refusal.ScopeInvalid)
	if n := len(u.requests()); n != 0 {
		t.Errorf("the service was asked %d times", n)
	}
	postAs(t, g, "k", good).wants(t, 201, "")
}

func decoded(t *testing.T, part string) []byte {
	t.Helper()
	plain, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// Keys at an address, and several claims, which never run into each other.
func TestAttack02_R11_KeysAtAnAddressAndSeveralClaims(t *testing.T) {
	t.Parallel()
	i, u := newIssuer(t, "k1"), newUpstream(t, created)
	keys := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(i.set(t))) })
	g := start(t, u.URL, byToken(keys.URL), func(c *Config) { c.JWT.Claims = []string{"tenant", "sub"} })
	for _, c := range []struct {
		tenant, sub string
		replayed    bool
	}{{"acme", "ann", false}, {"acme", "ann", true}, {"acm", "eann", false}, {"acme3:", "nn", false}, {"acme", "bob", false}} {
		a := postAs(t, g, "k", i.token(t, map[string]any{"tenant": c.tenant, "sub": c.sub}))
		if a.status != 201 || a.replayed() != c.replayed {
			t.Errorf("%v: %d %s, replayed %v", c, a.status, a.body, a.replayed())
		}
	}
	postAs(t, g, "k", i.token(t, map[string]any{"tenant": nil})).wants(t, 400, refusal.ScopeInvalid)
	if n := len(keys.requests()); n != 1 {
		t.Errorf("the keys were fetched %d times, want once", n)
	}

	// An issuer that gives no keys lets nobody in.
	broken := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Redirect(w, &http.Request{}, keys.URL, http.StatusFound)
	})
	g = start(t, u.URL, byToken(broken.URL))
	postAs(t, g, "k", i.token(t, nil)).wants(t, 400, refusal.ScopeInvalid)
}

func TestAttack02_KeysAreReadAgainWhenTheyRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := newIssuer(t, "k1"), newIssuer(t, "k2")
		var (
			now  = first
			down atomic.Bool
			read atomic.Int32
		)
		k := keySet{read: func(context.Context) (*jose.JSONWebKeySet, error) {
			read.Add(1)
			if down.Load() {
				return nil, errors.New("down")
			}
			return parseKeys([]byte(now.set(t)))
		}}
		has := func(id string, want bool, reads int32) {
			t.Helper()
			_, err := k.find(t.Context(), id, "ES256")
			synctest.Wait()
			if (err == nil) != want || read.Load() != reads {
				t.Errorf("%s: %v after %d reads, want %v after %d", id, err, read.Load(), want, reads)
			}
		}
		has("k1", true, 1)
		now = second
		for range 100 {
			has("k2", false, 1) // unknown keys can't have them read again and again
		}
		time.Sleep(jwksAgain)
		has("k2", true, 2)
		has("k1", false, 2)
		time.Sleep(jwksFresh + time.Second)
		down.Store(true)
		has("k2", true, 3) // old ones stay for a while
		has("k2", true, 3)
		time.Sleep(jwksKept)
		has("k2", false, 4)
		down.Store(false)
		time.Sleep(jwksAgain)
		has("k2", true, 5)
	})
}

func TestAttack02_WhatIsWrongWithTheSettingsOfTokensIsSaid(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "k1")
	file := writeFile(t, "jwks.json", i.set(t))
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key, KeyID: "k1"}}})
	if err != nil {
		t.Fatal(err)
	}
	const upstream = "upstream: http://127.0.0.1:9000\n"
	good := upstream + "scope: jwt\njwt: {keys: " + file + ", algorithms: [ES256], issuer: i, audience: a}\n"
	if c, err := load(t, good); err != nil || c.Scope.String() != "jwt" || c.Scope.Single() || c.JWT.Issuer != "i" {
		t.Fatalf("%v, %+v", err, c.JWT)
	}
	for content, want := range map[string]string{
		upstream + "scope: jwt\n":                                                                        "jwt.keys is missing",
		upstream + "scope: single\njwt: {issuer: i}\n":                                                   "jwt is only for scope: jwt",
		strings.Replace(good, "[ES256]", "[HS256]", 1):                                                   `jwt.algorithms: "HS256" is none of RS256`,
		strings.Replace(good, "[ES256]", "[none]", 1):                                                    `jwt.algorithms: "none" is none of RS256`,
		strings.Replace(good, "issuer: i, ", "", 1):                                                      "jwt.issuer is missing",
		strings.Replace(good, ", audience: a", "", 1):                                                    "jwt.audience is missing",
		strings.Replace(good, "audience: a", "audience: a, leeway: 1h", 1):                               "jwt.leeway is 1h0m0s, want at most 5m0s",
		strings.Replace(good, "audience: a", "audience: a, claims: []", 1):                               "jwt.claims: want names of claims",
		strings.Replace(good, file, file+".none", 1):                                                     "jwt.keys: read the key set",
		strings.Replace(good, file, "http://login.example.com/keys", 1):                                  "want https://",
		strings.Replace(good, file, "https://u:p@login.example.com/keys", 1):                             "user and password don't belong",
		strings.Replace(good, file, writeFile(t, "jwks.json", string(private)), 1):                       "is not a public key",
		strings.Replace(good, file, writeFile(t, "jwks.json", `{"keys":[]}`), 1):                         "it has no keys",
		strings.Replace(good, file, writeFile(t, "jwks.json", `{"keys":[{"kty":"oct","k":"AAAA"}]}`), 1): "is not a public key",
	} {
		if _, err := load(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
}
