//go:build unix

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// signed is a token of a caller's of the payments API, with some claims changed.
func signed(t *testing.T, key jose.SigningKey, change map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": "https://login.example/", "aud": "payments", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, change)
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + token
}

func TestAttack02_R11_AForgedTokenGetsNothing(t *testing.T) {
	t.Parallel()
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	key := newKey()
	own, public := jose.SigningKey{Algorithm: jose.ES256, Key: key}, jose.JSONWebKey{Key: key.Public(), KeyID: "k1"}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
	if err != nil {
		t.Fatal(err)
	}
	alice := signed(t, own, nil)
	header, _, _ := strings.Cut(strings.TrimPrefix(alice, "Authorization: Bearer "), ".")
	_, payload, _ := strings.Cut(alice, ".")
	payload, signature, _ := strings.Cut(payload, ".")
	forged := map[string]string{
		"no token":          "X-Nothing: 1",
		"another key":       signed(t, jose.SigningKey{Algorithm: jose.ES256, Key: newKey()}, nil),
		"the public key":    signed(t, jose.SigningKey{Algorithm: jose.HS256, Key: set}, nil),
		"no algorithm":      "Authorization: Bearer " + base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k1"}`)) + "." + payload + ".",
		"another payload":   "Authorization: Bearer " + header + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"alice"}`)) + "." + signature,
		"expired":           signed(t, own, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"another service's": signed(t, own, map[string]any{"aud": "mail"}),
		"another issuer's":  signed(t, own, map[string]any{"iss": "https://login.evil/"}),
	}
	dir := t.TempDir()
	writeIn(t, dir, "jwks.json", string(set))
	service := newVictim(t)
	verifying := expose(t, dir, service.url, "store: memory://\nscope: jwt\njwt: {keys: jwks.json, algorithms: [ES256], issuer: https://login.example/, audience: payments}\n")
	trusting := expose(t, t.TempDir(), service.url, "store: memory://\nscope: single\ndefault: {replay_to: anyone}\n")
	for _, g := range []*exposed{verifying, trusting} {
		send(t, g.address, "POST /payments", alice, "Idempotency-Key: k").wants(t, "the first request", 201, "")
		if a := send(t, g.address, "POST /payments", signed(t, own, map[string]any{"jti": "2"}), "Idempotency-Key: k"); !a.replayed() {
			t.Errorf("with a renewed token: %d %s", a.status, a.body)
		}
	}
	for name, token := range forged {
		send(t, verifying.address, "POST /payments", token, "Idempotency-Key: k").wants(t, name, 400, "IDEMPOTENCY_SCOPE_INVALID")
		if a := send(t, trusting.address, "POST /payments", token, "Idempotency-Key: k"); !a.replayed() {
			t.Errorf("%s: %d where nothing is verified: no attack", name, a.status)
		}
	}
	if a := send(t, verifying.address, "POST /payments", signed(t, own, map[string]any{"sub": "bob"}), "Idempotency-Key: k"); a.status != 201 || a.replayed() {
		t.Errorf("bob's own: %d, replayed %t", a.status, a.replayed())
	}
	if n := service.requests("/payments"); n != 3 {
		t.Errorf("executed %d times, want each principal's first", n)
	}
}

func TestAttack03_NamesAndMethodsThatAServiceReadsOtherwise(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	const settings = "store: memory://\nscope: header:X-Account\n"
	g := expose(t, t.TempDir(), service.url, settings)
	open := expose(t, t.TempDir(), service.url, settings+"underscores: keep\nmethod_override: pass\n")
	for _, name := range []string{"X_Mine", "x_mine", "X.Mine"} {
		for _, key := range []string{"Idempotency-Key: " + name, "X-None: 1"} {
			for gateway, passes := range map[*exposed]bool{g: false, open: true} {
				send(t, gateway.address, "POST /payments", "X-Account: me", key, name+": 1", "X_Account: victim", "Idempotency_Fence: 9999").wants(t, name, 201, "")
				odd := 0
				for got, values := range service.last() {
					if strings.ContainsAny(got, "_.") {
						odd++
					}
					if values[0] == "victim" || values[0] == "9999" {
						t.Errorf("%s: %s is %q", name, got, values)
					}
				}
				if (odd > 0) != passes {
					t.Errorf("%s has passed: %t, want the other", name, odd > 0)
				}
			}
		}
	}
	before := service.requests("")
	for _, request := range [][2]string{
		{"TRACE /", ""},
		{"post /", ""},
		{"GET /", "X-HTTP-Method-Override: POST"},
		{"POST /", "X-HTTP-Method: DELETE"},
		{"POST /", "X-Method-Override: PUT"},
		{"POST /?_method=DELETE", ""},
		{"POST /?_m%65thod=DELETE", ""},
	} {
		header := append([]string{"X-Account: me"}, strings.Fields(strings.ReplaceAll(request[1], ": ", ":"))...)
		send(t, g.address, request[0], header...).wants(t, request[0]+" "+request[1], 501, "METHOD_REFUSED")
		if a := send(t, open.address, request[0], header...); (a.status == 201) == (request[0] == "TRACE /" || request[0] == "post /") {
			t.Errorf("%s: %d where overrides pass", request, a.status)
		}
	}
	if n := service.requests("") - before; n != 5 {
		t.Errorf("%d requests have reached the service, want those that were let", n)
	}
}

func TestAttack04_NoOtherSpellingPassesARoute(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	const settings = "store: memory://\nscope: single\nroutes: [{match: POST /payments, unkeyed: refuse}]\n"
	g := expose(t, t.TempDir(), service.url, settings+"match_case: false\n")
	open := expose(t, t.TempDir(), service.url, settings+"match_case: true\nambiguous_targets: pass\n")
	for spelling, status := range map[string]int{
		"/payments": 400, "/payments/": 400, "//payments": 400, "x:http://h/payments": 400, // wherever routes are
		"/PAYMENTS": 201, "/Payments/": 201, "/payments%2f": 201, "/payments;x": 201, "/x/%2e%2e/payments": 201, "/%252e/payments": 201, "/x/..%5cpayments": 201,
	} {
		if a := send(t, g.address, "POST "+spelling); a.status != 400 {
			t.Errorf("%s: %d", spelling, a.status)
		}
		if a := send(t, open.address, "POST "+spelling); a.status != status {
			t.Errorf("%s: %d where paths are not looked at, want %d", spelling, a.status, status)
		}
	}
	if n := service.requests(""); n != 7 {
		t.Errorf("%d requests have reached the service, want those of the gateway that does not look", n)
	}
	send(t, g.address, "POST /payments/", "Idempotency-Key: k").wants(t, "with a key", 201, "")
	if a := send(t, g.address, "GET /payments"); a.status != 201 {
		t.Errorf("another method: %d", a.status)
	}
}

func TestAttack06_MessagesHaveOneReading(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	g := expose(t, t.TempDir(), service.url, "store: memory://\nscope: single\ndefault: {fingerprint_headers: [X-Version]}\n")

	c := connect(t, g.address)
	io.WriteString(c, "POST /first HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n")
	in := bufio.NewReader(c)
	receive(t, in).wants(t, "two lengths", 400, "REQUEST_NOT_FORWARDABLE")
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		t.Errorf("the connection went on with %.60q", rest)
	}
	if n := service.requests(""); n != 0 {
		t.Errorf("%d requests have reached the service", n)
	}

	send(t, g.address, "POST /", "Connection: close, X-Foo", "X-Foo: 1", "X-Bar: 1").wants(t, "a header that Connection names", 201, "")
	if h := service.last(); h.Get("X-Foo") != "" || h.Get("X-Bar") != "1" {
		t.Errorf("the service got %q", h)
	}

	send(t, g.address, "POST /", "Idempotency-Key: named", "Connection: close, X-Version", "X-Version: 1").wants(t, "one that is compared", 201, "")
	if a := send(t, g.address, "POST /", "Idempotency-Key: named"); !a.replayed() {
		t.Errorf("the service got no X-Version, and with none the request is another one: %d %s", a.status, a.body)
	}

	for _, key := range []string{"X-None: 1", "Idempotency-Key: zero"} {
		if a := send(t, g.address, "POST /zero", key); a.status < 400 || strings.Contains(a.body, "paid") {
			t.Errorf("of a status that is none, %s: %d %s", key, a.status, a.body)
		}
	}
	for _, key := range []string{"X-None: 1", "Idempotency-Key: untyped", "Idempotency-Key: untyped"} {
		if a := send(t, g.address, "POST /untyped", key); a.status != 201 || len(a.header["Content-Type"]) > 0 {
			t.Errorf("an answer without a type, %s: %d %q", key, a.status, a.header)
		}
	}
	for protocol, status := range map[string]int{"h2c": 201, "HTTP/2.0": 201, "echo": 201, "websocket": 101} {
		if a := send(t, g.address, "GET /switch", "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+protocol, "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"); a.status != status {
			t.Errorf("an upgrade to %s: %d, want %d", protocol, a.status, status)
		}
	}
}

func TestAttack07_APageInABrowserReachesNothing(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	const settings = "store: memory://\nscope: single\noperations: /operations\n"
	g := expose(t, t.TempDir(), service.url, settings+"routes: [{match: POST /payments, reconcile: '/internal/operations/{operation}'}]\n")
	open := expose(t, t.TempDir(), service.url, settings+"hosts: ['*']\n")
	for _, host := range []string{"rebound.evil", "rebound.evil:8080", "localhost.evil", "127.0.0.1.evil"} {
		for _, path := range []string{"/", "/operations/x"} {
			send(t, g.address, "GET "+path, "Host: "+host).wants(t, host+path, 421, "HOST_REFUSED")
			if a := send(t, open.address, "GET "+path, "Host: "+host); a.status == 421 {
				t.Errorf("%s%s: refused where all hosts are listed", host, path)
			}
		}
		for _, path := range []string{"/metrics", "/healthz"} {
			if a := send(t, g.admin, "GET "+path, "Host: "+host); a.status != 421 || strings.Contains(a.body, "idempotency_") {
				t.Errorf("administration, %s%s: %d", host, path, a.status)
			}
			if a := send(t, open.admin, "GET "+path, "Host: "+host); a.status != 200 {
				t.Errorf("administration, %s%s: %d where all hosts are listed", host, path, a.status)
			}
		}
	}
	before := service.requests("")
	for _, spelling := range []string{"/internal/operations/x", "/internal/operations/x/", "/INTERNAL/operations/x", "/internal/operation%73/x", "/internal/operations%2fx"} {
		send(t, g.address, "GET "+spelling).wants(t, spelling, 400, "TARGET_REFUSED")
		if a := send(t, open.address, "GET "+spelling); a.status != 201 {
			t.Errorf("%s: %d where nothing asks there", spelling, a.status)
		}
	}
	if n := service.requests("") - before; n != 5 {
		t.Errorf("%d questions have reached the service, want those of the gateway without reconcile", n)
	}
}
