package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/semelhq/semel/refusal"
)

// client speaks only what is given.
func client(t *testing.T, roots *x509.CertPool, set func(*http.Protocols)) *http.Client {
	t.Helper()
	transport := &http.Transport{
		Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableCompression: true,
	}
	set(transport.Protocols)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }
func http2(p *http.Protocols) { p.SetHTTP2(true) }
func h2c(p *http.Protocols)   { p.SetUnencryptedHTTP2(true) }

// protocols are what clients speak with the gateway.
var protocols = []struct {
	name      string
	encrypted bool
	set       func(*http.Protocols)
}{
	{"HTTP/1.1", false, http1},
	{"h2c", false, h2c},
	{"HTTP/1.1 over TLS", true, http1},
	{"HTTP/2 over TLS", true, http2},
}

// over runs a test over each of the protocols.
func over(t *testing.T, upstream http.HandlerFunc, test func(t *testing.T, url string, c *http.Client, u *upstream)) {
	t.Helper()
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, upstream)
			var roots *x509.CertPool
			g := start(t, u.URL, func(cfg *Config) {
				if p.encrypted {
					cfg.TLS, roots = newCertificate(t)
				}
			})
			url := g.url
			if p.encrypted {
				url = "https" + strings.TrimPrefix(url, "http")
			}
			test(t, url, client(t, roots, p.set), u)
			for _, r := range u.requests() {
				if r.ProtoMajor != 1 {
					t.Errorf("the upstream was asked over %s", r.Proto)
				}
			}
		})
	}
}

func send(t *testing.T, c *http.Client, method, url string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	res, err := trySend(t, c, method, url, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// sendTooMuch is askTooMuch over the client's protocol.
func sendTooMuch(t *testing.T, c *http.Client, url, body string, header ...string) (res *http.Response) {
	t.Helper()
	var err error
	for range 5 {
		res, err = trySend(t, c, "POST", url, strings.NewReader(body), header...)
		if err == nil {
			return res
		}
	}
	t.Fatal(err)
	return nil
}

func trySend(t *testing.T, c *http.Client, method, url string, body io.Reader, header ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

func read(t *testing.T, res *http.Response) answer {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

func TestR77_ClientsMaySpeakHTTP2(t *testing.T) {
	t.Parallel()
	over(t, created, func(t *testing.T, url string, c *http.Client, u *upstream) {
		large := strings.Repeat("x", 2<<20)
		first := send(t, c, "POST", url+"/payments", strings.NewReader("body"), "Idempotency-Key", "k")
		again := send(t, c, "POST", url+"/payments", strings.NewReader("body"), "Idempotency-Key", "k")
		a, b := read(t, first), read(t, again)
		a.wants(t, 201, "")
		b.wants(t, 201, "")
		if a.replayed() || !b.replayed() || a.body != b.body {
			t.Errorf("replayed %t and %t: %q and %q", a.replayed(), b.replayed(), a.body, b.body)
		}
		read(t, send(t, c, "POST", url+"/payments", strings.NewReader("other"), "Idempotency-Key", "k")).wants(t, 422, refusal.KeyReused)
		read(t, sendTooMuch(t, c, url+"/payments", large, "Idempotency-Key", "large")).wants(t, 413, refusal.BodyTooLarge)
		read(t, send(t, c, "POST", url+"/payments", strings.NewReader(large))).wants(t, 201, "")
		read(t, send(t, c, "GET", url+"/payments", nil)).wants(t, 201, "")
		want := 1
		if protocols := c.Transport.(*http.Transport).Protocols; protocols.HTTP2() || protocols.UnencryptedHTTP2() {
			want = 2
		}
		if first.ProtoMajor != want || again.ProtoMajor != want {
			t.Errorf("answered over %s and %s", first.Proto, again.Proto)
		}
		if n := u.executions("k"); n != 1 {
			t.Errorf("executed %d times, want once", n)
		}
	})
}

func TestR77_TrailersPassBothWays(t *testing.T) {
	t.Parallel()
	over(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "got "+r.Trailer.Get("X-Client-Sum"))
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Late", "43")
	}, func(t *testing.T, url string, c *http.Client, _ *upstream) {
		for i, header := range [][]string{nil, {"Idempotency-Key", "k"}, {"Idempotency-Key", "k"}} {
			req, err := http.NewRequest("POST", url+"/", io.NopCloser(strings.NewReader("body")))
			if err != nil {
				t.Fatal(err)
			}
			req.Trailer = http.Header{"X-Client-Sum": {"7"}}
			if header != nil {
				req.Header.Set(header[0], header[1])
			}
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			a := read(t, res)
			if a.body != "got 7" || res.Trailer.Get("X-Sum") != "42" || res.Trailer.Get("X-Late") != "43" {
				t.Errorf("request %d: %q with trailers %q", i, a.body, res.Trailer)
			}
			if a.replayed() != (i == 2) {
				t.Errorf("request %d: replayed %t", i, a.replayed())
			}
		}
	})
}

func TestR38_R77_EventsArriveAtOnceAndAreReplayed(t *testing.T) {
	t.Parallel()
	var waiting sync.Map // by the client's X-Client: what its upstream waits for
	more := func(name string) chan struct{} {
		c, _ := waiting.LoadOrStore(name, make(chan struct{}))
		return c.(chan struct{})
	}
	over(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		select {
		case <-more(r.Header.Get("X-Client")):
		case <-r.Context().Done():
		}
		io.WriteString(w, "data: 2\n\n")
	}, func(t *testing.T, url string, c *http.Client, u *upstream) {
		for _, method := range []string{"GET", "POST"} {
			name := t.Name() + method
			res := send(t, c, method, url+"/events", nil, "Idempotency-Key", "k", "X-Client", name)
			in := bufio.NewReader(res.Body)
			if line, err := in.ReadString('\n'); err != nil || line != "data: 1\n" {
				t.Fatalf("%s: the first line is %q, %v", method, line, err)
			}
			close(more(name))
			if rest, err := io.ReadAll(in); err != nil || string(rest) != "\ndata: 2\n\n" {
				t.Errorf("%s: the rest is %q, %v", method, rest, err)
			}
		}
		again := read(t, send(t, c, "POST", url+"/events", nil, "Idempotency-Key", "k"))
		if !again.replayed() || again.body != "data: 1\n\ndata: 2\n\n" {
			t.Errorf("the repeat is %q, replayed %t", again.body, again.replayed())
		}
		if n := len(u.requests()); n != 2 {
			t.Errorf("executed %d times, want 2", n)
		}
	})
}

func TestR38_AStreamThatBreaksIsBrokenForItsClient(t *testing.T) {
	t.Parallel()
	over(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		breakOffChunked(w, r)
	}, func(t *testing.T, url string, c *http.Client, _ *upstream) {
		res := send(t, c, "POST", url+"/events", nil, "Idempotency-Key", "k")
		if body, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("the stream was ended cleanly after %q", body)
		}
		read(t, send(t, c, "POST", url+"/events", nil, "Idempotency-Key", "k")).wants(t, 409, refusal.ReplayUnavailable)
	})
}

