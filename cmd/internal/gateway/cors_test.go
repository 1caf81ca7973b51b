package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

const shopPage = "https://shop.example"

// allowedHere returns what an answer says about CORS.
func allowedHere(h http.Header) http.Header {
	found := http.Header{}
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			found[name] = values
		}
	}
	return found
}

func TestR59_Field17_TheGatewaysOwnAnswersAreReadByTheNamedPages(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*") // the service's own word
		w.Header().Set("Access-Control-Allow-Methods", "BREW")
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) {
		c.CORS = CORS{Origins: []string{shopPage, "https://*.partner.example"}, Credentials: true, RequestHeaders: []string{"Authorization"}, ResponseHeaders: []string{"X-State"}}
		c.Operations = "/operations"
		c.Default.Policy.KeyHeaders = []string{"Idempotency-Key", "X-Other-Key"}
	})
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
	}{
		{"the first answer", "POST", "/pay", "{}", []string{"Idempotency-Key", "k"}, 201},
		{"the replay", "POST", "/pay", "{}", []string{"Idempotency-Key", "k"}, 201},
		{"a refusal", "POST", "/pay", `{"a":1}`, []string{"Idempotency-Key", "k"}, 422},
		{"a refused key", "POST", "/pay", "{}", []string{"Idempotency-Key", ""}, 400},
		{"an unkeyed request", "GET", "/", "", nil, 201},
		{"a question about an operation", "GET", "/operations/unknown", "", nil, 404},
	} {
		for _, page := range []struct {
			origin string
			reads  bool
		}{{shopPage, true}, {"https://a.partner.example", true}, {"https://other.example", false}, {"null", false}} {
			a := ask(t, c.method, g.url+c.path, c.body, append(c.header, "Origin", page.origin)...)
			if a.status != c.status {
				t.Fatalf("%s: %d %s", c.name, a.status, a.body)
			}
			got := allowedHere(a.header)
			if !page.reads {
				if len(got) > 0 {
					t.Errorf("%s from %s: %v", c.name, page.origin, got)
				}
				continue
			}
			exposed := strings.Split(got.Get("Access-Control-Expose-Headers"), ", ")
			has := strings.Join(exposed, " ") + " "
			for _, name := range []string{"X-State", "Idempotency-Code", "Idempotent-Replayed", "Location", "Retry-After", "X-Other-Key", "Idempotency-Expires"} {
				if !strings.Contains(has, name+" ") {
					t.Errorf("%s: %s is not exposed: %v", c.name, name, got)
				}
			}
			if len(got) != 3 || got.Get("Access-Control-Allow-Origin") != page.origin || got.Get("Access-Control-Allow-Credentials") != "true" ||
				!strings.Contains(strings.Join(a.header["Vary"], ","), "Origin") {
				t.Errorf("%s from %s: %v, varies by %q", c.name, page.origin, got, a.header["Vary"])
			}
		}
	}
}

func TestR59_Field17_TheGatewayAnswersPreflightRequests(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.CORS = CORS{Origins: []string{shopPage}, RequestHeaders: []string{"authorization"}, MaxAge: time.Hour}
		c.Operations = "/operations"
	})
	for _, path := range []string{"/pay", "/operations/x"} {
		for _, c := range []struct {
			origin, method, headers string
			allowed                 bool
		}{
			{shopPage, "POST", "content-type,idempotency-key", true},
			{shopPage, "PUT", "authorization,idempotency-key,x-correlation-id", true},
			{shopPage, "POST", "x-unheard-of", false},
			{shopPage, "BREW", "", false},
			{"https://other.example", "POST", "", false},
		} {
			header := []string{"Origin", c.origin, "Access-Control-Request-Method", c.method}
			if c.headers != "" {
				header = append(header, "Access-Control-Request-Headers", c.headers)
			}
			a := ask(t, "OPTIONS", g.url+path, "", header...)
			if got := a.header.Get("Access-Control-Allow-Origin") == c.origin; a.status != 204 || got != c.allowed ||
				got && a.header.Get("Access-Control-Max-Age") != "3600" {
				t.Errorf("%s %+v: %d %v", path, c, a.status, a.header)
			}
		}
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("%d requests reached the service", n)
	}
	if a := ask(t, "OPTIONS", g.url+"/pay", "", "Origin", shopPage); a.status != 201 || len(u.requests()) != 1 {
		t.Errorf("an OPTIONS that is not a preflight: %d, %d requests reached the service", a.status, len(u.requests()))
	}
}

