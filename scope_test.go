package semel_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// scoped returns a paying handler under a scope, its ledger and its store.
func scoped(t *testing.T, scope semel.Scope) (http.Handler, *ledger, *memstore.Store) {
	t.Helper()
	s, l := memstore.New(), &ledger{}
	g, err := semel.New(s, scope, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g.Wrap(http.HandlerFunc(l.pay)), l, s
}

func TestCase10_R10_TwoPrincipalsNeverMeet(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{})
	runs := 0
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		w.WriteHeader(201)
		io.WriteString(w, "of "+r.Header.Get("X-Principal"))
	}))
	for _, who := range []string{"alice", "bob", "Alice", "alice "} {
		checkRun(t, answer(h, post("k", `{}`, "X-Principal", who)))
	}
	for _, who := range []string{"alice", "bob"} {
		w := answer(h, post("k", `{}`, "X-Principal", who))
		checkReplay(t, w)
		if got := w.Body.String(); got != "of "+who {
			t.Errorf("%s got %q", who, got)
		}
	}
	checkRun(t, answer(h, post("k2", `{}`, "X-Principal", "alice"))) // another key, the same body: two payments may be meant
	if runs != 5 {
		t.Errorf("%d runs, want 5", runs)
	}
	// Scope and key are told apart, not joined.
	h, l, _ := scoped(t, semel.ScopeFunc(func(r *http.Request) (string, error) { return r.Header.Get("X-Principal"), nil }))
	checkRun(t, answer(h, post("bc", `{}`, "X-Principal", "a")))
	checkRun(t, answer(h, post("c", `{}`, "X-Principal", "ab")))
	checkEffects(t, l, 2)
}

func TestCase23_R12_ARefreshedTokenIsTheSamePrincipal(t *testing.T) {
	t.Parallel()
	subjects := map[string]string{"Bearer 1": "alice", "Bearer 2": "alice", "Bearer 3": "bob"}
	type subjectKey struct{}
	h, l, _ := scoped(t, semel.ScopeContext(subjectKey{}))
	authenticated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(contextWith(r, subjectKey{}, subjects[r.Header.Get("Authorization")])))
	})
	checkRun(t, answer(authenticated, post("k", `{}`, "Authorization", "Bearer 1")))
	checkReplay(t, answer(authenticated, post("k", `{}`, "Authorization", "Bearer 2")))
	checkRun(t, answer(authenticated, post("k", `{}`, "Authorization", "Bearer 3")))
	checkEffects(t, l, 2)
}

func TestR11_ScopeFromTheContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	for _, tc := range []struct {
		value any
		ok    bool
		why   string
	}{
		{"alice", true, "a string"},
		{netip.MustParseAddr("192.0.2.1"), true, "a fmt.Stringer"},
		{"", false, "an empty scope is no scope"},
		{nil, false, "no middleware has set one"},
		{7, false, "neither"},
		{(*string)(nil), false, "neither"},
	} {
		h, l, s := scoped(t, semel.ScopeContext(key{}))
		r := post("k", `{}`)
		if tc.value != nil {
			r = r.WithContext(contextWith(r, key{}, tc.value))
		}
		w := answer(h, r)
		if tc.ok {
			checkRun(t, w)
			continue
		}
		checkProblem(t, w, 400, refusal.ScopeInvalid)
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
	}
}

func TestR11_AnEmptyOrFailedScopeIsRefusedOnKeyedRequestsOnly(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*http.Request) (string, error){
		"empty":            func(*http.Request) (string, error) { return "", nil },
		"failed":           func(*http.Request) (string, error) { return "", errors.New("select tenant: secret detail") },
		"failed and named": func(*http.Request) (string, error) { return "alice", errors.New("secret detail") },
	} {
		s, l := memstore.New(), &ledger{}
		g, err := semel.New(s, semel.ScopeFunc(of), semel.Hold, semel.Options{Policy: semel.Policy{KeyOptional: true}})
		if err != nil {
			t.Fatal(err)
		}
		h := g.Wrap(http.HandlerFunc(l.pay))
		w := answer(h, post("k", `{}`))
		checkProblem(t, w, 400, refusal.ScopeInvalid)
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: the problem shows the error: %s", name, w.Body)
		}
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
		checkRun(t, answer(h, post("", `{}`)))
	}
}

func TestR11_SingleTenant(t *testing.T) {
	t.Parallel()
	h, l, _ := scoped(t, semel.SingleTenant)
	checkRun(t, answer(h, post("k", `{}`, "X-Principal", "alice")))
	checkReplay(t, answer(h, post("k", `{}`, "X-Principal", "bob")))
	checkEffects(t, l, 1)
}