func TestR44_TheUpstreamsWordOfAnOutcomeStaysInside(t *testing.T) {
	t.Parallel()
	over(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Idempotency-Outcome", r.Header.Get("X-Say"))
		created(w, r)
	}, func(t *testing.T, url string, c *http.Client, _ *upstream) {
		for _, say := range []string{"keep", "release", "unknown", "done"} {
			for _, method := range []string{"POST", "GET"} {
				for range 2 {
					a := read(t, send(t, c, method, url+"/", nil, "Idempotency-Key", say, "X-Say", say))
					for name, values := range a.header {
						if strings.Contains(name+strings.Join(values, ""), "Outcome") {
							t.Errorf("%s %s: the client sees %s: %q", method, say, name, values)
						}
					}
				}
			}
		}
	})
}

func TestR77_AnUnkeyedBodyMayTakeItsTime(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	g.Gateway.bodyTime = 50 * time.Millisecond
	for _, p := range protocols[:2] {
		in, out := io.Pipe()
		go func() {
			io.WriteString(out, "one ")
			time.AfterFunc(4*g.bodyTime, func() {
				io.WriteString(out, "two")
				out.Close()
			})
		}()
		read(t, send(t, client(t, nil, p.set), "POST", g.url+"/", in)).wants(t, 201, "")
		requests := u.requests()
		if body, err := io.ReadAll(requests[len(requests)-1].Body); err != nil || string(body) != "one two" {
			t.Errorf("%s: the upstream got %q, %v", p.name, body, err)
		}
	}
}

func TestAKeyedBodyOverHTTP2MustArriveInTime(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	g.Gateway.bodyTime = 50 * time.Millisecond
	in, out := io.Pipe()
	defer out.Close()
	go io.WriteString(out, "half")
	read(t, send(t, client(t, nil, h2c), "POST", g.url+"/", in, "Idempotency-Key", "k")).wants(t, 400, refusal.RequestUnreadable)
	if n := len(u.requests()); n != 0 {
		t.Errorf("executed %d times", n)
	}
}

