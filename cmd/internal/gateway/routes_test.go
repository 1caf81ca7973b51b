package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// routed starts a gateway with routes.
func routed(t *testing.T, upstream string, routes ...Route) *running {
	t.Helper()
	return start(t, upstream, func(c *Config) { c.Routes = routes })
}

func TestR73_EachRouteHasItsOwnPolicy(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	g := routed(t, u.URL,
		Route{Match: "POST /payments", Unkeyed: UnkeyedRefuse},
		Route{Match: "POST /quotes/{id}", Policy: semel.Policy{OnLost: semel.Rerun}},
		Route{Match: "PUT /accounts/{id}", Policy: semel.Policy{Methods: []string{"PUT"}}},
	)
	for _, c := range []struct {
		method, path, key string
		executions        int // of two requests
		reason            string
	}{
		{"POST", "/payments", "k1", 1, "hold keeps a 500"},
		{"POST", "/payments", "", 0, "refused without a key"},
		{"POST", "/quotes/7", "k2", 2, "rerun releases a 500"},
		{"PUT", "/accounts/7", "k3", 1, "PUT is protected where a route says so"},
		{"PUT", "/others/7", "k4", 1, "and elsewhere if it carries a key"},
		{"PUT", "/others/7", "", 2, "without one it passes"},
		{"DELETE", "/others/7", "k7", 1, "so with every unsafe method"},
		{"POST", "/accounts/7", "k8", 1, "a route for PUT is not for POST"},
		{"POST", "/others", "k5", 1, "the default protects what no route names"},
		{"POST", "/others", "", 2, "and lets requests without a key pass"},
		{"PUT", "/payments", "", 2, "a route for POST is not for PUT"},
		{"POST", "//payments", "", 0, "a path that is not clean is matched as the clean one"},
		{"POST", "/quotes/../payments", "", 0, "so is one with dots"},
	} {
		var header []string
		if c.key != "" {
			header = []string{"Idempotency-Key", c.key}
		}
		before := len(u.requests())
		for range 2 {
			if a := ask(t, c.method, g.url+c.path, "", header...); c.executions > 0 && a.status != 500 {
				t.Errorf("%s %s: status %d, want the service's 500", c.method, c.path, a.status)
			}
		}
		if n := len(u.requests()) - before; n != c.executions {
			t.Errorf("%s %s: executed %d times, want %d: %s", c.method, c.path, n, c.executions, c.reason)
		}
	}
}

func TestAPatternNamesTheOperation(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL, Route{Match: "POST /payments/{id}"})
	ask(t, "POST", g.url+"/payments/7", "", "Idempotency-Key", "k").wants(t, 201, "")
	ask(t, "POST", g.url+"/payments/8", "", "Idempotency-Key", "k").wants(t, 422, refusal.KeyReused)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(g.log.String(), `"result":"executed","digest"`) || !strings.Contains(g.log.String(), `"endpoint":"POST /payments/{id}"`) {
		t.Errorf("the log does not name the operation by its pattern:\n%s", g.log)
	}
}

// http.ServeMux answers some requests itself. Through the gateway the service answers all of them.
func TestTheServiceAnswersWhatRoutesAlmostMatch(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL, Route{Match: "POST /tree/"}, Route{Match: "POST /a/{id}"})
	for _, target := range []string{"/tree", "/tree/x/", "/a/1/", "/a/", "/a/%7e", "/"} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			raw(t, g.Addr().String(), method+" "+target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").wants(t, 201, "")
			requests := u.requests()
			if got := requests[len(requests)-1].RequestURI; got != target {
				t.Errorf("%s %s became %s", method, target, got)
			}
		}
	}
	raw(t, g.Addr().String(), "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
}

func TestARouteForEverythingReplacesTheDefault(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL, Route{Match: "/", Unkeyed: UnkeyedRefuse})
	ask(t, "POST", g.url+"/any", "").wants(t, 400, refusal.KeyMissing)
	ask(t, "GET", g.url+"/any", "").wants(t, 201, "")
}

func TestARouteMayBeForAHost(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL, Route{Match: "POST shop.example/", Unkeyed: UnkeyedRefuse})
	for host, status := range map[string]int{"shop.example": 400, "shop.example:8080": 400, "bank.example": 201} {
		a := raw(t, g.Addr().String(), "POST /x HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 0\r\n\r\n")
		if a.status != status {
			t.Errorf("%s: status %d, want %d", host, a.status, status)
		}
	}
}

func TestR24_EachRouteHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL,
		Route{Match: "POST /small", Policy: semel.Policy{MaxRequestBody: 10}},
		Route{Match: "POST /large", Policy: semel.Policy{MaxRequestBody: 2 << 20, SpoolRequestAbove: 64 << 10}},
	)
	large := strings.Repeat("x", 1<<20+1)
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/small", "0123456789", 201},
		{"/small", "0123456789a", 413},
		{"/large", large, 201},
		{"/large", large + large, 413},
		{"/other", large, 413},
	} {
		a := askTooMuch(t, "POST", g.url+c.path, c.body, "Idempotency-Key", "k"+c.path[1:2]+strings.Repeat("x", len(c.body)%7))
		if a.status != c.status {
			t.Errorf("%s with %d bytes: status %d, want %d", c.path, len(c.body), a.status, c.status)
		}
	}
	if requests := u.requests(); len(requests) != 2 {
		t.Errorf("executed %d times, want 2", len(requests))
	} else if body, err := io.ReadAll(requests[1].Body); err != nil || string(body) != large {
		t.Errorf("%d bytes of a body kept in a file arrived, %v", len(body), err)
	}
}

