package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// An authority signs certificates of clients.
type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	made := a.sign(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.cert, a.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	a.file = writeFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
	return a
}

// sign makes a certificate for a client, unless the template says for whom; the authority's own while it has none.
func (a *authority) sign(t *testing.T, template x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if template.ExtKeyUsage == nil && !template.IsCA {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func named(name string) x509.Certificate {
	return x509.Certificate{Subject: pkix.Name{CommonName: name}}
}

// byCertificate sets scope mtls, and returns the authorities of the gateway's own certificate.
func byCertificate(t *testing.T, principal string, a *authority) (func(*Config), *x509.CertPool) {
	t.Helper()
	files, roots := newCertificate(t)
	files.ClientCA = a.file
	return func(c *Config) {
		c.Scope, c.TLS, c.MTLS = Scope{mtls: true, set: true}, files, MTLS{principal}
	}, roots
}

// showing is a client that shows certificates.
func showing(t *testing.T, roots *x509.CertPool, set func(*http.Protocols), certs ...tls.Certificate) *http.Client {
	t.Helper()
	c := client(t, roots, set)
	c.Transport.(*http.Transport).TLSClientConfig.Certificates = certs
	return c
}

func (r *running) https() string { return "https" + strings.TrimPrefix(r.url, "http") }

func postBy(t *testing.T, c *http.Client, g *running, key string) answer {
	t.Helper()
	return read(t, send(t, c, "POST", g.https()+"/payments", strings.NewReader("{}"), "Idempotency-Key", key))
}

func TestAttack02_R11_R12_AClientsCertificateTellsWhoAsks(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2": http2} {
		a, u := newAuthority(t), newUpstream(t, created)
		change, roots := byCertificate(t, "subject", a)
		g := start(t, u.URL, change, func(c *Config) { c.Operations = "/operations" })
		alice := showing(t, roots, set, a.sign(t, named("alice")))
		renewed, bob, nobody := showing(t, roots, set, a.sign(t, named("alice"))), showing(t, roots, set, a.sign(t, named("bob"))), client(t, roots, set)
		postBy(t, alice, g, "k").wants(t, 201, "")
		for who, c := range map[string]*http.Client{"alice": alice, "alice, renewed": renewed} {
			if got := postBy(t, c, g, "k"); got.status != 201 || !got.replayed() {
				t.Errorf("%s, %s: %d %s", name, who, got.status, got.body)
			}
		}
		operations := func(c *http.Client) answer {
			return read(t, send(t, c, "GET", g.https()+"/operations", nil, "Idempotency-Key", "k"))
		}
		operations(bob).wants(t, 404, refusal.OperationNotFound)
		operations(nobody).wants(t, 400, refusal.ScopeInvalid)
		if got := operations(renewed); got.status != 200 {
			t.Errorf("%s: alice's question: %d %s", name, got.status, got.body)
		}
		if got := postBy(t, bob, g, "k"); got.status != 201 || got.replayed() {
			t.Errorf("%s: bob's own operation under the same key: %d, replayed %v", name, got.status, got.replayed())
		}
		postBy(t, nobody, g, "k").wants(t, 400, refusal.ScopeInvalid)
		if n := u.executions("k"); n != 2 {
			t.Errorf("%s: %d executions, want one each", name, n)
		}
		read(t, send(t, nobody, "POST", g.https()+"/payments", nil)).wants(t, 201, "") // unkeyed, as with the other scopes
	}
}

func TestAttack02_R11_ACertificateThatIsNotVerifiedIsNobody(t *testing.T) {
	t.Parallel()
	a, u := newAuthority(t), newUpstream(t, created)
	change, roots := byCertificate(t, "subject", a)
	g := start(t, u.URL, change)
	expired, server := named("alice"), named("alice")
	expired.NotAfter = time.Now().Add(-time.Minute)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	other := a.sign(t, named("alice"))
	stolen := tls.Certificate{Certificate: other.Certificate, PrivateKey: a.sign(t, named("eve")).PrivateKey}
	for name, cert := range map[string]tls.Certificate{
		"another authority's": newAuthority(t).sign(t, named("alice")),
		"nobody's":            (&authority{}).sign(t, named("alice")),
		"signed by a client":  (&authority{cert: other.Leaf, key: other.PrivateKey.(*ecdsa.PrivateKey)}).sign(t, named("bob")),
		"expired":             a.sign(t, expired),
		"a server's":          a.sign(t, server),
		"without its key":     stolen,
	} {
		for _, set := range []func(*http.Protocols){http1, http2} {
			c := client(t, roots, set)
			// Shown though the gateway names other authorities.
			c.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			if res, err := trySend(t, c, "POST", g.https()+"/payments", strings.NewReader("{}"), "Idempotency-Key", "k"); err == nil {
				t.Errorf("%s: answered %d", name, res.StatusCode)
			}
		}
	}
	// Headers by which proxies hand a certificate on are only headers.
	for _, header := range []string{"Client-Cert", "X-Client-Cert", "X-Ssl-Client-S-Dn", "X-Forwarded-Client-Cert", "Authorization"} {
		read(t, send(t, client(t, roots, http1), "POST", g.https()+"/payments", nil, "Idempotency-Key", "k", header, "CN=alice")).wants(t, 400, refusal.ScopeInvalid)
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("the service was asked %d times", n)
	}
}

func TestAttack02_R11_ExactlyOneNameOfACertificateCounts(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	uri := func(texts ...string) (c x509.Certificate) {
		for _, text := range texts {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		return c
	}
	rdns := func(names ...string) (c x509.Certificate) { // in their order, each of which is a common name
		var sequence pkix.RDNSequence
		for _, name := range names {
			sequence = append(sequence, pkix.RelativeDistinguishedNameSET{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: name}})
		}
		var err error
		if c.RawSubject, err = asn1.Marshal(sequence); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		principal string
		template  x509.Certificate
		want      string // the principal; "" for none
	}{
		{"subject", x509.Certificate{Subject: pkix.Name{CommonName: "a,b", Organization: []string{"acme"}}}, `CN=a\,b,O=acme`},
		{"subject", rdns("alice", "bob"), "CN=bob,CN=alice"}, // neither is left out
		{"subject", rdns("bob", "alice"), "CN=alice,CN=bob"},
		{"subject", uri("spiffe://acme/pay"), ""},
		{"san-uri", uri("spiffe://acme/pay"), "spiffe://acme/pay"},
		{"san-uri", uri("spiffe://acme/pay", "spiffe://acme/admin"), ""},
		{"san-uri", named("alice"), ""},
		{"san-dns", x509.Certificate{DNSNames: []string{"Pay.acme.example"}}, "pay.acme.example"},
		{"san-dns", x509.Certificate{DNSNames: []string{"a.acme.example", "b.acme.example"}}, ""},
		{"san-dns", named("pay.acme.example"), ""},
		{"san-email", x509.Certificate{EmailAddresses: []string{"ann@acme.example"}, DNSNames: []string{"a", "b"}}, "ann@acme.example"},
		{"san-email", x509.Certificate{EmailAddresses: []string{"ann@acme.example", "bob@acme.example"}}, ""},
	} {
		u := newUpstream(t, created)
		change, roots := byCertificate(t, c.principal, a)
		g := start(t, u.URL, change)
		got := postBy(t, showing(t, roots, http2, a.sign(t, c.template)), g, "k")
		if c.want == "" {
			got.wants(t, 400, refusal.ScopeInvalid)
			continue
		}
		got.wants(t, 201, "")
		// What stands in the service's request is the id that "semel keys --scope" finds.
		if id := semel.Identify(nil, semel.KindHTTP, c.want, "k").String(); u.requests()[0].Header.Get("Idempotency-Operation") != id {
			t.Errorf("%s: the principal is not %s", c.principal, c.want)
		}
	}
}

// A connection that is resumed shows no certificate again; what it was resumed from has.
func TestAttack02_R11_AResumedConnectionIsItsClients(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, set := range []func(*http.Protocols){http1, http2} {
			a, u := newAuthority(t), newUpstream(t, created)
			change, roots := byCertificate(t, "subject", a)
			g := start(t, u.URL, change)
			certificate, sessions := a.sign(t, named("alice")), tls.NewLRUClientSessionCache(4)
			var alice *http.Client
			connect := func() {
				alice = showing(t, roots, set, certificate)
				config := alice.Transport.(*http.Transport).TLSClientConfig
				config.ClientSessionCache, config.MaxVersion = sessions, version
			}
			resumed := func() (bool, answer) {
				connect()
				res := send(t, alice, "POST", g.https()+"/payments", strings.NewReader("{}"), "Idempotency-Key", "k")
				return res.TLS.DidResume, read(t, res)
			}
			if _, got := resumed(); got.status != 201 {
				t.Fatalf("the first request: %d %s", got.status, got.body)
			}
			if again, got := resumed(); !again || got.status != 201 || !got.replayed() {
				t.Errorf("%x: resumed %v, answered %d, replayed %v", version, again, got.status, got.replayed())
			}

			// The authority counts no more: neither on a connection that stands, nor on one that is resumed.
			other := newAuthority(t)
			content, err := os.ReadFile(other.file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(a.file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := g.Reload(); err != nil {
				t.Fatal(err)
			}
			postBy(t, alice, g, "k").wants(t, 400, refusal.ScopeInvalid)
			connect()
			if res, err := trySend(t, alice, "POST", g.https()+"/payments", nil, "Idempotency-Key", "k"); err == nil {
				read(t, res).wants(t, 400, refusal.ScopeInvalid) // without her certificate, which the gateway did not ask for
			}
			if got := postBy(t, showing(t, roots, set, other.sign(t, named("alice"))), g, "k"); !got.replayed() {
				t.Errorf("by the new authority: %d %s", got.status, got.body)
			}
			if n := u.executions("k"); n != 1 {
				t.Errorf("%d executions", n)
			}

			// A file that is none changes nothing.
			if err := writeGarbage(a.file); err != nil {
				t.Fatal(err)
			}
			if err := g.Reload(); err == nil || !strings.Contains(err.Error(), "has no certificate") {
				t.Errorf("error is %v", err)
			}
			postBy(t, showing(t, roots, set, other.sign(t, named("alice"))), g, "k").wants(t, 201, "")
		}
	}
}

func TestAttack02_R11_ACertificateExpiresOnAConnectionThatStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		alice := named("alice")
		alice.NotAfter = time.Now().Add(time.Minute)
		leaf := a.sign(t, alice).Leaf
		c := &clientCertificates{of: subject}
		c.authorities.Store(&[]*x509.Certificate{a.cert})
		r := &http.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, a.cert}}}}
		if who, err := c.principal(r); who != "CN=alice" || err != nil {
			t.Fatalf("%q, %v", who, err)
		}
		time.Sleep(time.Minute + time.Second)
		if who, err := c.principal(r); err == nil || who != "" {
			t.Errorf("%q, %v", who, err)
		}
	})
}

