package gateway

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestAttack02_R11_OnOtherAddressesThanLoopbackNobodyIsTrustedByItself(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	for _, c := range []struct {
		listen, from string
		change       func(*Config)
	}{
		{"0.0.0.0:0", "127.0.0.1", func(*Config) {}},
		{"127.0.0.1:0", "192.0.2.1, 127.0.0.1", func(*Config) {}},
		{"0.0.0.0:0", "192.0.2.1, 127.0.0.1", func(c *Config) { c.TrustedProxies = Loopback() }},
	} {
		g := start(t, u.URL, func(cfg *Config) { cfg.Listen = c.listen }, c.change)
		address := fmt.Sprintf("127.0.0.1:%d", g.Addr().(*net.TCPAddr).Port)
		raw(t, address, "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n").wants(t, 201, "")
		requests := u.requests()
		if got := requests[len(requests)-1].Header.Get("X-Forwarded-For"); got != c.from {
			t.Errorf("%s: X-Forwarded-For is %q, want %q", c.listen, got, c.from)
		}
	}
}

func TestAttack02_R11_AScopeHeaderElsewhereThanOnLoopbackNeedsItsProxies(t *testing.T) {
	t.Parallel()
	config := func(listen, more string) string {
		return "listen: \"" + listen + "\"\nupstream: http://127.0.0.1:9000\n" + more
	}
	for _, listen := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "gateway.internal:8080", "[::1%lo]:8080"} {
		_, err := load(t, config(listen, "scope: header:X-Tenant,X-User\n"))
		if want := "3:8: scope: whose X-Tenant,X-User counts must be said, in trusted_proxies"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", listen, err, want)
		}
		for _, more := range []string{"scope: header:X-Account\ntrusted_proxies: [127.0.0.1]\n", "scope: single\n"} {
			if _, err := load(t, config(listen, more)); err != nil {
				t.Errorf("%s with %s: %v", listen, more, err)
			}
		}
	}
	for _, listen := range []string{"127.0.0.1:8080", "127.1.2.3:8080", "[::1]:8080", "localhost:8080", "[::ffff:127.0.0.1]:8080"} {
		if c, err := load(t, config(listen, "scope: header:X-Account\n")); err != nil || len(c.TrustedProxies) != 2 {
			t.Errorf("%s: %v, %v", listen, c.TrustedProxies, err)
		}
	}
}
