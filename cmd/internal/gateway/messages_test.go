package gateway

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel/refusal"
)

// rawUpstream answers each connection's first request, which has no body, with the same bytes, and tells what it was
// asked.
func rawUpstream(t *testing.T, reply string) (url string, asked chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked = make(chan string, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var all strings.Builder
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					all.WriteString(line)
					if line == "\r\n" {
						break
					}
				}
				asked <- all.String()
				io.WriteString(c, reply)
			}()
		}
	}()
	return "http://" + l.Addr().String(), asked
}

func TestAttack06_ANumberThatIsNoStatusIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"000", "001", "099"} {
		up, _ := rawUpstream(t, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 4\r\nConnection: close\r\n\r\npaid")
		g := start(t, up)
		ask(t, "POST", g.url+"/", "").wants(t, 502, "UPSTREAM_BROKEN")
		ask(t, "GET", g.url+"/", "").wants(t, 502, "UPSTREAM_BROKEN")
		first := ask(t, "POST", g.url+"/", "", "Idempotency-Key", "k")
		if first.status < 400 || first.body == "paid" {
			t.Errorf("%s with a key: %d %s", status, first.status, first.body)
		}
		ask(t, "POST", g.url+"/", "", "Idempotency-Key", "k").wants(t, 409, refusal.OutcomeUnknown)
	}
}

func TestAttack06_NoContentTypeIsMadeUp(t *testing.T) {
	t.Parallel()
	const page = "<!doctype html><script>alert(1)</script>"
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch r.URL.Path {
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
		case "/typed":
			w.Header().Set("Content-Type", "text/plain")
		}
		io.WriteString(w, page)
	})
	for _, stream := range []bool{false, true} {
		g := start(t, u.URL, func(c *Config) { c.Default.Policy.Stream = stream })
		for _, path := range []string{"/", "/hints", "/typed"} {
			for _, key := range []string{"", "k" + path[1:], "k" + path[1:]} { // the last is a replay
				header := []string{"Idempotency-Key", key}
				if key == "" {
					header = nil
				}
				a := ask(t, "POST", g.url+path, "", header...)
				types := a.header["Content-Type"]
				if typed := path == "/typed"; a.body != page || typed != (len(types) == 1 && types[0] == "text/plain") || !typed && len(types) > 0 ||
					a.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("stream %t, %s, key %q: %d %q", stream, path, key, a.status, a.header)
				}
			}
		}
	}
}

func TestAttack06_WhatConnectionNamesGoesNowhere(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Scope, c.Default.Policy.Fingerprint.Headers = Scope{header: "X-Account", set: true}, []string{"X-Version"}
	})
	send := func(key string, lines ...string) answer {
		return raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\nX-Account: me\r\nIdempotency-Key: "+key+"\r\nX-Correlation-Id: c1\r\nX-Forwarded-For: 10.1.1.1\r\n"+
			strings.Join(lines, "\r\n")+"\r\nContent-Length: 0\r\n\r\n")
	}
	// Guard and service see the same request: one without the header.
	send("k1", "Connection: close, X-Version, X-Foo", "X-Version: 1", "X-Foo: 1").wants(t, 201, "")
	if a := send("k1"); !a.replayed() {
		t.Errorf("the request without the header is another one: %d %s", a.status, a.body)
	}
	h := u.requests()[0].Header
	if h.Get("X-Foo") != "" || h.Get("X-Version") != "" {
		t.Errorf("the service got %q", h)
	}
	// What the gateway goes by, and tells the service, stays.
	send("k2", "Connection: X-Account, Idempotency-Key", "Connection: x-correlation-id, X-Forwarded-For, Idempotency-Fence,idempotency-operation").wants(t, 201, "")
	h = u.requests()[1].Header
	for _, name := range []string{"X-Account", "Idempotency-Key", "X-Correlation-Id", "X-Forwarded-For", "Idempotency-Fence", "Idempotency-Operation"} {
		if h.Get(name) == "" {
			t.Errorf("the service got no %s", name)
		}
	}
	if got := h.Get("X-Forwarded-For"); !strings.HasPrefix(got, "10.1.1.1, ") {
		t.Errorf("X-Forwarded-For is %q", got)
	}
	if a := send("k2"); !a.replayed() {
		t.Errorf("the key was lost: %d %s", a.status, a.body)
	}
}

