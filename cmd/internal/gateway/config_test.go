package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/memstore"
)

func TestAnUpstreamIsAnAddressOfHTTP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, wrong string }{
		{"http://127.0.0.1:9000", ""},
		{"https://payments.internal/api", ""},
		{"payments", "http:// or https://"},
		{"payments/9000", "http:// or https://"},
		{"https:/payments", "http:// or https://"},
		{"payments:", "http:// or https://"},
		{"payments:http", "http:// or https://"},
		{"user:secret@payments", "user and password"},
		{"ftp://payments", "http:// or https://"},
		{"http://", "no host"},
		{"http://:9000", "no host"},
		{"http://user:secret@payments", "user and password"},
		{"http://payments/?a=b", "no query"},
		{"http://payments/#a", "no fragment"},
		{"http://pay ments", "upstream"},
	} {
		_, err := ParseUpstream(c.in)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q: error %v, want one with %q", c.in, err, c.wrong)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats the password: %v", c.in, err)
		}
	}
}

func TestField21_AnUpstreamOfHostAndPortIsOneOfHTTP(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"127.0.0.1:9200": "http://127.0.0.1:9200", "payments:9000/api": "http://payments:9000/api", "[::1]:80": "http://[::1]:80",
		"localhost:8080": "http://localhost:8080", "https://payments:9000": "https://payments:9000",
	} {
		if u, err := ParseUpstream(in); err != nil || u.String() != want {
			t.Errorf("%q is %v, %v; want %s", in, u, err, want)
		}
	}
}

func TestNetworksAreReadAsPrefixes(t *testing.T) {
	t.Parallel()
	got, err := ParseNetworks([]string{"10.1.2.3/8", "::1", "192.0.2.7", "::ffff:10.1.2.3", "::ffff:10.1.2.3/104"})
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, n := range got {
		text = append(text, n.String())
	}
	if s := strings.Join(text, " "); s != "10.0.0.0/8 ::1/128 192.0.2.7/32 10.1.2.3/32 10.0.0.0/8" {
		t.Errorf("networks are %s", s)
	}
	for _, bad := range []string{"", "10.0.0.0/33", "proxy.internal", "10.0.0"} {
		if _, err := ParseNetworks([]string{bad}); err == nil || !strings.Contains(err.Error(), "neither a network") {
			t.Errorf("%q: error is %v", bad, err)
		}
	}
}

func TestAScopeIsSingleOrNamesHeaders(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"single", "header:X-Account", "header:X-Tenant,X-User"} {
		s, err := ParseScope(good)
		if err != nil || s.String() != good {
			t.Errorf("%q: %v, %v", good, s, err)
		}
	}
	for _, bad := range []string{"", "header:", "header:A,", "header:,A", "Single", "jwt:sub", "X-Account"} {
		if _, err := ParseScope(bad); err == nil || !strings.Contains(err.Error(), "want header:NAME") {
			t.Errorf("%q: error is %v", bad, err)
		}
	}
}

func TestR11_AScopeHeaderMustBeAHeaderName(t *testing.T) {
	t.Parallel()
	s, err := ParseScope("header:X Account")
	if err != nil {
		t.Fatal(err)
	}
	u := newUpstream(t, created)
	target, err := ParseUpstream(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{Listen: ":0", Admin: ":0", Upstream: target, Store: memstore.New(), Scope: s})
	if err == nil || !strings.Contains(err.Error(), `"X Account" is not a header name`) {
		t.Errorf("error is %v", err)
	}
}

func TestMethodsThatWouldPassTheGuardAreRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, method := range []string{"post", "Patch", http.MethodConnect} {
		raw(t, g.Addr().String(), method+" / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n").
			wants(t, 501, "METHOD_REFUSED")
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("upstream executed %d requests, want none", n)
	}
}
