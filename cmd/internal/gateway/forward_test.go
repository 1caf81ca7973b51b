package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

func TestR49_R74_TheUpstreamLearnsWhichRunItServes(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Attempt") == "1" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		created(w, r)
	})
	g := start(t, u.URL)
	forged := []string{
		"Idempotency-Key", "k", "Idempotency-Attempt", "7", "Idempotency-Fence", "9", "Idempotency-Operation", "mine",
		"Connection", "X-Correlation-Id", "X-Correlation-Id", "trace-1",
	}
	ask(t, "POST", g.url+"/", "", forged...).wants(t, 429, "")
	a := ask(t, "POST", g.url+"/", "", forged...)
	a.wants(t, 201, "")
	requests := u.requests()
	one, two := requests[0].Header, requests[1].Header
	if one.Get("Idempotency-Attempt") != "1" || two.Get("Idempotency-Attempt") != "2" {
		t.Errorf("attempts are %q and %q", one.Get("Idempotency-Attempt"), two.Get("Idempotency-Attempt"))
	}
	if a, b := one.Get("Idempotency-Fence"), two.Get("Idempotency-Fence"); a == "9" || b <= a {
		t.Errorf("fences are %s and %s, want them to grow", a, b)
	}
	op := one.Get("Idempotency-Operation")
	if _, err := driver.ParseID(op); err != nil || two.Get("Idempotency-Operation") != op {
		t.Errorf("operation is %q, then %q", op, two.Get("Idempotency-Operation"))
	}
	for _, r := range requests {
		if got := r.Header.Values("X-Correlation-Id"); len(got) != 1 || got[0] != "trace-1" {
			t.Errorf("correlation id is %q", got)
		}
		for _, name := range runHeaders {
			if n := len(r.Header.Values(name)); n != 1 {
				t.Errorf("%d %s headers", n, name)
			}
		}
	}
	if got := a.header.Values("X-Correlation-Id"); len(got) != 1 || got[0] != "trace-1" {
		t.Errorf("the answer's correlation id is %q", got)
	}
	if !strings.Contains(g.log.String(), `"correlation":"trace-1"`) {
		t.Errorf("the log has no correlation id:\n%s", g.log)
	}
}

func TestR74_AClientCantForgeARunWithoutAKey(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, method := range []string{"POST", "PUT", "GET"} {
		ask(t, method, g.url+"/", "", "Idempotency-Attempt", "7", "Idempotency-Fence", "9", "Idempotency-Operation", "mine").wants(t, 201, "")
	}
	for _, r := range u.requests() {
		for _, name := range runHeaders {
			if r.Header.Get(name) != "" {
				t.Errorf("%s: %s reached the upstream", r.Method, name)
			}
		}
	}
}

func TestR74_AClientCantForgeARunOrAScopeInATrailer(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Scope = Scope{header: "X-Account", set: true}
	})
	for _, key := range []string{"Idempotency-Key: k\r\nX-Account: acme\r\n", ""} {
		raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\n"+key+"Transfer-Encoding: chunked\r\n"+
			"Trailer: Idempotency-Fence, X-Sum, X-Account\r\n\r\n"+
			"2\r\nok\r\n0\r\nIdempotency-Fence: 9\r\nX-Sum: 1\r\nX-Account: globex\r\nIdempotency-Attempt: 8\r\n\r\n").wants(t, 201, "")
		requests := u.requests()
		r := requests[len(requests)-1]
		if len(r.Trailer) != 1 || r.Trailer.Get("X-Sum") != "1" {
			t.Errorf("%q: trailers that reached the upstream are %q", key, r.Trailer)
		}
		if r.Header.Get("Idempotency-Fence") == "9" || r.Header.Get("X-Account") == "globex" {
			t.Errorf("%q: headers that reached the upstream are %q", key, r.Header)
		}
	}
}

