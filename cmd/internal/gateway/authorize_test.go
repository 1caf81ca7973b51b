package gateway

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// members is a service that knows two callers by their tokens, and answers each with what is theirs.
func members(w http.ResponseWriter, r *http.Request) {
	who, ok := map[string]string{"Bearer alice-1": "alice", "Bearer alice-2": "alice", "Bearer bob": "bob"}[r.Header.Get("Authorization")]
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Location", "/accounts/"+who)
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, "the secret of "+who)
}

func postAs(t *testing.T, g *running, key, token string, header ...string) answer {
	t.Helper()
	header = append(header, "Idempotency-Key", key, "Content-Type", "application/json")
	if token != "" {
		header = append(header, "Authorization", token)
	}
	return ask(t, "POST", g.url+"/accounts", `{"amount":1}`, header...)
}

func (a answer) hidesSecrets(t *testing.T) {
	t.Helper()
	if strings.Contains(a.body, "secret") || strings.Contains(a.body, "alice") || a.header.Get("Location") != "" {
		t.Fatalf("answered %v %s", a.header, a.body)
	}
}

func TestAttack01_R14_ARepeatWithoutTheFirstCredentialsGetsNothing(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, members)
	g := start(t, u.URL, func(c *Config) { c.Operations = "/operations" })
	postAs(t, g, "k", "Bearer nobody").wants(t, 401, "") // refused by the service, and released
	first := postAs(t, g, "k", "Bearer alice-1")
	first.wants(t, 201, "")
	for _, other := range [][]string{
		{""},
		{"Bearer bob"},
		{"Bearer nobody"},
		{"Bearer alice-2"}, // that it is alice's, too, only the service knows
		{"Bearer alice-1", "Cookie", "session=1"},
		{"Bearer alice-1", "X-Api-Key", "1"},
		{"Bearer alice-1", "Authorization", "Bearer alice-1"},
	} {
		a := postAs(t, g, "k", other[0], other[1:]...)
		a.wants(t, 403, refusal.ReplayForbidden)
		a.hidesSecrets(t)
	}
	again := postAs(t, g, "k", "Bearer alice-1")
	if again.status != 201 || !again.replayed() || again.body != first.body {
		t.Errorf("her own repeat: %+v", again)
	}
	if n := u.executions("k"); n != 2 {
		t.Errorf("the service was asked %d times, want 2", n)
	}

	// Nor does the key alone, where operations are asked about.
	id := strings.Split(ask(t, "GET", g.url+"/operations", "", "Idempotency-Key", "k", "Authorization", "Bearer alice-1").body, `"`)[3]
	for _, path := range []string{"/operations", "/operations/" + id, "/operations/" + id + "/result"} {
		for _, token := range []string{"Bearer bob", ""} {
			a := ask(t, "GET", g.url+path, "", "Idempotency-Key", "k", "Authorization", token)
			a.wants(t, 403, refusal.ReplayForbidden)
			a.hidesSecrets(t)
		}
		if a := ask(t, "GET", g.url+path, "", "Idempotency-Key", "k", "Authorization", "Bearer alice-1"); a.status/100 != 2 || !strings.Contains(a.body, "alice") {
			t.Errorf("%s for alice: %d %s", path, a.status, a.body)
		}
	}
	if !strings.Contains(g.log.String(), `"level":"WARN","msg":"scope single: all callers are one`) {
		t.Errorf("no warning at the start: %s", g.log)
	}
}

func TestAttack01_R60_GuessesOfKeysMeetALimit(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, members)
	g := start(t, u.URL, func(c *Config) { c.Operations, c.Caps.MaxAttempts = "/operations", 20 })
	postAs(t, g, "its-own", "Bearer alice-1").wants(t, 201, "")
	// The guesses may fall into two minutes, or on a machine that is busy, into more.
	limited := false
	for i := 0; i < 1000 && !limited; i++ {
		switch a := ask(t, "GET", g.url+"/operations", "", "Idempotency-Key", "k-"+strconv.Itoa(i)); a.status {
		case 404:
		case 429:
			a.wants(t, 429, refusal.TooManyAttempts)
			limited = true
		default:
			t.Fatalf("guess %d: %d %s", i, a.status, a.body)
		}
	}
	if !limited {
		t.Error("1000 guesses were told that the key is unknown, and none was limited")
	}
	postAs(t, g, "its-own", "Bearer alice-1").wants(t, 201, "") // a limit of questions, not of operations
}

