package gateway

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// lastHeader is the header of the last request that the upstream has seen, by the names that a WSGI service gives them.
func (u *upstream) lastHeader() map[string][]string {
	all := u.requests()
	seen := map[string][]string{}
	for name, values := range all[len(all)-1].Header {
		name = "HTTP_" + strings.ToUpper(strings.ReplaceAll(hyphened(name), "-", "_"))
		seen[name] = append(seen[name], values...)
	}
	return seen
}

func TestAttack03_HeadersThatAServiceMayTakeForOthersAreDropped(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	for _, keep := range []bool{false, true} {
		g := start(t, u.URL, func(c *Config) {
			c.Scope, c.KeepUnderscores = Scope{header: "X-Account", set: true}, keep
		})
		for i, odd := range []string{
			"X_Account: victim", "x_account: victim", "X.Account: victim", "Idempotency_Fence: 99", "Idempotency_Operation: forged", "idempotency_attempt: 7",
			"Idempotency_Key: other", "X_Correlation_Id: forged", "X_Forwarded_For: 203.0.113.9", "X-Forwarded_Proto: gopher", "X_HTTP_Method_Override: DELETE",
		} {
			for _, key := range []string{fmt.Sprintf("Idempotency-Key: %t-%d\r\n", keep, i), ""} {
				raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\nX-Account: me\r\n"+key+odd+"\r\nX_Mine: 1\r\nContent-Length: 0\r\n\r\n").wants(t, 201, "")
				for name, values := range u.lastHeader() {
					if len(values) != 1 || slices.Contains([]string{"victim", "99", "forged", "7", "other", "203.0.113.9", "gopher", "DELETE"}, values[0]) {
						t.Errorf("kept %t, %q: the service reads %s as %q", keep, odd, name, values)
					}
				}
				if _, passed := u.lastHeader()["HTTP_X_MINE"]; passed != keep {
					t.Errorf("kept %t: X_Mine passed: %t", keep, passed)
				}
			}
		}
		if got := ask(t, "GET", g.admin+"/metrics", "").body; !strings.Contains(got, fmt.Sprintf("\nidempotency_dropped_headers_total %d\n", map[bool]int{false: 44, true: 22}[keep])) {
			t.Errorf("kept %t: not counted in\n%s", keep, got)
		}
	}
}

func TestAttack03_TrailersThatAServiceMayTakeForOthersAreDropped(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
		raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\n"+key+"Transfer-Encoding: chunked\r\nTrailer: X-Sum, Idempotency_Fence\r\n\r\n"+
			"2\r\nok\r\n0\r\nX-Sum: 1\r\nIdempotency_Fence: 9\r\nX_Other: 2\r\n\r\n").wants(t, 201, "")
		all := u.requests()
		if got := all[len(all)-1].Trailer; len(got) != 1 || got.Get("X-Sum") != "1" {
			t.Errorf("trailers that reached the service: %q", got)
		}
	}
}

func TestAttack03_AServiceRunsNoOtherMethodThanTheGuardHasSeen(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	const length = "Content-Length: 0\r\n"
	for _, request := range []string{
		"TRACE / HTTP/1.1\r\nHost: x\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX-HTTP-Method-Override: POST\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nX-HTTP-Method: DELETE\r\n" + length,
		"POST / HTTP/1.1\r\nHost: x\r\nX-HTTP-Method: POST\r\nX-Method-Override: DELETE\r\n" + length,
		"POST / HTTP/1.1\r\nHost: x\r\nX-HTTP-Method: POST\r\nX-HTTP-Method: put\r\n" + length,
		"POST /?_method=DELETE HTTP/1.1\r\nHost: x\r\n" + length,
		"GET /?a=1&%5fmethod=POST HTTP/1.1\r\nHost: x\r\n",
		"GET /?_m%65thod=POST HTTP/1.1\r\nHost: x\r\n",
		"GET /?a;_method=POST HTTP/1.1\r\nHost: x\r\n",
		"GET /?_method=POST%&a=%zz HTTP/1.1\r\nHost: x\r\n",
		"GET /?_method=POST" + strings.Repeat("&", 12000) + " HTTP/1.1\r\nHost: x\r\n", // more than net/url reads
	} {
		raw(t, g.Addr().String(), request+"\r\n").wants(t, 501, "METHOD_REFUSED")
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("%d requests reached the service", n)
	}
	ask(t, "POST", g.url+"/?_method=post", "", "X-HTTP-Method-Override", "POST").wants(t, 201, "")
	ask(t, "POST", g.url+"/?method=DELETE", "").wants(t, 201, "")
}

