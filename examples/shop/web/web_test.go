package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel/examples/shop/web"
)

// serve serves a page whose shop and card processor answer with their names.
func serve(t *testing.T, dev bool) (address string) {
	t.Helper()
	named := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) } //nolint:errcheck // the client reads it
	}
	processor := httptest.NewServer(named("the processor"))
	t.Cleanup(processor.Close)
	var d *web.Dev
	if dev {
		d = &web.Dev{Processor: processor.URL, Session: func() (map[string]string, error) { return map[string]string{"X-Tenant-ID": "acme"}, nil }}
	}
	s := httptest.NewServer(web.Handler(named("the shop"), d))
	t.Cleanup(s.Close)
	return s.URL
}

func ask(t *testing.T, method, url, origin string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return res, err.Error()
	}
	return res, string(body)
}

func TestThePageLoadsOnlyWhatTheProgramServes(t *testing.T) {
	t.Parallel()
	address := serve(t, false)
	for path, part := range map[string]string{
		"/": "<!doctype html>", "/static/page.js": "import", "/static/style.css": ":root", "/static/icon.svg": "<svg", "/client/index.js": "createClient",
	} {
		res, body := ask(t, "GET", address+path, "")
		if res.StatusCode != http.StatusOK || !strings.Contains(body, part) || !strings.HasPrefix(res.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';") {
			t.Errorf("%s: %s, %v, %.100s", path, res.Status, res.Header, body)
		}
		if strings.Contains(body, `="http`) || strings.Contains(body, "style=") || strings.Contains(body, "onclick") {
			if path != "/static/icon.svg" { // which names its namespace
				t.Errorf("%s loads something from elsewhere, or has what the policy forbids", path)
			}
		}
	}
	for _, path := range []string{"/api/v1/orders", "/docs", "/dev/session", "/dev/ledger", "/dev/faults"} {
		if _, body := ask(t, "GET", address+path, ""); body != "the shop" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestOnlyThePageItselfReachesWhatIsForDevelopment(t *testing.T) {
	t.Parallel()
	address := serve(t, true)
	for path, want := range map[string]string{"/dev/session": `{"headers":{"X-Tenant-ID":"acme"}}` + "\n", "/dev/ledger": "the processor"} {
		if res, body := ask(t, "GET", address+path, ""); body != want || res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %s", path, body)
		}
	}
	for method, path := range map[string]string{"PUT": "/dev/faults", "POST": "/dev/lose"} {
		if res, _ := ask(t, method, address+path, "https://elsewhere.example"); res.StatusCode != http.StatusForbidden {
			t.Errorf("%s from another site: %s", path, res.Status)
		}
	}
	if res, body := ask(t, "POST", address+"/api/v1/payments/process", ""); body != "the shop" {
		t.Errorf("%s, %s: what was refused has lost an answer", res.Status, body)
	}
}

func TestALostAnswerBreaksOffAndTheNextArrives(t *testing.T) {
	t.Parallel()
	address := serve(t, true)
	if res, _ := ask(t, "POST", address+"/dev/lose", address); res.StatusCode != http.StatusNoContent {
		t.Fatal(res.Status)
	}
	if _, body := ask(t, "POST", address+"/api/v1/orders", ""); body != "the shop" {
		t.Errorf("an order: %s", body)
	}
	if _, body := ask(t, "POST", address+"/api/v1/payments/process", ""); body != "unexpected EOF" {
		t.Errorf("the first payment: %s, want it broken off", body)
	}
	if _, body := ask(t, "POST", address+"/api/v1/payments/process", ""); body != "the shop" {
		t.Errorf("the second payment: %s", body)
	}
}