// A route's authorize decides about other credentials, at the service or elsewhere.
func TestAttack01_R14_AuthorizeDecidesAboutOtherCredentials(t *testing.T) {
	t.Parallel()
	maySee := func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer alice-2":
			w.WriteHeader(http.StatusNoContent)
		case "Bearer bob":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}
	elsewhere := newUpstream(t, maySee)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/accounts":
			members(w, r)
		case "/may-see":
			maySee(w, r)
		}
	})
	for authorize, asked := range map[string]*upstream{"/may-see?why=replay": u, elsewhere.URL + "/may-see?why=replay": elsewhere} {
		g := start(t, u.URL, func(c *Config) { c.Operations, c.Default.Authorize, c.allowedFor = "/operations", authorize, time.Hour })
		key := "k" + strconv.Itoa(len(authorize))
		postAs(t, g, key, "Bearer alice-1").wants(t, 201, "")
		postAs(t, g, key, "Bearer alice-1").wants(t, 201, "")
		questions := func() (list []*http.Request) {
			for _, r := range asked.requests() {
				if r.URL.Path != "/accounts" && (r.Header.Get("Idempotency-Key") == key) {
					list = append(list, r)
				}
			}
			return list
		}
		if n := len(questions()); n != 0 {
			t.Errorf("%s: %d questions about the first caller's own repeat", authorize, n)
		}
		for range 2 {
			if a := postAs(t, g, key, "Bearer alice-2", "Idempotency-Fence", "9", "X-Forwarded-Uri", "/forged", "X-Forwarded-For", "192.0.2.1"); a.status != 201 || !a.replayed() {
				t.Errorf("%s: with a renewed token: %d %s", authorize, a.status, a.body)
			}
		}
		got := questions()
		if len(got) != 1 {
			t.Fatalf("%s: %d questions about two equal repeats, want 1", authorize, len(got))
		}
		q := got[0]
		if body, _ := io.ReadAll(q.Body); q.Method != "GET" || q.URL.RequestURI() != "/may-see?why=replay" || len(body) > 0 || q.Header.Get("Content-Type") != "" ||
			q.Header.Get("X-Forwarded-Method") != "POST" || q.Header.Get("X-Forwarded-Uri") != "/accounts" || q.Header.Get("Idempotency-Fence") != "" {
			t.Errorf("%s: asked %s %s %v %s", authorize, q.Method, q.URL, q.Header, body)
		}
		if toService := asked == u; toService != (q.Host == strings.TrimPrefix(g.url, "http://")) {
			t.Errorf("%s: the question names the host %s", authorize, q.Host)
		}
		for _, token := range []string{"Bearer bob", "Bearer nobody", ""} {
			a := postAs(t, g, key, token)
			a.wants(t, 403, refusal.ReplayForbidden)
			a.hidesSecrets(t)
		}
		result := "/operations/" + semel.Identify(nil, semel.KindHTTP, "single", key).String() + "/result"
		if a := ask(t, "GET", g.url+result, "", "Authorization", "Bearer alice-2"); a.status != 201 {
			t.Errorf("%s: asked about with a renewed token: %d %s", authorize, a.status, a.body)
		}
		ask(t, "GET", g.url+result, "", "Authorization", "Bearer bob").wants(t, 403, refusal.ReplayForbidden)
		if n := u.executions(key) - len(questions()); asked == u && n != 1 {
			t.Errorf("%s: %d executions", authorize, n)
		}
	}

	// Where it can't be asked nobody is let through.
	gone, _ := closedPort(t)
	g := start(t, u.URL, func(c *Config) { c.Default.Authorize = "http://" + gone + "/may-see" })
	postAs(t, g, "gone", "Bearer alice-1").wants(t, 201, "")
	postAs(t, g, "gone", "Bearer alice-2").wants(t, 503, refusal.OutcomePending)
	postAs(t, g, "gone", "Bearer alice-1").wants(t, 201, "")
}