func TestAttack03_AnOverrideThatPassesIsPartOfTheRequest(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.PassOverrides = true })
	for i, name := range overrideHeaders {
		key := fmt.Sprint("k", i)
		ask(t, "POST", g.url+"/", "", "Idempotency-Key", key, name, "PUT").wants(t, 201, "")
		ask(t, "POST", g.url+"/", "", "Idempotency-Key", key, name, "DELETE").wants(t, 422, refusal.KeyReused)
	}
	observing := start(t, u.URL, func(c *Config) { c.Default.Policy.ObserveOnly = true })
	ask(t, "POST", observing.url+"/", "", "X-HTTP-Method", "PUT").wants(t, 201, "")
}

// Each of these is POST /payments to some service.
var aliases = []string{
	"//payments", "/payments//", "/./payments", "/x/../payments", "/x/%2e%2e/payments", "/x/.%2E/payments", "/%2e/payments", "/payments%2f", "/payments%2Fx", "/payments;x",
	"/payments;x=1/", "/payments%3Bx", "/x\\..\\payments", "/x/..%5cpayments", "/payments%00", "/payments%0a", "/%252e%252e/payments", "/payments%252f", "/payments/.",
	"/payments/x/..", "http://x//payments",
}

func TestAttack04_APathWithSeveralReadingsIsRefusedWhereRoutesCount(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	routed := routed(t, u.URL, Route{Match: "POST /payments", Unkeyed: UnkeyedRefuse})
	refusing := start(t, u.URL, func(c *Config) { c.Default.Unkeyed = UnkeyedRefuse })
	based := start(t, u.URL+"/base")
	plain := start(t, u.URL)
	passing := start(t, u.URL, func(c *Config) {
		c.PassAmbiguous = true
		c.Routes = []Route{{Match: "POST /orders"}}
	})
	for _, target := range aliases {
		send := func(g *running, key string) answer {
			return raw(t, g.Addr().String(), "POST "+target+" HTTP/1.1\r\nHost: x\r\n"+key+"Content-Length: 0\r\n\r\n")
		}
		for _, key := range []string{"", "Idempotency-Key: k\r\n"} {
			for _, g := range []*running{routed, refusing, based} {
				a := send(g, key)
				if a.wants(t, 400, "TARGET_REFUSED"); a.header.Get("Idempotency-Code") != "TARGET_REFUSED" {
					t.Errorf("%s: the code is %q", target, a.header.Get("Idempotency-Code"))
				}
			}
		}
		before := len(u.requests())
		for _, g := range []*running{plain, passing} {
			if a := send(g, ""); a.status != 201 {
				t.Errorf("%s: status %d where no route counts", target, a.status)
			}
		}
		if n := len(u.requests()); n != before+2 {
			t.Errorf("%s: %d requests have reached the service, want 2", target, n-before)
		}
	}
}

func TestAttack04_ATargetThatIsNoPathIsRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, target := range []string{"x:http://h/payments", "x:payments/1", "http:payments", "mailto:a@b"} {
		raw(t, g.Addr().String(), "POST "+target+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n").wants(t, 400, "TARGET_REFUSED")
	}
	raw(t, g.Addr().String(), "GET http://h/payments HTTP/1.1\r\nHost: x\r\n\r\n").wants(t, 201, "")
	if n := len(u.requests()); n != 1 {
		t.Errorf("%d requests reached the service, want the one that is for a path", n)
	}
}

