package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
)

func Example() {
	secret := webhook.NewSecret() // both sides have it

	// The receiver.
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(webhook.Scope), semel.Rerun, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	source := func(*http.Request) (webhook.Source, error) {
		return webhook.Source{Name: "billing", Secrets: []string{secret}}, nil
	}
	receiver, err := webhook.NewReceiver(guard, source, webhook.ReceiverOptions{})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewTLSServer(receiver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("handled", r.Header.Get("webhook-id"))
		w.WriteHeader(http.StatusNoContent)
	})))
	defer server.Close()

	// The sender, a publisher for the relay of an outbox.
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	endpoint := func(_ context.Context, m *outbox.Message) (webhook.Endpoint, error) {
		return webhook.Endpoint{ID: m.Tenant, URL: server.URL, Secrets: []string{secret}}, nil
	}
	sender, err := webhook.New(endpoint, webhook.Options{
		TLS:           &tls.Config{RootCAs: roots},                          // of this test's server
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // where it is
	})
	if err != nil {
		log.Fatal(err)
	}
	m := &outbox.Message{ID: "msg_1", Topic: "invoice.paid", Tenant: "acme", Payload: []byte(`{"invoice":7}`)}
	for range 2 { // the reply to the first was lost, perhaps
		fmt.Println(sender.Publish(context.Background(), []*outbox.Message{m}))
	}
	// Output:
	// handled msg_1
	// [<nil>]
	// [<nil>]
}