func TestField17_WithoutCORSTheServicesOwnPasses(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Vary", "Origin")
		created(w, r)
	})
	g := start(t, u.URL)
	for range 2 {
		a := ask(t, "POST", g.url+"/pay", "{}", "Idempotency-Key", "k", "Origin", shopPage)
		if a.status != 201 || len(a.header["Access-Control-Allow-Origin"]) != 1 || a.header.Get("Access-Control-Allow-Origin") != shopPage {
			t.Errorf("%d %v", a.status, a.header)
		}
	}
	if a := ask(t, "POST", g.url+"/pay", "{}", "Idempotency-Key", "k", "Origin", "https://other.example"); !a.replayed() || len(allowedHere(a.header)) > 0 {
		t.Errorf("another page gets %v", a.header)
	}
	ask(t, "OPTIONS", g.url+"/pay", "", "Origin", shopPage, "Access-Control-Request-Method", "POST")
	if n := len(u.requests()); n != 2 {
		t.Errorf("%d requests reached the service, want the payment and the preflight", n)
	}
}

func TestR59_BadCORSSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cors CORS
		want string // "" if it is right
	}{
		{CORS{Origins: []string{"https://shop.example", "http://localhost:3000", "https://*.shop.example", "http://[::1]:80"}}, ""},
		{CORS{Origins: []string{"*"}}, ""},
		{CORS{Origins: []string{"*"}, Credentials: true}, "cors: credentials can't be for all origins"},
		{CORS{Credentials: true}, "cors: origins is missing"},
		{CORS{MaxAge: time.Second}, "cors: origins is missing"},
		{CORS{Origins: []string{}}, "cors: origins is missing"},
		{CORS{Origins: []string{"shop.example"}}, `cors: "shop.example" is not an origin`},
		{CORS{Origins: []string{"https://shop.example/"}}, "is not an origin"},
		{CORS{Origins: []string{"https://shop.example/pay"}}, "is not an origin"},
		{CORS{Origins: []string{"https://Shop.example"}}, "is not an origin"},
		{CORS{Origins: []string{"https://*"}}, "is not an origin"},
		{CORS{Origins: []string{"https://a.*.example"}}, "is not an origin"},
		{CORS{Origins: []string{"https://u@shop.example"}}, "is not an origin"},
		{CORS{Origins: []string{"null"}}, "is not an origin"},
		{CORS{Origins: []string{"file:///x"}}, "is not an origin"},
		{CORS{Origins: []string{""}}, "is not an origin"},
		{CORS{Origins: []string{shopPage}, Methods: []string{"GE T"}}, `cors: methods: "GE T" is not a name`},
		{CORS{Origins: []string{shopPage}, RequestHeaders: []string{"a:b"}}, `cors: request_headers: "a:b" is not a name`},
		{CORS{Origins: []string{shopPage}, ResponseHeaders: []string{""}}, `cors: response_headers: "" is not a name`},
		{CORS{Origins: []string{shopPage}, MaxAge: -time.Second}, "cors: max_age is -1s"},
		{CORS{Origins: []string{shopPage}, MaxAge: 25 * time.Hour}, "cors: max_age is 25h"},
		{CORS{Origins: []string{shopPage}, MaxAge: 1500 * time.Millisecond}, "cors: max_age is 1.5s"},
	} {
		upstream, err := ParseUpstream("http://127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		err = Config{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: upstream, Scope: Scope{set: true}, CORS: c.cors}.Validate()
		if text := errorText(err); c.want == "" && err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %q, want %q", c.cors, text, c.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestField17_AReloadChangesWhoMayRead(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	f := startFromFile(t, u.URL, "")
	reads := func() string {
		return ask(t, "GET", f.url+"/", "", "Origin", shopPage).header.Get("Access-Control-Allow-Origin")
	}
	if got := reads(); got != "" {
		t.Errorf("before: %q", got)
	}
	f.rewrite(t, u.URL, "cors: {origins: [https://shop.example]}\n")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := reads(); got != shopPage {
		t.Errorf("after: %q", got)
	}
}