func TestR11_ScopeFromATrustedHeader(t *testing.T) {
	t.Parallel()
	ten := netip.MustParsePrefix("10.0.0.0/8")
	mapped := netip.MustParsePrefix("::ffff:192.0.2.0/120")
	six := netip.MustParsePrefix("2001:db8::/32")
	for _, tc := range []struct {
		proxies []netip.Prefix
		peer    string
		values  []string
		ok      bool
		why     string
	}{
		{nil, "127.0.0.1:9", []string{"alice"}, true, "loopback is trusted by default"},
		{nil, "127.8.9.1:9", []string{"alice"}, true, "all of it"},
		{nil, "[::1]:9", []string{"alice"}, true, "in IPv6 too"},
		{nil, "[::ffff:127.0.0.1]:9", []string{"alice"}, true, "and IPv4 in IPv6"},
		{nil, "10.1.2.3:9", []string{"alice"}, false, "nobody else"},
		{nil, "[::2]:9", []string{"alice"}, false, "nobody else"},
		{[]netip.Prefix{ten}, "10.1.2.3:9", []string{"alice"}, true, "a named network"},
		{[]netip.Prefix{ten}, "[::ffff:10.1.2.3]:9", []string{"alice"}, true, "as a dual-stack listener sees it"},
		{[]netip.Prefix{ten}, "127.0.0.1:9", []string{"alice"}, false, "loopback was not named"},
		{[]netip.Prefix{ten}, "11.0.0.1:9", []string{"alice"}, false, "outside"},
		{[]netip.Prefix{six, ten}, "[2001:db8::7%eth0]:9", []string{"alice"}, true, "the zone does not matter"},
		{[]netip.Prefix{mapped}, "192.0.2.9:9", []string{"alice"}, true, "a network written in IPv6 form"},
		{[]netip.Prefix{mapped}, "192.0.3.9:9", []string{"alice"}, false, "and no more than it"},
		{[]netip.Prefix{ten}, "10.1.2.3", []string{"alice"}, true, "a peer without a port"},
		{[]netip.Prefix{ten}, "@", []string{"alice"}, false, "a Unix socket has no address"},
		{[]netip.Prefix{ten}, "", []string{"alice"}, false, "no peer at all"},
		{[]netip.Prefix{ten}, "10.1.2.3:9", nil, false, "no value"},
		{[]netip.Prefix{ten}, "10.1.2.3:9", []string{""}, false, "an empty value"},
		{[]netip.Prefix{ten}, "10.1.2.3:9", []string{"alice", "bob"}, false, "two values"},
		{[]netip.Prefix{ten}, "10.1.2.3:9", []string{"alice", "alice"}, false, "even equal ones"},
	} {
		h, l, s := scoped(t, semel.ScopeTrustedHeader("x-tenant", tc.proxies...))
		r := post("k", `{}`)
		r.RemoteAddr = tc.peer
		if tc.values != nil {
			r.Header["X-Tenant"] = tc.values
		}
		w := answer(h, r)
		if tc.ok {
			if w.Code != 201 {
				t.Errorf("%s: answered %d %s, want 201: %s", tc.peer, w.Code, w.Body, tc.why)
			}
			continue
		}
		if w.Code != 400 || codeOf(w) != refusal.ScopeInvalid {
			t.Errorf("%s %q: answered %d %s, want 400 scope invalid: %s", tc.peer, tc.values, w.Code, w.Body, tc.why)
		}
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
	}
}

func TestR11_ScopesThatCanNotWorkAreRefusedWhenTheGuardIsBuilt(t *testing.T) {
	t.Parallel()
	tooLong := netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 33)
	for _, tc := range []struct {
		want  string
		scope semel.Scope
	}{
		{"scope is zero", semel.Scope{}},
		{"scope: the function is nil", semel.ScopeFunc(nil)},
		{"scope: the context key is nil", semel.ScopeContext(nil)},
		{`"a b" is not a header name`, semel.ScopeTrustedHeader("a b")},
		{`"" is not a header name`, semel.ScopeTrustedHeader("")},
		{"a proxy's network is not valid", semel.ScopeTrustedHeader("X-Tenant", netip.Prefix{})},
		{"a proxy's network is not valid", semel.ScopeTrustedHeader("X-Tenant", tooLong)},
	} {
		g, err := semel.New(memstore.New(), tc.scope, semel.Hold, semel.Options{})
		if err == nil || g != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New returns %v, want an error with %q", err, tc.want)
		}
	}
}

