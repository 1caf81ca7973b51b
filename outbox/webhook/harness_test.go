package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
)

// Of the specification's own tests.
const (
	knownSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	knownID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	knownPayload   = `{"test": 2432232314}`
	knownTime      = 1614265330
	knownSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// signatureOf signs, written down a second time.
func signatureOf(secret, id, timestamp, payload string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "." + payload))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// an endpoint of a test, at a server with TLS, and the options with which a sender reaches it.
func served(t *testing.T, h http.Handler) (webhook.Endpoint, webhook.Options) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return webhook.Endpoint{ID: "acme", URL: server.URL + "/hooks", Secrets: []string{knownSecret}}, webhook.Options{
		TLS:           &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}
}

// at always returns one endpoint.
func at(e webhook.Endpoint) webhook.Endpoints {
	return func(context.Context, *outbox.Message) (webhook.Endpoint, error) { return e, nil }
}

func newSender(t *testing.T, endpoints webhook.Endpoints, o webhook.Options) *webhook.Sender {
	t.Helper()
	s, err := webhook.New(endpoints, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send sends one message.
func send(t *testing.T, s *webhook.Sender, m outbox.Message) error {
	t.Helper()
	errs := s.Publish(t.Context(), []*outbox.Message{&m})
	if len(errs) != 1 {
		t.Fatalf("%d errors for one message", len(errs))
	}
	return errs[0]
}

// roundTrip is a network in which answers take no time.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answering answers with what is current, as a network would.
func answering(status *int) roundTrip {
	return func(*http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.WriteHeader(*status)
		return w.Result(), nil
	}
}