func TestR77_WebSocketsPass(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow() //nolint:errcheck // the client has closed it
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, message); err != nil {
				t.Error(err)
			}
		}
	}
	for _, encrypted := range []bool{false, true} {
		u := newUpstream(t, echo)
		var roots *x509.CertPool
		g := start(t, u.URL, func(c *Config) {
			if encrypted {
				c.TLS, roots = newCertificate(t)
			}
		})
		scheme := map[bool]string{false: "ws", true: "wss"}[encrypted]
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// A client that offers HTTP/2 gets HTTP/1.1 for a WebSocket.
		c, _, err := websocket.Dial(ctx, scheme+strings.TrimPrefix(g.url, "http")+"/live", &websocket.DialOptions{
			HTTPClient: client(t, roots, http1), HTTPHeader: http.Header{"Idempotency-Key": {"ignored on GET"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range []string{"one", strings.Repeat("two ", 5000)} {
			c.SetReadLimit(1 << 20)
			if err := c.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
				t.Fatal(err)
			}
			if _, got, err := c.Read(ctx); err != nil || string(got) != message {
				t.Fatalf("sent %d bytes, got %d, %v", len(message), len(got), err)
			}
		}
		if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Errorf("close: %v", err)
		}
		if got := u.requests()[0].Header.Get("Idempotency-Operation"); got != "" {
			t.Errorf("a GET became the operation %s", got)
		}
	}
}

func TestR38_R77_AKeyedUpgradeHasBegun(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(c, rw) //nolint:errcheck // it ends when the client goes
	})
	g := start(t, u.URL)
	upgrade := "POST /live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n"
	c := dial(t, g.Addr().String())
	fmt.Fprint(c, upgrade)
	in := bufio.NewReader(c)
	readAnswer(t, in).wants(t, 101, "")
	fmt.Fprint(c, "hello\n")
	if line, err := in.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	raw(t, g.Addr().String(), upgrade).wants(t, 409, refusal.InProgress)
	c.Close()
	done(t, g, u)
	raw(t, g.Addr().String(), upgrade).wants(t, 409, refusal.ReplayUnavailable)
	if n := u.executions("k"); n != 1 {
		t.Errorf("executed %d times, want once", n)
	}
}

func TestTheCertificateIsReloaded(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var files TLSFiles
	var old *x509.CertPool
	g := start(t, u.URL, func(c *Config) {
		files, old = newCertificate(t)
		c.TLS = files
	})
	url := "https" + strings.TrimPrefix(g.url, "http")
	kept := client(t, old, http2)
	read(t, send(t, kept, "POST", url+"/", nil, "Idempotency-Key", "k")).wants(t, 201, "")
	renewed := renewCertificate(t, files)
	if err := g.Reload(); err != nil {
		t.Fatal(err)
	}
	read(t, send(t, client(t, renewed, http2), "POST", url+"/", nil, "Idempotency-Key", "k")).wants(t, 201, "")
	if _, err := client(t, old, http2).Get(url + "/"); err == nil {
		t.Error("a new connection still gets the old certificate")
	}
	read(t, send(t, kept, "POST", url+"/", nil, "Idempotency-Key", "k")).wants(t, 201, "") // its connection is still good

	if err := writeGarbage(files.Cert); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(); err == nil || !strings.Contains(err.Error(), "load certificate") {
		t.Errorf("error is %v", err)
	}
	read(t, send(t, client(t, renewed, http2), "POST", url+"/", nil, "Idempotency-Key", "k")).wants(t, 201, "")
}

// An upstream that switches to HTTP/2, or to a protocol that tunnels, would take requests from the client that no guard
// has seen.
func TestAttack06_NoUpgradeButToWebSocketReachesTheUpstream(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		created(w, r)
	})
	g := start(t, u.URL)
	for protocol, status := range map[string]int{
		"h2c": 201, "H2C": 201, "websocket, h2c": 201, "HTTP/2.0": 201, "TLS/1.2": 201, "websocket": 101, "WebSocket": 101, "h3-tunnel": 201, "echo": 201,
	} {
		for _, connection := range []string{"Upgrade", "Upgrade, HTTP2-Settings"} {
			a := raw(t, g.Addr().String(), "GET / HTTP/1.1\r\nHost: x\r\nConnection: "+connection+"\r\nUpgrade: "+protocol+"\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n")
			if a.status != status {
				t.Errorf("%s: status %d, want %d", protocol, a.status, status)
			}
		}
	}
}
