package gateway

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
)

// guidedProxy is nginx with the configuration that security.md has, in front of a gateway.
func guidedProxy(t *testing.T, gateway, callers string) string {
	t.Helper()
	proof.Reads("docs")
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(page), "```nginx\n")
	config, _, _ = strings.Cut(config, "```")
	for from, to := range map[string]string{"127.0.0.1:8080": gateway, "127.0.0.1:9001": callers} {
		if !strings.Contains(config, from) {
			t.Fatalf("the configuration has no %s", from)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	n, err := servers.NewNginx(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n.Addr()
}

func TestHeld_R10_R11_TheProxyThatTheGuideHas(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Scope, c.Routes = Scope{header: "X-Account", set: true}, []Route{{Match: "POST /payments", Unkeyed: UnkeyedRefuse}}
	})
	callers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, known := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !known {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Account", account)
	}))
	t.Cleanup(callers.Close)
	send := func(address, target, fields, body string) answer {
		return raw(t, address, "POST "+target+" HTTP/1.1\r\nHost: api.example\r\nIdempotency-Key: k\r\n"+fields+"Connection: close\r\n\r\n"+body)
	}
	const me, sized = "Authorization: Bearer me\r\n", "Content-Length: 2\r\n"

	// What it lets by shows where there is no gateway behind it.
	alone := guidedProxy(t, u.Listener.Addr().String(), callers.Listener.Addr().String())
	for _, forged := range []string{
		"", "X-Account: victim\r\n", "X-Account: victim\r\nX-Account: me\r\n", "x-account: victim\r\n", "X_Account: victim\r\n", "X-Account : victim\r\n",
		"Connection: X-Account\r\nX-Account: victim\r\n", "X-Forwarded-For: victim\r\nX-Forwarded-Host: victim\r\nX-Forwarded-Proto: victim\r\n",
	} {
		if a := send(alone, "/payments", me+forged+sized, "{}"); a.status != 201 && a.status != 400 {
			t.Errorf("%q: %d %s", forged, a.status, a.body)
		}
	}
	for _, r := range u.requests() {
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, ""), "victim") || strings.Contains(name, "_") {
				t.Errorf("the service got %s: %q", name, values)
			}
		}
		if got := r.Header["X-Account"]; len(got) != 1 || got[0] != "me" {
			t.Errorf("the service got the account %q", got)
		}
	}
	before := len(u.requests())

	address := guidedProxy(t, g.Addr().String(), callers.Listener.Addr().String())
	send(address, "/payments", me+sized, "{}").wants(t, 201, "")
	if a := send(address, "/payments", me+"X-Account: victim\r\n"+sized, "{}"); !a.replayed() {
		t.Errorf("the same principal's repeat: %d %s", a.status, a.body)
	}
	if a := send(address, "/payments", "X-Account: me\r\n"+sized, "{}"); a.status != 401 {
		t.Errorf("who is nobody: %d", a.status)
	}
	for _, two := range []string{sized + "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\n" + sized, sized + "Content-Length: 3\r\n"} {
		if a := send(address, "/payments", me+two, "0\r\n\r\n"); a.status != 400 || a.header.Get("Idempotency-Code") != "" {
			t.Errorf("%q: %d %s, want it refused by the proxy", two, a.status, a.header.Get("Idempotency-Code"))
		}
	}
	for _, target := range []string{"/payments%2f", "//payments", "/x/../payments", "/payments;x"} {
		send(address, target, me+sized, "{}").wants(t, 400, "TARGET_REFUSED") // as the client has spelt it
	}
	if n := len(u.requests()) - before; n != 1 {
		t.Errorf("%d requests have reached the service", n)
	}
}