func TestAttack01_AnAuthorizationIsRememberedForSecondsAndInBoundedMemory(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	target, _ := ParseUpstream(u.URL)
	c := Config{Upstream: target}
	c.complete()
	a := newAuthorizer(&c, &Route{Authorize: "/may-see"}, transports{})
	key := func(i int) (k [32]byte) { k[0], k[1] = byte(i), byte(i>>8); return k }
	a.remember(key(1), authorized{until: time.Now().Add(-time.Nanosecond)})
	if _, ok := a.remembered(key(1)); ok {
		t.Error("an answer counts for longer than it should")
	}
	for i := range 3 * authorizeMost {
		a.remember(key(i), authorized{until: time.Now().Add(time.Hour)})
		if len(a.known) > authorizeMost {
			t.Fatalf("%d answers are remembered", len(a.known))
		}
	}
	if _, ok := a.remembered(key(3*authorizeMost - 1)); !ok {
		t.Error("the last answer is not remembered")
	}
}

// Where a proxy says who asks, a renewed token is the same caller; where nothing is compared, the key is all.
func TestAttack01_R12_ToWhomAnAnswerIsGiven(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, members)
	byHeader := func(c *Config) { c.Scope = Scope{header: "X-Account", set: true} }
	for _, c := range []struct {
		name   string
		change func(*Config)
		token  string
		header []string
		want   int
	}{
		{"a scope header: a renewed token is the same caller", byHeader, "Bearer alice-2", nil, 201},
		{"a scope header, and credentials are named", func(c *Config) {
			byHeader(c)
			c.Default.Policy.Credentials = []string{"Authorization"}
		}, "Bearer alice-2", nil, 403},
		{"a scope header, and somebody is asked, who refuses", func(c *Config) {
			byHeader(c)
			c.Default.Authorize = "/may-see"
		}, "Bearer nobody", nil, 403},
		{"one cookie is named: the others don't count", func(c *Config) {
			c.Default.Policy.Credentials = []string{"Authorization", "cookie:session"}
		}, "Bearer alice-1", []string{"Cookie", "visits=2"}, 201},
		{"one cookie is named: it counts", func(c *Config) {
			c.Default.Policy.Credentials = []string{"Authorization", "cookie:session"}
		}, "Bearer alice-1", []string{"Cookie", "session=2"}, 403},
		{"anyone", func(c *Config) { c.Default.ReplayTo = ReplayToAnyone }, "", nil, 201},
		{"a minted key", func(c *Config) {
			c.Default.Unkeyed, c.Default.Mint, c.Default.Policy.KeyHeaders = UnkeyedMint, Mint{Fields: []string{"/amount"}}, []string{"X-Key"}
		}, "Bearer bob", nil, 403},
	} {
		g := start(t, u.URL, c.change)
		key := strings.ReplaceAll(c.name, " ", "-")
		key = strings.NewReplacer(",", "", ":", "").Replace(key)
		postAs(t, g, key, "Bearer alice-1", "X-Account", "a").wants(t, 201, "")
		a := postAs(t, g, key, c.token, append(c.header, "X-Account", "a")...)
		if a.status != c.want || a.replayed() != (c.want == 201) {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.want)
		}
		warned := strings.Contains(g.log.String(), "stored answers are given to anyone")
		if warned != (c.name == "anyone") {
			t.Errorf("%s: warned %v", c.name, warned)
		}
	}
}

// An answer that reconcile has found is nobody's, until somebody is asked.
func TestAttack01_R75a_AnAnswerThatReconcileFindsNeedsAuthorize(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "POST":
			hangUp(w, r)
		case r.URL.Path == "/may-see" && r.Header.Get("Authorization") != "Bearer alice-1":
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path != "/may-see":
			says(w, "done", http.StatusCreated, "the secret of alice")
		}
	})
	for authorize, want := range map[string]int{"/may-see": 201, "": 403} {
		g := start(t, u.URL, reconciles, func(c *Config) { c.Default.Authorize = authorize })
		postAs(t, g, "k", "Bearer alice-1").wants(t, 409, refusal.OutcomeUnknown)
		settled(t, g, u)
		for _, token := range []string{"", "Bearer bob"} {
			a := postAs(t, g, "k", token)
			a.wants(t, 403, refusal.ReplayForbidden)
			a.hidesSecrets(t)
		}
		if a := postAs(t, g, "k", "Bearer alice-1"); a.status != want {
			t.Errorf("authorize %q: %d %s, want %d", authorize, a.status, a.body, want)
		}
		if warned := strings.Contains(g.log.String(), "an answer that reconcile finds has nobody's credentials"); warned != (authorize == "") {
			t.Errorf("authorize %q: warned %v", authorize, warned)
		}
	}
}