func TestR76a_EveryRequestHasOneCorrelationID(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Correlation-Id", "the upstream's own")
		if r.URL.Path == "/hints" { // on a 1xx the proxy empties the header that it was given
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		}
		created(w, r)
	})
	g := start(t, u.URL)
	for _, c := range []struct{ method, path, key, sent string }{
		{"GET", "/", "", "id-1"},
		{"GET", "/hints", "", "id-2"},
		{"PUT", "/", "", ""},
		{"POST", "/", "", "id-4"},
		{"POST", "/hints", "", "id-5"},
		{"POST", "/", "k", "id-6"},
		{"POST", "/hints", "k1", "id-7"},
		{"POST", "/", "k2", "not plain"},
		{"GET", "/", "", strings.Repeat("x", 200)},
	} {
		headers := []string{"X-Correlation-Id", c.sent}
		if c.sent == "" {
			headers = nil
		}
		if c.key != "" {
			headers = append(headers, "Idempotency-Key", c.key)
		}
		a := ask(t, c.method, g.url+c.path, "", headers...)
		requests := u.requests()
		got, echoed := requests[len(requests)-1].Header.Values("X-Correlation-Id"), a.header.Values("X-Correlation-Id")
		if len(got) != 1 || len(echoed) != 1 || got[0] != echoed[0] {
			t.Errorf("%s %q: upstream got %q, client %q; want one and the same", c.method, c.sent, got, echoed)
			continue
		}
		if kept := strings.HasPrefix(c.sent, "id-"); kept != (got[0] == c.sent) || got[0] == "" {
			t.Errorf("%s %q: became %q", c.method, c.sent, got[0])
		}
	}
}

func untrusting(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }

func TestForwardedHeadersAreBelievedFromTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	for _, c := range []struct {
		name                 string
		change               func(*Config)
		from, host, protocol string
	}{
		{"trusted", func(*Config) {}, "203.0.113.9, 127.0.0.1", "shop.example", "https"},
		{"untrusted", untrusting, "127.0.0.1", "here.example", "http"},
	} {
		g := start(t, u.URL, c.change)
		raw(t, g.Addr().String(), "GET / HTTP/1.1\r\nHost: here.example\r\nX-Forwarded-For: 203.0.113.9\r\n"+
			"X-Forwarded-Host: shop.example\r\nX-Forwarded-Proto: https\r\nForwarded: for=203.0.113.9\r\n\r\n").wants(t, 201, "")
		requests := u.requests()
		r := requests[len(requests)-1]
		got := [...]string{r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Host"), r.Header.Get("X-Forwarded-Proto")}
		if got != [...]string{c.from, c.host, c.protocol} {
			t.Errorf("%s: upstream got %q", c.name, got)
		}
		if r.Header.Get("Forwarded") != "" {
			t.Errorf("%s: Forwarded reached the upstream", c.name)
		}
		if r.Host != "here.example" {
			t.Errorf("%s: Host is %q, want the client's own", c.name, r.Host)
		}
	}
}

func TestR10_R11_TheScopeHeaderSaysWhoAsks(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	byAccount := func(c *Config) { c.Scope = Scope{header: "X-Account", set: true} }
	g := start(t, u.URL, byAccount)
	send := func(g *running, accounts ...string) answer {
		headers := []string{"Idempotency-Key", "k"}
		for _, a := range accounts {
			headers = append(headers, "X-Account", a)
		}
		return ask(t, "POST", g.url+"/", "", headers...)
	}
	send(g, "acme").wants(t, 201, "")
	if a := send(g, "globex"); a.status != 201 || a.replayed() {
		t.Errorf("another principal's answer: %d, replayed %t", a.status, a.replayed())
	}
	if a := send(g, "acme"); !a.replayed() {
		t.Error("the same principal's repeat is no replay")
	}
	before := len(u.requests())
	send(g).wants(t, 400, refusal.ScopeInvalid)
	send(g, "").wants(t, 400, refusal.ScopeInvalid)
	send(g, "acme", "acme").wants(t, 400, refusal.ScopeInvalid)
	send(start(t, u.URL, byAccount, untrusting), "acme").wants(t, 400, refusal.ScopeInvalid)
	if n := len(u.requests()); n != before {
		t.Errorf("%d refused requests were executed", n-before)
	}
}

func TestR11_TheScopeHeaderOfAStrangerDoesNotReachTheUpstream(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	byAccount := func(c *Config) { c.Scope = Scope{header: "x-account", set: true} }
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{{func(*Config) {}, "acme"}, {untrusting, ""}} {
		g := start(t, u.URL, byAccount, c.change)
		for _, method := range []string{"GET", "POST", "PUT"} {
			ask(t, method, g.url+"/", "", "X-Account", "acme").wants(t, 201, "")
			requests := u.requests()
			if got := requests[len(requests)-1].Header.Get("X-Account"); got != c.want {
				t.Errorf("%s: upstream got the scope %q, want %q", method, got, c.want)
			}
		}
	}
}