func TestAttack04_ARouteHasItsPathsOtherSpellings(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	refused := func(match string) Route { return Route{Match: match, Unkeyed: UnkeyedRefuse} }
	routes := []Route{refused("POST /payments"), refused("POST /orders/{id}"), refused("POST /tree/"), refused("POST Shop.Example/x"), {Match: "POST /both/"}, refused("POST /both"), refused("POST /one/{$}"), refused("POST /Mixed/{Id}")}
	matching := routed(t, u.URL, routes...)
	folding := start(t, u.URL, func(c *Config) { c.MatchCase, c.Routes = new(bool), routes })
	for _, c := range []struct {
		host, path     string
		exact, anyCase bool // refused
	}{
		{"x", "/payments", true, true},
		{"x", "/payments/", true, true},
		{"x", "/p%61yments/", true, true},
		{"x", "/PAYMENTS", false, true},
		{"x", "/Payments/", false, true},
		{"x", "/payments/1", false, false},
		{"x", "/orders/1", true, true},
		{"x", "/orders/1/", true, true},
		{"x", "/ORDERS/A/", false, true},
		{"x", "/orders/", false, false},
		{"x", "/tree", true, true},
		{"x", "/tree/a/b/", true, true},
		{"x", "/one", true, true},
		{"x", "/Mixed/A", true, true},
		{"x", "/mixed/A", false, true},
		{"x", "/one/", true, true},
		{"x", "/both", true, true},
		{"x", "/both/", false, false},
		{"shop.example", "/x", true, true},
		{"SHOP.example:80", "/x/", true, true},
		{"shop.EXAMPLE.", "/x", true, true},
		{"shop.example.:80", "/x", true, true},
		{"shop.example", "/X", false, true},
	} {
		for g, want := range map[*running]bool{matching: c.exact, folding: c.anyCase} {
			a := raw(t, g.Addr().String(), "POST "+c.path+" HTTP/1.1\r\nHost: "+c.host+"\r\nContent-Length: 0\r\n\r\n")
			if got := a.status == 400; got != want {
				t.Errorf("%s%s, case ignored %t: status %d", c.host, c.path, g == folding, a.status)
			}
		}
	}
}

func TestAttack04_WhatReachesAServicePastItsRoutesIsWarnedOf(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	const wantCase, wantPaths, wantMethods, wantForm, wantNames = "upper and lower case differ", "paths with several readings pass", "another method than their own", "_method in a form", "headers with underscores"
	for _, c := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.Routes = []Route{{Match: "POST /a", Unkeyed: UnkeyedRefuse}} }, []string{wantCase}},
		{func(c *Config) { c.Routes = []Route{{Match: "POST /a"}} }, nil},
		{func(c *Config) {
			c.Routes, c.MatchCase = []Route{{Match: "PUT /a", Unkeyed: UnkeyedRefuse, Policy: semel.Policy{Methods: []string{"PUT"}}}}, new(bool)
			c.PassAmbiguous, c.PassOverrides, c.KeepUnderscores = true, true, true
		}, []string{wantPaths, wantMethods, wantForm, wantNames}},
	} {
		log := start(t, u.URL, c.change).log.String()
		for _, text := range []string{wantCase, wantPaths, wantMethods, wantForm, wantNames} {
			if got := strings.Contains(log, text); got != slices.Contains(c.want, text) {
				t.Errorf("warned of %q: %t, want the other, in\n%s", text, got, log)
			}
		}
	}
}

func TestAttack04_ReadingsOfOneServiceDoNotPassItsRoute(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	ran := 0
	mux.HandleFunc("/payments", func(w http.ResponseWriter, _ *http.Request) {
		ran++
		io.WriteString(w, "paid")
	})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.ToLower(strings.TrimRight(strings.ReplaceAll(r.URL.Path, "//", "/"), "/"))
		r.URL.Path, _, _ = strings.Cut(r.URL.Path, ";")
		mux.ServeHTTP(w, r)
	})
	g := start(t, u.URL, func(c *Config) {
		c.MatchCase, c.Routes = new(bool), []Route{{Match: "POST /payments", Unkeyed: UnkeyedRefuse}}
	})
	for _, target := range append([]string{"/PAYMENTS/", "/payments/", "/payments"}, aliases...) {
		raw(t, g.Addr().String(), "POST "+target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	}
	if ran != 0 {
		t.Errorf("%d requests without a key were run", ran)
	}
}

func TestAttack03_AHeaderThatIsDroppedCanNotBeASetting(t *testing.T) {
	t.Parallel()
	for setting, file := range map[string]string{
		"scope": "scope: header:X_Account\n", "correlation_header": "scope: single\ncorrelation_header: X_Ref\n",
		"key_headers":         "scope: single\ndefault: {key_headers: [Request_Key]}\n",
		"fingerprint_headers": "scope: single\ndefault: {fingerprint_headers: [X_Version]}\n",
		"mint.fields":         "scope: single\ndefault: {unkeyed: mint, exclude: [], mint: {fields: [\"header:X_Order\"]}}\n",
	} {
		file = "upstream: http://127.0.0.1:9000\n" + file
		if _, err := load(t, file); err == nil || !strings.Contains(err.Error(), setting+": ") || !strings.Contains(err.Error(), "is dropped from requests") {
			t.Errorf("%s: error is %v", setting, err)
		}
		if _, err := load(t, file+"underscores: keep\n"); err != nil {
			t.Errorf("%s, kept: %v", setting, err)
		}
	}
}