func TestAttack01_WhatContradictsItselfAboutReplaysIsRefused(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"credentials: []":                                   "credentials: the list is empty; to give answers to anyone who knows the key say replay_to: anyone",
		"credentials: [a b]":                                `credentials: "a b" is not a header name, nor cookie:NAME`,
		"credentials: ['cookie: a']":                        `credentials: " a" is not the name of a cookie`,
		"{replay_to: anyone, credentials: [Authorization]}": "replay_to: anyone does not go with credentials",
		"{replay_to: anyone, authorize: /a}":                "replay_to: anyone does not go with authorize",
		"replay_to: everyone":                               "replay_to: ",
		"authorize: may-see":                                `authorize "may-see": want a path on the upstream`,
		"authorize: ftp://a/b":                              `authorize "ftp://a/b": want a path on the upstream`,
		"authorize: //a/b":                                  `authorize "//a/b": want a path on the upstream`,
		"authorize: http://u:p@a/b":                         "authorize: user and password don't belong into the address",
		"authorize: '/a#b'":                                 `authorize "/a#b": a fragment is not sent`,
	} {
		line = strings.TrimSuffix(strings.TrimPrefix(line, "{"), "}")
		if _, err := load(t, minimal+"default: {"+line+"}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func TestAttack09_WrongBodiesDoNotLockTheOwnerOfAKeyOut(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, members)
	g := start(t, u.URL)
	postAs(t, g, "k", "Bearer alice-1").wants(t, 201, "")
	for i := range 150 {
		ask(t, "POST", g.url+"/accounts", `{"amount":`+strconv.Itoa(i+2)+`}`, "Idempotency-Key", "k", "Content-Type", "application/json").wants(t, 422, refusal.KeyReused)
		if a := postAs(t, g, "k", "Bearer mallory"); a.status != 403 && a.status != 429 {
			t.Fatalf("the same body with other credentials: %d %s", a.status, a.body)
		}
	}
	if a := postAs(t, g, "k", "Bearer alice-1"); a.status != 201 || !a.replayed() {
		t.Errorf("her own repeat: %d %s", a.status, a.body)
	}
}

// Networks and addresses of IPv4 in IPv6 are those of IPv4.
func TestAttack09_ATrustedProxyMayBeWrittenAsIPv4InIPv6(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	for network, want := range map[string]int{"::ffff:127.0.0.1": 201, "::ffff:127.0.0.0/104": 201, "::ffff:10.0.0.0/104": 400} {
		networks, err := ParseNetworks([]string{network})
		if err != nil {
			t.Fatal(err)
		}
		g := start(t, u.URL, func(c *Config) { c.Scope, c.TrustedProxies = Scope{header: "X-Account", set: true}, networks })
		a := ask(t, "POST", g.url+"/payments", "{}", "Idempotency-Key", network, "X-Account", "a", "X-Forwarded-For", "192.0.2.1")
		if a.status != want {
			t.Errorf("%s: %d %s, want %d", network, a.status, a.body, want)
		}
		if want != 201 {
			continue
		}
		requests := u.requests()
		if got := requests[len(requests)-1].Header.Get("X-Forwarded-For"); got != "192.0.2.1, 127.0.0.1" {
			t.Errorf("%s: X-Forwarded-For is %q", network, got)
		}
	}
}

// A question that gets no answer is not the caller's fault, and no reason to think that nothing has happened.
func TestAttack01_R14_WhereNobodyCanBeAskedTheRepeatIsToComeAgain(t *testing.T) {
	t.Parallel()
	var says atomic.Int32
	auth := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if says.Load() == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(int(says.Load()))
	})
	u := newUpstream(t, members)
	refusing, _ := closedPort(t)
	for name, c := range map[string]struct {
		authorize string
		says      int32
		want      int
	}{
		"nobody listens":        {"http://" + refusing + "/may-see", 204, 503},
		"the connection breaks": {auth.URL + "/may-see", 0, 503},
		"it fails":              {auth.URL + "/may-see", 500, 503},
		"a proxy has lost it":   {auth.URL + "/may-see", 504, 503},
		"who is it":             {auth.URL + "/may-see", 401, 403},
		"no":                    {auth.URL + "/may-see", 403, 403},
		"too many questions":    {auth.URL + "/may-see", 429, 403},
		"somewhere else":        {auth.URL + "/may-see", 302, 403},
	} {
		says.Store(c.says)
		g := start(t, u.URL, func(cfg *Config) {
			cfg.Operations, cfg.Default.Authorize, cfg.Default.Policy.FailOpen = "/operations", c.authorize, true
		})
		key := strings.ReplaceAll(name, " ", "-")
		postAs(t, g, key, "Bearer alice-1").wants(t, 201, "")
		result := g.url + "/operations/" + semel.Identify(nil, semel.KindHTTP, "single", key).String() + "/result"
		for what, a := range map[string]answer{
			"a repeat": postAs(t, g, key, "Bearer alice-2"), "a question": ask(t, "GET", g.url+"/operations", "", "Idempotency-Key", key, "Authorization", "Bearer alice-2"),
			"the result": ask(t, "GET", result, "", "Authorization", "Bearer alice-2"),
		} {
			if code := map[int]refusal.Code{503: refusal.OutcomePending, 403: refusal.ReplayForbidden}[c.want]; a.status != c.want || a.header.Get("Idempotency-Code") != string(code) {
				t.Errorf("%s: %s got %d %s", name, what, a.status, a.body)
			}
			if (a.header.Get("Retry-After") != "") != (c.want == 503) {
				t.Errorf("%s: %s got Retry-After %q", name, what, a.header.Get("Retry-After"))
			}
			a.hidesSecrets(t)
		}
		if n := u.executions(key); n != 1 {
			t.Errorf("%s: %d executions", name, n)
		}
		if says.Store(204); strings.HasPrefix(c.authorize, auth.URL) && c.want == 503 { // what has failed is not remembered
			if a := postAs(t, g, key, "Bearer alice-2"); a.status != 201 || !a.replayed() {
				t.Errorf("%s: once it answers: %d %s", name, a.status, a.body)
			}
		}
	}
}

