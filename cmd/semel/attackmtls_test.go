//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// issued makes a certificate of a name, signed by another one, or by itself.
func issued(t *testing.T, name string, by *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: by == nil,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	made := tls.Certificate{PrivateKey: key}
	if by == nil {
		by = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, &key.PublicKey, by.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if made.Leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	made.Certificate = [][]byte{der}
	return made
}

// inFiles puts a certificate and its key into files.
func inFiles(t *testing.T, cert, key string, c tls.Certificate) {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: c.Leaf.Raw}, key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAttack02_R11_R12_ClientCertificatesTellWhoAsks(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var effects atomic.Int32
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		effects.Add(1)
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(u.Close)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	first, second := issued(t, "first", nil), issued(t, "second", nil)
	inFiles(t, in("ca.pem"), in("ca.key"), first)
	inFiles(t, in("cert.pem"), in("key.pem"), issued(t, "gateway", &second))
	if err := os.WriteFile(in("gateway.yaml"), []byte(`listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstream: `+u.URL+`
scope: mtls
mtls: {principal: subject}
tls: {cert: cert.pem, key: key.pem, client_ca: ca.pem}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(path, args...)
		cmd.Dir = dir
		shown, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, shown)
		}
		return string(shown)
	}
	contains(t, run("gateway", "--config", "gateway.yaml", "--check"), "ok\n")

	log := &output{}
	cmd := exec.Command(path, "gateway", "--config", "gateway.yaml", "--log-format", "json")
	cmd.Stderr, cmd.Dir = log, dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it has ended, mostly
	})
	address, _ := addresses(t, log)
	roots := x509.NewCertPool()
	roots.AddCert(second.Leaf)
	// ask returns the status of an attempt, 0 if the handshake failed, and whether it was a replay.
	ask := func(certs ...tls.Certificate) (int, bool) {
		t.Helper()
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequest("POST", "https://"+address+"/payments", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "order-42")
		res, err := transport.RoundTrip(r)
		if err != nil {
			return 0, false
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true"
	}
	wants := func(what string, status int, replayed bool, certs ...tls.Certificate) {
		t.Helper()
		if s, r := ask(certs...); s != status || r != replayed {
			t.Errorf("%s: %d, replayed %v; want %d, %v", what, s, r, status, replayed)
		}
	}
	wants("alice", 201, false, issued(t, "alice", &first))
	wants("alice, renewed", 201, true, issued(t, "alice", &first))
	wants("bob", 201, false, issued(t, "bob", &first))
	wants("nobody", 400, false)

	inFiles(t, in("ca.pem"), in("ca.key"), second)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reload", func() bool { return strings.Contains(log.String(), `"msg":"reloaded"`) })
	wants("alice by the new authority", 201, true, issued(t, "alice", &second))
	wants("alice by the old authority", 400, false, issued(t, "alice", &first)) // not asked for, and so not shown
	if n := effects.Load(); n != 2 {
		t.Errorf("%d effects, want one each", n)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the gateway ended with %v\n%s", err, log)
	}
	contains(t, run("keys", "find", "order-42", "--scope", "CN=alice", "--json", "--store", "sqlite://semel.db"), `"status": 201`)
}
