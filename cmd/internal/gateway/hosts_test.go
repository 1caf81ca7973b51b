package gateway

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestAttack07_APageOfAnotherNameGetsNothingFromALoopbackAddress(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Hosts, c.Operations = []string{"api.example", "*.shop.example"}, "/operations"
		c.Routes = []Route{{Match: "POST bank.example/x"}}
	})
	unlisted := start(t, u.URL, func(c *Config) { c.Hosts = nil })
	get := func(address net.Addr, host, path string) answer {
		return raw(t, address.String(), "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	}
	for _, c := range []struct {
		host           string
		listed, always bool // admitted with the list, and without
	}{
		{"rebound.evil", false, false},
		{"rebound.evil:8080", false, false},
		{"localhost.evil", false, false},
		{"127.0.0.1.evil", false, false},
		{"xlocalhost", false, false},
		{"shop.example", false, false},
		{"evilshop.example", false, false},
		{"localhost", true, true},
		{"LOCALHOST.:8080", true, true},
		{"app.localhost", true, true},
		{"127.0.0.1:8080", true, true},
		{"127.7.7.7", true, true},
		{"[::1]:8080", true, true},
		{"api.example", true, false},
		{"API.example.:443", true, false},
		{"a.shop.example", true, false},
		{"bank.example", true, false},
	} {
		for g, admitted := range map[*running]bool{g: c.listed, unlisted: c.always} {
			for _, path := range []string{"/", "/operations/x"} {
				if a := get(g.Addr(), c.host, path); admitted == (a.status == http.StatusMisdirectedRequest) {
					t.Errorf("%s%s: status %d, want it admitted: %t", c.host, path, a.status, admitted)
				}
			}
			for _, path := range []string{"/healthz", "/metrics"} {
				if a := get(g.AdminAddr(), c.host, path); admitted != (a.status == 200) || strings.Contains(a.body, "idempotency_requests_total") && !admitted {
					t.Errorf("administration, %s%s: status %d, want it admitted: %t", c.host, path, a.status, admitted)
				}
			}
		}
	}
	if a := get(g.Addr(), "rebound.evil", "/"); a.header.Get("Idempotency-Code") != "HOST_REFUSED" {
		t.Errorf("code %q", a.header.Get("Idempotency-Code"))
	}
	// A scraper asks by an address, also if that is not this machine's own.
	if a := get(g.AdminAddr(), "10.1.2.3:8081", "/metrics"); a.status != 200 {
		t.Errorf("a scraper gets %d", a.status)
	}
	if a := get(g.Addr(), "10.1.2.3:8080", "/"); a.status != http.StatusMisdirectedRequest {
		t.Errorf("a client that asks by another address gets %d", a.status)
	}
	raw(t, g.Addr().String(), "GET / HTTP/1.0\r\n\r\n").wants(t, 201, "")
}

func TestAttack07_ElsewhereTheListCounts(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	for _, c := range []struct {
		hosts  []string
		host   string
		status int
	}{
		{nil, "any.example", 201},
		{[]string{"api.example"}, "any.example", 421},
		{[]string{"api.example"}, "127.0.0.1", 421},
		{[]string{"api.example"}, "api.example", 201},
		{[]string{"*"}, "any.example", 201},
	} {
		g := start(t, u.URL, func(cfg *Config) { cfg.Listen, cfg.Hosts = "0.0.0.0:0", c.hosts })
		address := fmt.Sprintf("127.0.0.1:%d", g.Addr().(*net.TCPAddr).Port)
		if a := raw(t, address, "GET / HTTP/1.1\r\nHost: "+c.host+"\r\n\r\n"); a.status != c.status {
			t.Errorf("%s of %q: status %d, want %d", c.host, c.hosts, a.status, c.status)
		}
	}
}

func TestAttack07_HostsAreReloadedAndChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"api.example:8080", "https://api.example", "a.*.example", "", "a b"} {
		if _, err := load(t, minimal+fmt.Sprintf("hosts: [%q]\n", bad)); err == nil || !strings.Contains(err.Error(), "hosts: ") {
			t.Errorf("%q: error is %v", bad, err)
		}
	}
	if _, err := load(t, minimal+"hosts: [api.example, '*.api.example', 10.1.2.3, '::1', '*']\n"); err != nil {
		t.Error(err)
	}
}

func TestAttack07_NoClientReachesTheQuestionOfAnOperation(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Routes = []Route{
			{Match: "POST /a", Reconcile: "/internal/operations/{operation}"},
			{Match: "POST /b", Reconcile: "/state?of={operation}"},
			{Match: "POST /c", Reconcile: "/op-{operation}.json?x=1"},
		}
	})
	for _, target := range []string{
		"/internal/operations/abc", "/internal/operations/abc/", "/INTERNAL/operations/abc?x=1", "/internal/operation%73/abc", "/internal//operations/abc",
		"/x/../internal/operations/abc", "/internal/operations%2fabc", "/state?of=abc", "/state", "/state/", "/State", "/op-abc.json", "/op-.x.json",
	} {
		for _, method := range []string{"GET", "POST"} {
			raw(t, g.Addr().String(), method+" "+target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").wants(t, 400, "TARGET_REFUSED")
		}
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("%d requests reached the service", n)
	}
	for _, path := range []string{"/internal/operations", "/internal/operations/abc/more", "/states", "/op.json"} {
		ask(t, "GET", g.url+path, "").wants(t, 201, "")
	}
}

// As with the question about an operation, only the gateway itself may ask who may have an answer.
func TestAttack07_NoClientReachesThePathOfAuthorize(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	for authorize, base := range map[string]string{"/may-see?x=1": "", u.URL + "/may-see": "", "/./may%2Dsee": "", "/may-see": "/api", u.URL + "/api/may-see": "/api/"} {
		g := start(t, u.URL+base, func(c *Config) { c.Default.Authorize = authorize })
		before := len(u.requests())
		for _, target := range []string{
			"/may-see", "/may-see/", "/MAY-see", "/may%2dsee", "/%6Day-see?x=2", "//may-see", "/x/../may-see", "/./may-see", "/may-see;x", "/may-see%2f", "/may-see%3bx", "/%2e/may-see",
		} {
			for _, method := range []string{"GET", "POST"} {
				if a := raw(t, g.Addr().String(), method+" "+target+" HTTP/1.0\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); a.status != 400 {
					t.Errorf("%s at %s: %s %s: %d", authorize, base, method, target, a.status)
				}
			}
		}
		if n := len(u.requests()); n != before {
			t.Errorf("%s at %s: %d requests reached the service", authorize, base, n-before)
		}
		ask(t, "GET", g.url+"/may-see/more", "").wants(t, 201, "")
	}
	g := start(t, u.URL, func(c *Config) { c.Default.Authorize = "http://127.0.0.2:1/may-see" })
	ask(t, "GET", g.url+"/may-see", "").wants(t, 201, "") // that of another host is not the service's
	ask(t, "GET", g.url+"//may-see", "").wants(t, 201, "")
}