// Elsewhere than at the service nobody is shown the certificate that is for the service, nor asked for by its name.
func TestAttack01_AuthorizeElsewhereSeesNothingOfTheServicesTLS(t *testing.T) {
	t.Parallel()
	shown, _ := newCertificate(t)
	pair, err := shown.load()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan [2]string, 8)
	asked := func() *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/accounts" {
				members(w, r)
			}
		}))
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.TLS = &tls.Config{
			Certificates: []tls.Certificate{*pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12,
			VerifyConnection: func(c tls.ConnectionState) error {
				seen <- [2]string{s.URL, strconv.Itoa(len(c.PeerCertificates))}
				return nil
			},
		}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	service, other := asked(), asked()
	for _, c := range []struct {
		authorize, at, certificates string
		status                      int
	}{
		{"/may-see", service.URL, "1", 201},
		{service.URL + "/may-see", service.URL, "1", 201},
		{other.URL + "/may-see", "", "", 503}, // an authority of upstream_tls does not count for it
	} {
		g := start(t, service.URL, func(cfg *Config) {
			cfg.UpstreamTLS, cfg.Default.Authorize = UpstreamTLS{CA: shown.Cert, Cert: shown.Cert, Key: shown.Key}, c.authorize
		})
		postAs(t, g, "k", "Bearer alice-1").wants(t, 201, "")
		if a := postAs(t, g, "k", "Bearer alice-2"); a.status != c.status {
			t.Errorf("%s: %d %s", c.authorize, a.status, a.body)
		}
		for len(seen) > 0 {
			if got := <-seen; got[0] != service.URL {
				t.Errorf("%s: %s was shown %s certificates", c.authorize, got[0], got[1])
			}
		}
	}
}