func TestTheTargetReachesTheUpstreamByteByByte(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL+"/base/", func(c *Config) { c.PassAmbiguous = true })
	for _, target := range []string{"/a%2Fb/c", "/a?x=1;y=2&z=%zz", "/a//b?", "/a?b=c&a=d"} {
		raw(t, g.Addr().String(), "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n").wants(t, 201, "")
		requests := u.requests()
		if got := requests[len(requests)-1].RequestURI; got != "/base"+target {
			t.Errorf("%s became %s", target, got)
		}
	}
}

func TestHopByHopHeadersEndAtTheGateway(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		created(w, r)
	})
	g := start(t, u.URL)
	a := ask(t, "POST", g.url+"/", "", "Idempotency-Key", "k", "Connection", "X-Mine", "X-Mine", "1", "Keep-Alive", "1", "Expect", "100-continue")
	a.wants(t, 201, "")
	for _, name := range []string{"X-Mine", "Keep-Alive", "Expect"} {
		if v := u.requests()[0].Header.Get(name); v != "" {
			t.Errorf("%s: %q reached the upstream", name, v)
		}
	}
	for _, name := range []string{"X-Hop", "Keep-Alive"} {
		if v := a.header.Get(name); v != "" {
			t.Errorf("%s: %q reached the client", name, v)
		}
	}
}

func TestR77_AnUpgradedConnectionPasses(t *testing.T) {
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
	c := dial(t, g.Addr().String())
	fmt.Fprint(c, "GET /live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nIdempotency-Key: k\r\n\r\n")
	in := bufio.NewReader(c)
	readAnswer(t, in).wants(t, 101, "")
	for _, word := range []string{"one\n", "two\n"} {
		fmt.Fprint(c, word)
		if line, err := in.ReadString('\n'); err != nil || line != word {
			t.Fatalf("sent %q, got %q, %v", word, line, err)
		}
	}
}

func TestAStreamWithoutAKeyPassesAsItComes(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		<-more
		fmt.Fprint(w, "data: 2\n\n")
	})
	g := start(t, u.URL)
	res, err := http.Get(g.url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("first line is %q, %v", line, err)
	}
	close(more)
	rest, err := io.ReadAll(in)
	if err != nil || string(rest) != "\ndata: 2\n\n" {
		t.Errorf("rest is %q, %v", rest, err)
	}
}

func TestR86_EveryDecisionIsOneLogLineWithoutTheKey(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.StoreAddress, c.Default.Unkeyed = "memory://", UnkeyedRefuse })
	post(t, g.url, "secret-key-1").wants(t, 201, "")
	post(t, g.url, "secret-key-1").wants(t, 201, "")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	log := g.log.String()
	for _, want := range []string{`"result":"executed"`, `"result":"replayed"`} {
		if n := strings.Count(log, want); n != 1 {
			t.Errorf("%d lines with %s, want one:\n%s", n, want, log)
		}
	}
	for _, want := range []string{`"event":"idempotency_check"`, `"instance":"test"`, `"endpoint":"POST /payments"`, `"duration_ms":`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
	if strings.Contains(log, "secret-key-1") {
		t.Errorf("the log holds the key (R-15):\n%s", log)
	}
	if strings.Contains(log, `"level":"WARN","msg":"no identity secret`) || strings.Count(log, "plain SHA-256") != 1 {
		t.Errorf("a memory store needs no secret; that is one line of information, not a warning:\n%s", log)
	}
}

func TestR15_AStoreThatLastsWithoutAnIdentitySecretIsAWarning(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"redis://127.0.0.1", "postgres://127.0.0.1/payments"} {
		g := start(t, newUpstream(t, created).URL, func(c *Config) { c.StoreAddress, c.Default.Unkeyed = address, UnkeyedRefuse })
		log := g.log.String()
		if strings.Count(log, `"level":"WARN","msg":"no identity secret: short keys can be guessed`) != 1 ||
			!strings.Contains(log, `"event":"idempotency_plain_identity"`) || strings.Contains(log, "ends with the process") {
			t.Errorf("%s: want one warning that keys can be guessed:\n%s", address, log)
		}
	}
}