func TestR9_AKeyMayComeInOtherPlaces(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL, Route{Match: "POST /a", Policy: semel.Policy{KeyHeaders: []string{"x-request-key"}, KeyField: "/id"}})
	header := []string{"Content-Type", "application/json"}
	ask(t, "POST", g.url+"/a", `{"id":"k1"}`, header...).wants(t, 201, "")
	if a := ask(t, "POST", g.url+"/a", `{"id":"k1"}`, header...); !a.replayed() {
		t.Error("a repeat by the body's key is no replay")
	}
	withHeader := append([]string{"X-Request-Key", "k2", "Connection", "X-Request-Key"}, header...)
	ask(t, "POST", g.url+"/a", `{}`, withHeader...).wants(t, 201, "")
	if a := ask(t, "POST", g.url+"/a", `{}`, withHeader...); !a.replayed() {
		t.Error("a repeat by the header's key is no replay")
	}
	requests := u.requests()
	if got := requests[len(requests)-1].Header.Get("X-Request-Key"); got != "k2" {
		t.Errorf("the key reached the upstream as %q", got)
	}
}

func TestR76a_TheCorrelationHeaderCanHaveAnotherName(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.CorrelationHeader = "x-request-ref" })
	for _, key := range []string{"", "k"} {
		header := []string{"X-Request-Ref", "ref-" + key}
		if key != "" {
			header = append(header, "Idempotency-Key", key)
		}
		a := ask(t, "POST", g.url+"/", "", header...)
		requests := u.requests()
		r := requests[len(requests)-1]
		if a.header.Get("X-Request-Ref") != "ref-"+key || r.Header.Get("X-Request-Ref") != "ref-"+key {
			t.Errorf("key %q: client got %q, upstream %q", key, a.header.Get("X-Request-Ref"), r.Header.Get("X-Request-Ref"))
		}
		if a.header.Get("X-Correlation-Id") != "" || r.Header.Get("X-Correlation-Id") != "" {
			t.Error("the header of the default name is there too")
		}
	}
}

func TestR76a_R59a_ProblemsHaveTheirRoutesForm(t *testing.T) {
	t.Parallel()
	down, _ := closedPort(t)
	g := start(t, "http://"+down, func(c *Config) {
		c.ProblemBase, c.Documentation = "https://api.example/problems/", "https://api.example/docs"
		c.Routes = []Route{
			{Match: "POST /problem", Unkeyed: UnkeyedRefuse, Problems: Problems{
				Statuses: map[refusal.Code]int{refusal.KeyMissing: 429, "UPSTREAM_UNAVAILABLE": 504},
			}},
			{Match: "POST /simple", Unkeyed: UnkeyedRefuse, Problems: Problems{Simple: true, Documentation: "https://api.example/simple"}},
		}
	})
	for _, c := range []struct {
		path, key              string
		status                 int
		contentType, body, doc string
		retryAfter             string
		code                   string
	}{
		{"/problem", "", 429, "application/problem+json", `{"type":"https://api.example/problems/key-missing","title":"an idempotency key is required","status":429,`, "https://api.example/docs", "1", "IDEMPOTENCY_KEY_REQUIRED"},
		{"/problem", "k", 504, "application/problem+json", `{"type":"https://api.example/problems/upstream-unavailable","title":"the service can't be reached; the request was not run","status":504,"code":"UPSTREAM_UNAVAILABLE","retryable":true}` + "\n", "", "1", "UPSTREAM_UNAVAILABLE"},
		{"/simple", "", 400, "application/json", `{"success":false,"error":{"code":"IDEMPOTENCY_KEY_REQUIRED","message":"an idempotency key is required: send the header Idempotency-Key"}}` + "\n", "https://api.example/simple", "", "IDEMPOTENCY_KEY_REQUIRED"},
		{"/simple", "k", 503, "application/json", `{"success":false,"error":{"code":"UPSTREAM_UNAVAILABLE","message":"the service can't be reached; the request was not run"}}` + "\n", "", "1", "UPSTREAM_UNAVAILABLE"},
		{"/other", "a b", 400, "application/problem+json", `{"type":"https://api.example/problems/key-invalid"`, "", "", "IDEMPOTENCY_KEY_INVALID"},
	} {
		var header []string
		if c.key != "" {
			header = []string{"Idempotency-Key", c.key + c.path[1:]}
		}
		a := ask(t, "POST", g.url+c.path, "", header...)
		if a.status != c.status || a.header.Get("Content-Type") != c.contentType || !strings.HasPrefix(a.body, c.body) {
			t.Errorf("%s %q: %d %s %s", c.path, c.key, a.status, a.header.Get("Content-Type"), a.body)
		}
		if link := a.header.Get("Link"); (c.doc != "") != strings.Contains(link, "<"+c.doc+">") {
			t.Errorf("%s %q: Link is %q, want %q", c.path, c.key, link, c.doc)
		}
		if got := a.header.Get("Retry-After"); got != c.retryAfter {
			t.Errorf("%s %q: Retry-After is %q, want %q", c.path, c.key, got, c.retryAfter)
		}
		if got := a.header.Get("Idempotency-Code"); got != c.code {
			t.Errorf("%s %q: Idempotency-Code is %q, want %q", c.path, c.key, got, c.code)
		}
	}
}