// As with a token, a request that is finished without its client is its client's.
func TestAttack02_R52_WhatIsFinishedWithoutItsClientIsItsCertificates(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	told := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			<-told
			panic(http.ErrAbortHandler)
		}
		created(w, r)
	})
	a := newAuthority(t)
	change, roots := byCertificate(t, "subject", a)
	g := start(t, u.URL, change, func(c *Config) {
		c.Encryption, c.Operations, c.looksEvery = newKeyring(t), "/operations", 20*time.Millisecond
		c.Default.Policy.RespondAsync, c.Default.Policy.OnLost = true, semel.Rerun
	})
	alice, bob := showing(t, roots, http2, a.sign(t, named("alice"))), showing(t, roots, http2, a.sign(t, named("bob")))
	first := read(t, send(t, alice, "POST", g.https()+"/payments", strings.NewReader("{}"), "Idempotency-Key", "k", "Prefer", "respond-async"))
	if first.status != 202 {
		t.Fatalf("answered %d %s", first.status, first.body)
	}
	close(told)
	location := g.https() + first.header.Get("Location")
	eventually(t, "the end", func() bool {
		return read(t, send(t, alice, "GET", location, nil)).operation(t).State == "succeeded"
	})
	read(t, send(t, bob, "GET", location, nil)).wants(t, 404, refusal.OperationNotFound)
	if got := postBy(t, alice, g, "k"); got.status != 201 || !got.replayed() {
		t.Errorf("her repeat: %d %s", got.status, got.body)
	}
}