// TestR11_ScopeFromAClientCertificate makes real handshakes: what counts is what the server has verified.
func TestR11_ScopeFromAClientCertificate(t *testing.T) {
	t.Parallel()
	ca, caKey := newCertificate(t, pkix.Name{CommonName: "ca"}, nil, nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	alice := clientCertificate(t, pkix.Name{CommonName: "alice", Organization: []string{"Acme"}}, ca, caKey)
	renewed := clientCertificate(t, pkix.Name{CommonName: "alice", Organization: []string{"Acme"}}, ca, caKey)
	bob := clientCertificate(t, pkix.Name{CommonName: "bob", Organization: []string{"Acme"}}, ca, caKey)
	nameless := clientCertificate(t, pkix.Name{}, ca, caKey)
	otherCA, otherKey := newCertificate(t, pkix.Name{CommonName: "other ca"}, nil, nil)
	forged := clientCertificate(t, pkix.Name{CommonName: "alice", Organization: []string{"Acme"}}, otherCA, otherKey)

	l := &ledger{}
	g, err := semel.New(memstore.New(), semel.ScopeClientCert, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := func(auth tls.ClientAuthType) *httptest.Server {
		srv := httptest.NewUnstartedServer(g.Wrap(http.HandlerFunc(l.pay)))
		srv.TLS = &tls.Config{ClientAuth: auth, ClientCAs: pool}
		srv.Config.ErrorLog = discardLog
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv
	}
	send := func(srv *httptest.Server, cert *tls.Certificate) (status int, replayed string, err error) {
		transport := srv.Client().Transport.(*http.Transport).Clone()
		defer transport.CloseIdleConnections()
		if cert != nil {
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		}
		r, err := http.NewRequest("POST", srv.URL, strings.NewReader(`{}`))
		if err != nil {
			return 0, "", err
		}
		r.Header.Set("Idempotency-Key", "k")
		res, err := transport.RoundTrip(r)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Header.Get("Idempotent-Replayed"), err
	}
	verified := server(tls.VerifyClientCertIfGiven)
	unverified := server(tls.RequestClientCert)
	for _, tc := range []struct {
		name     string
		server   *httptest.Server
		cert     *tls.Certificate
		status   int
		replayed string
	}{
		{"the first of alice", verified, alice, 201, ""},
		{"alice with a renewed certificate", verified, renewed, 201, "true"},
		{"bob", verified, bob, 201, ""},
		{"no certificate", verified, nil, 400, ""},
		{"a certificate without a subject", verified, nameless, 400, ""},
		{"alice, not verified", unverified, alice, 400, ""},
		{"forged, not verified", unverified, forged, 400, ""},
	} {
		status, replayed, err := send(tc.server, tc.cert)
		if err != nil || status != tc.status || replayed != tc.replayed {
			t.Errorf("%s: %d, replayed %q, %v; want %d, %q", tc.name, status, replayed, err, tc.status, tc.replayed)
		}
	}
	if status, _, err := send(verified, forged); err == nil {
		t.Errorf("a forged certificate is answered %d, want a failed handshake", status)
	}
	checkEffects(t, l, 2)
	w := answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`))
	checkProblem(t, w, 400, refusal.ScopeInvalid) // without TLS
}

func newCertificate(t *testing.T, name pkix.Name, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: name, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: parent == nil, DNSNames: []string{"client.example.com"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, signer = tmpl, key
		tmpl.KeyUsage = x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func clientCertificate(t *testing.T, name pkix.Name, ca *x509.Certificate, caKey *ecdsa.PrivateKey) *tls.Certificate {
	t.Helper()
	cert, key := newCertificate(t, name, ca, caKey)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func TestField21_R10_SeveralScopesAreOnePrincipal(t *testing.T) {
	t.Parallel()
	header := func(name string) semel.Scope {
		return semel.ScopeTrustedHeader(name, netip.MustParsePrefix("192.0.2.0/24"))
	}
	s, l := memstore.New(), &ledger{}
	g, err := semel.New(s, semel.ScopeAll(header("X-Tenant"), header("X-User")), semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := g.Wrap(http.HandlerFunc(l.pay))
	for _, who := range [][2]string{{"a", "b"}, {"a", "c"}, {"ab", "c"}, {"a", "bc"}, {"1:a", "b"}, {"1", "a1:b"}, {"b", "a"}} {
		checkRun(t, answer(h, post("k", `{}`, "X-Tenant", who[0], "X-User", who[1])))
		checkReplay(t, answer(h, post("k", `{}`, "X-Tenant", who[0], "X-User", who[1])))
	}
	for _, missing := range [][]string{{"X-Tenant", "a"}, {"X-User", "b"}, {"X-Tenant", "a", "X-User", ""}, {"X-Tenant", "a", "X-User", "b", "X-User", "c"}} {
		checkProblem(t, answer(h, post("k", `{}`, missing...)), 400, refusal.ScopeInvalid)
	}
	checkEffects(t, l, 7)

	// Of one it is that one, so that a second service may ask for it without.
	one, err := semel.New(s, semel.ScopeAll(header("X-Tenant")), semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := semel.New(s, header("X-Tenant"), semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkRun(t, answer(one.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`, "X-Tenant", "a")))
	checkReplay(t, answer(plain.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`, "X-Tenant", "a")))

	for name, bad := range map[string]semel.Scope{
		"none": semel.ScopeAll(), "a zero one": semel.ScopeAll(semel.SingleTenant, semel.Scope{}), "a bad one": semel.ScopeAll(header("a b")),
	} {
		if _, err := semel.New(s, bad, semel.Hold, semel.Options{}); err == nil || !strings.Contains(err.Error(), "scope: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