func TestR92_ARouteThatObservesChangesNothing(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangup":
			hangUp(w, r)
		case "/broken":
			breakOffChunked(w, r)
		case "/unknown":
			w.Header().Set("Idempotency-Outcome", "unknown")
			created(w, r)
		default:
			created(w, r)
		}
	})
	g := routed(t, u.URL, Route{Match: "/", Unkeyed: UnkeyedRefuse, Policy: semel.Policy{ObserveOnly: true}})
	for i := range 2 {
		a := post(t, g.url, "k")
		a.wants(t, 201, "")
		if a.replayed() {
			t.Error("a route that observes has replayed")
		}
		if i == 0 { // the answer does not wait for the record
			eventually(t, "the record of the answer", func() bool {
				return strings.Contains(g.log.String(), `"result":"executed","observed":true`)
			})
		}
		ask(t, "POST", g.url+"/", strings.Repeat("x", 2<<20), "Idempotency-Key", "big").wants(t, 201, "")
		ask(t, "POST", g.url+"/", "").wants(t, 201, "")
		ask(t, "POST", g.url+"/unknown", "", "Idempotency-Key", "u").wants(t, 201, "")
		ask(t, "POST", g.url+"/hangup", "", "Idempotency-Key", "h").wants(t, 502, "UPSTREAM_BROKEN")
		if a, err := tryAsk("POST", g.url+"/broken", "", "Idempotency-Key", "b"); err == nil {
			t.Errorf("an answer that broke off was ended cleanly: %d %q", a.status, a.body)
		}
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"result":"executed","observed":true`, `"result":"replayed","observed":true`, `"result":"refused","code":"IDEMPOTENCY_KEY_REQUIRED","observed":true`} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, g.log)
		}
	}
}

func TestR76_AtStartItWarnsOfWhatIsNotProtected(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Routes = []Route{
			{Match: "POST /pass"},
			{Match: "POST /refuse", Unkeyed: UnkeyedRefuse},
			{Match: "POST /observe", Unkeyed: UnkeyedRefuse, Policy: semel.Policy{ObserveOnly: true}},
		}
	})
	log := g.log.String()
	for _, want := range []string{
		`"msg":"requests without a key pass unprotected","route":"default"`, `"msg":"requests without a key pass unprotected","route":"POST /pass"`,
		`"msg":"the route only observes: no request is refused or replayed","route":"POST /observe"`, `"event":"idempotency_plain_identity"`,
		`"msg":"scope single: all callers are one`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
	if n := strings.Count(log, `"level":"WARN"`); n != 6 { // the others are that case differs in paths, and what single means
		t.Errorf("%d warnings, want 6:\n%s", n, log)
	}
}

func TestR63_ARouteMayFailOpen(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Store, c.ShutdownTimeout = brokenStore{c.Store}, 50*time.Millisecond
		c.Routes = []Route{{Match: "POST /open", Policy: semel.Policy{FailOpen: true}}}
	})
	a := ask(t, "POST", g.url+"/open", "body", "Idempotency-Key", "k")
	a.wants(t, 201, "")
	if a.header.Get("Idempotency-Status") != "bypassed" {
		t.Errorf("Idempotency-Status is %q", a.header.Get("Idempotency-Status"))
	}
	ask(t, "POST", g.url+"/shut", "body", "Idempotency-Key", "k").wants(t, 503, refusal.StoreUnavailable)
}

func TestWhatIsWrongWithARouteNamesIt(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	target, err := ParseUpstream(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: target, Scope: Scope{set: true}, Store: memstore.New(),
		Routes: []Route{{Match: "POST /a", Policy: semel.Policy{Patience: -1}}, {Match: "PUT /b", Unkeyed: UnkeyedRefuse}},
	})
	for _, want := range []string{"route POST /a: client-timeout is negative: -1ns", "route PUT /b: unkeyed: without a key a PUT passes where methods does not name it: add methods: [PUT]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

func TestReconcileNeedsAStoreThatCanBeSearched(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	target, err := ParseUpstream(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: target, Scope: Scope{set: true}, Store: brokenStore{memstore.New()},
		Routes: []Route{{Match: "POST /a", Reconcile: "/operations/{operation}"}},
	})
	if err == nil || !strings.Contains(err.Error(), "can't be searched") {
		t.Errorf("error is %v", err)
	}
}