func TestAttack02_WhatIsWrongWithTheSettingsOfCertificatesIsSaid(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	files, _ := newCertificate(t)
	const upstream = "upstream: http://127.0.0.1:9000\n"
	tlsLine := "tls: {cert: " + files.Cert + ", key: " + files.Key + ", client_ca: " + a.file + "}\n"
	good := upstream + "scope: mtls\nmtls: {principal: san-uri}\n" + tlsLine
	if c, err := load(t, good); err != nil || c.Scope.String() != "mtls" || c.Scope.Single() || c.MTLS.Principal != "san-uri" || c.TLS.ClientCA != a.file {
		t.Fatalf("%v, %+v", err, c)
	}
	broken := writeFile(t, "broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	for content, want := range map[string]string{
		upstream + "scope: mtls\n":                                     "mtls.principal is missing: the name of a certificate that tells who asks, one of san-dns, san-email, san-uri, subject",
		upstream + "scope: mtls\nmtls: {principal: subject}\n":         "tls.cert and tls.key are missing",
		strings.Replace(good, ", client_ca: "+a.file, "", 1):           "tls.client_ca is missing",
		strings.Replace(good, "san-uri", "cn", 1):                      `3:19: mtls.principal: "cn" is none of san-dns`,
		strings.Replace(good, a.file, "/nowhere.pem", 1):               "tls.client_ca: read authorities: open /nowhere.pem",
		strings.Replace(good, a.file, files.Key, 1):                    "has no certificate",
		strings.Replace(good, a.file, broken, 1):                       "broken.pem: certificate 1",
		strings.Replace(good, "scope: mtls", "scope: single", 1):       "mtls is only for scope: mtls",
		upstream + "scope: single\n" + tlsLine:                         "tls.client_ca is only for scope: mtls",
		upstream + "scope: single\ntls: {client_ca: " + a.file + "}\n": "tls.client_ca is only for scope: mtls",
	} {
		if _, err := load(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
}