func TestAttack06_ARequestWithTwoLengthsIsRefusedAndItsConnectionClosed(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	const (
		smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
		sized    = "POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 62\r\n\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nPOST / HTTP\r\n"
		chunked  = "POST /first HTTP/1.1\r\nHost: x\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\n\r\n\r\r\n2b\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n\r\n0\r\nX-T: 1\r\n\r\n"
	)
	for _, before := range []string{"", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "GET /first HTTP/1.1\r\nHost: x\r\nX-Folded: a\r\n b\r\n\r\n", sized, chunked, chunked + sized + "\r\n", sized + chunked + sized} {
		for _, lengths := range []string{
			"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nX-A: b\r\ncontent-length: 5\r\n", "Content-Length:\r\n 5\r\nTransfer-Encoding:\tCHUNKED\r\n",
			"Content-Length: " + strings.Repeat("0", 600) + "5\r\nTransfer-Encoding: chunked\r\n",
		} {
			c := dial(t, g.Addr().String())
			in := bufio.NewReader(c)
			io.WriteString(c, before+"POST /second HTTP/1.1\r\nHost: x\r\n"+lengths+"\r\n0\r\n\r\n"+smuggled)
			for range strings.Count(before, " HTTP/1.1") {
				if a := readAnswer(t, in); a.status >= 300 {
					t.Fatalf("%.20q: status %d", before, a.status)
				}
			}
			if a := readAnswer(t, in); a.status != 400 {
				t.Fatalf("%.20q, %.40q: status %d, want 400", before, lengths, a.status)
			}
			if rest, _ := io.ReadAll(in); len(rest) > 0 {
				t.Errorf("%.20q, %.40q: the connection went on with %.60q", before, lengths, rest)
			}
		}
	}
	for _, r := range u.requests() {
		if r.URL.Path != "/first" {
			t.Errorf("%s reached the service", r.URL.Path)
		}
	}
	raw(t, g.Addr().String(), "POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").wants(t, 400, "REQUEST_NOT_FORWARDABLE")
}

func TestAttack06_AConnectionLivesOnAfterHonestLengths(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	c := dial(t, g.Addr().String())
	in := bufio.NewReader(c)
	body := strings.Repeat("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 3000)
	for range 3 {
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
			fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
		} {
			io.WriteString(c, request)
			readAnswer(t, in).wants(t, 201, "")
		}
	}
	if n := len(u.requests()); n != 9 {
		t.Errorf("%d requests reached the service, want 9", n)
	}
}

func TestAttack06_OverTLSAConnectionEndsWithAChunkedRequest(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var roots *x509.CertPool
	g := start(t, u.URL, func(c *Config) { c.TLS, roots = newCertificate(t) })
	for _, key := range []string{"", "Idempotency-Key: k\r\n"} {
		c := tls.Client(dial(t, g.Addr().String()), &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
		in := bufio.NewReader(c)
		io.WriteString(c, "POST /first HTTP/1.1\r\nHost: x\r\n"+key+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
		readAnswer(t, in).wants(t, 201, "")
		if rest, _ := io.ReadAll(in); len(rest) > 0 {
			t.Errorf("the connection went on with %.60q", rest)
		}
	}
	for _, r := range u.requests() {
		if r.URL.Path != "/first" {
			t.Errorf("%s reached the service", r.URL.Path)
		}
	}
}

func TestAttack06_ASpaceInAQueryDoesNotReachTheRequestLine(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	c := client(t, nil, h2c)
	for _, query := range []string{"x=1 HTTP/1.0"} {
		req, err := http.NewRequest("POST", g.url+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.RawQuery = query
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		read(t, res).wants(t, 400, "TARGET_REFUSED")
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("%d requests reached the service", n)
	}
	read(t, send(t, c, "POST", g.url+"/a?x=1+2", nil)).wants(t, 201, "")
}

func TestAttack06_TheUpstreamIsKnownByAPrivateAuthorityAndKnowsTheGateway(t *testing.T) {
	t.Parallel()
	server, _ := newCertificate(t)
	shown, shownPool := newCertificate(t)
	pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan string, 16)
	u := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		created(w, r)
	}))
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	u.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			names <- hello.ServerName
			return nil, nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			for _, c := range s.PeerCertificates {
				if _, err := c.Verify(x509.VerifyOptions{Roots: shownPool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	u.StartTLS()
	t.Cleanup(u.Close)
	for _, c := range []struct {
		name   string
		tls    UpstreamTLS
		status int
	}{
		{"the machine's authorities", UpstreamTLS{Cert: shown.Cert, Key: shown.Key}, 502},
		{"another authority", UpstreamTLS{CA: shown.Cert}, 502},
		{"another name", UpstreamTLS{CA: server.Cert, ServerName: "payments.internal"}, 502},
		{"nothing shown", UpstreamTLS{CA: server.Cert}, 403},
		{"a certificate shown", UpstreamTLS{CA: server.Cert, Cert: shown.Cert, Key: shown.Key}, 201},
	} {
		g := start(t, u.URL, func(cfg *Config) { cfg.UpstreamTLS = c.tls })
		if a := ask(t, "POST", g.url+"/", ""); a.status != c.status && (c.status != 502 || a.status != 503) {
			t.Errorf("%s: status %d, want %d; %s", c.name, a.status, c.status, a.body)
		}
		if name := <-names; name != c.tls.ServerName {
			t.Errorf("%s: the upstream was asked for by the name %q", c.name, name)
		}
	}
}

func TestAttack06_WhatIsWrongWithTheUpstreamsTLSIsSaid(t *testing.T) {
	t.Parallel()
	files, _ := newCertificate(t)
	const https = "upstream: https://127.0.0.1:9000\nscope: single\n"
	for file, want := range map[string]string{
		https + "upstream_tls: {ca: /nowhere.pem}\n":                      "no such file",
		https + "upstream_tls: {ca: " + files.Key + "}\n":                 "has no certificate",
		https + "upstream_tls: {cert: " + files.Cert + "}\n":              "a certificate but no key",
		minimal + "upstream_tls: {server_name: payments.internal}\n":      "is not https",
		https + "upstream_tls: {cert: /nowhere.pem, key: /nowhere.key}\n": "no such file",
	} {
		if _, err := load(t, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v", file, err)
		}
	}
}
