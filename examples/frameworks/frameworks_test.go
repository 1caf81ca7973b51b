package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
	"github.com/semelhq/semel/semeltest"
)

// A scenario is a route that every framework has in its own way: the path says what its handler does.
type scenario struct {
	path   string
	first  refusal.Code // of a loud refusal; "" for the answer of the bare framework
	repeat refusal.Code // the same, of the repeat
}

var scenarios = []scenario{
	{path: "/json"},
	{path: "/created"},
	{path: "/bound"},  // the amount in the body, as the framework binds it
	{path: "/error"},  // the framework's error with a status
	{path: "/failed"}, // any other error
	{path: "/recovered"},
	{path: "/panic", repeat: refusal.OutcomeUnknown}, // the framework answers it above the guard
	{path: "/missing"},
	{path: "/status"}, // without a body
	{path: "/nocontent"},
	{path: "/many"},
	{path: "/stream"},
	{path: "/events"},
	{path: "/silent", first: refusal.NoAnswer, repeat: refusal.OutcomeUnknown},
}

// A probe is told what happens on the server.
type probe struct {
	mu  sync.Mutex
	ran int
	saw []int // statuses, by a middleware above the guard
	at  int   // the requests that this has seen
}

// turn is a header's value that a middleware above the guard gives to each answer.
func (p *probe) turn() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at++
	return strconv.Itoa(p.at)
}

func (p *probe) run() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran++
}

func (p *probe) see(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saw = append(p.saw, status)
}

func (p *probe) runs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ran
}

func (p *probe) last() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.saw) == 0 {
		return 0
	}
	return p.saw[len(p.saw)-1]
}

// A starter serves the scenarios on a framework, bare if the guard is nil, and returns the address.
type starter func(t *testing.T, g *semel.Guard, p *probe) string

func TestField02_ChiAnswersAsWithoutAGuard(t *testing.T)   { everyScenario(t, startChi) }
func TestField02_EchoAnswersAsWithoutAGuard(t *testing.T)  { everyScenario(t, startEcho) }
func TestField02_GinAnswersAsWithoutAGuard(t *testing.T)   { everyScenario(t, startGin) }
func TestField02_FiberAnswersAsWithoutAGuard(t *testing.T) { everyScenario(t, startFiber) }

func everyScenario(t *testing.T, start starter) {
	t.Parallel()
	var bare, guarded, empty, observed probe
	bareURL := start(t, nil, &bare)
	guardedURL := start(t, semeltest.New(t, semel.Policy{}), &guarded)
	emptyURL := start(t, semeltest.New(t, semel.Policy{EmptyOK: true}), &empty)
	observedURL := start(t, semeltest.New(t, semel.Policy{ObserveOnly: true}), &observed)
	for _, s := range scenarios {
		t.Run(s.path, func(t *testing.T) {
			want := post(t, bareURL+s.path, "")
			ran, once, turn := guarded.runs(), 1, ""
			if s.path == "/missing" {
				once = 0
			}
			for i, code := range []refusal.Code{s.first, s.repeat, s.repeat} {
				got := post(t, guardedURL+s.path, "key-"+s.path[1:])
				if code != "" {
					if c := got.header.Get("Idempotency-Code"); c != string(code) || got.status < 400 || got.header.Get("X-Set") != "" {
						t.Errorf("answer %d: %d %v, want a refusal with %s", i+1, got.status, got.header, code)
					}
				} else {
					want.compare(t, got, i > 0)
				}
				if turns := got.header["X-Turn"]; len(turns) != 1 || turns[0] == turn {
					t.Errorf("answer %d: a middleware above the guard has set %q, after %q", i+1, turns, turn)
				} else {
					turn = turns[0]
				}
				if s.path != "/panic" && guarded.last() != got.status {
					t.Errorf("answer %d: a middleware above the guard saw %d of a %d", i+1, guarded.last(), got.status)
				}
			}
			if n := guarded.runs() - ran; n != once {
				t.Errorf("the handler ran %d times, want %d", n, once)
			}
			want.compare(t, post(t, observedURL+s.path, "key-"+s.path[1:]), false)
			if s.path == "/silent" {
				want.compare(t, post(t, emptyURL+s.path, "key"), false)
				want.compare(t, post(t, emptyURL+s.path, "key"), true)
			}
		})
	}
	t.Run("without a key, or with GET", func(t *testing.T) {
		url := start(t, semeltest.New(t, semel.Policy{KeyOptional: true}), &guarded)
		for _, s := range scenarios {
			got := post(t, url+s.path, "")
			post(t, bareURL+s.path, "").compare(t, got, false)
			if len(got.header["X-Correlation-Id"]) != 1 {
				t.Errorf("%s without a key: the guard's headers are missing: %v", s.path, got.header)
			}
		}
		fetch(t, http.MethodGet, bareURL+"/error", "").compare(t, fetch(t, http.MethodGet, guardedURL+"/error", "key"), false)
	})
}

// An answered is what a client got.
type answered struct {
	status int
	header http.Header
	body   string
}

func post(t *testing.T, url, key string) answered {
	t.Helper()
	return fetch(t, http.MethodPost, url, key)
}

func fetch(t *testing.T, method, url, key string) answered {
	t.Helper()
	return send(t, request(t, method, url, key, `{"amount":4900}`))
}

func request(t *testing.T, method, url, key, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

func send(t *testing.T, r *http.Request) answered {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{res.StatusCode, res.Header, string(body)}
}

// compare checks that got is what the bare framework answers: everything but what the guard adds, and, in a replay,
// cookies.
func (want answered) compare(t *testing.T, got answered, repeat bool) {
	t.Helper()
	if got.status != want.status || got.body != want.body {
		t.Errorf("answered %d %q, bare %d %q", got.status, got.body, want.status, want.body)
	}
	if marked := got.header.Get("Idempotent-Replayed") == "true"; marked != repeat {
		t.Errorf("marked as a replay: %v, want %v", marked, repeat)
	}
	for name, values := range want.header {
		switch {
		case added(name), name == "Date", name == "X-Turn", name == "Connection", repeat && name == "Set-Cookie":
		case !slices.Equal(got.header[name], values):
			t.Errorf("%s is %q, bare %q", name, got.header[name], values)
		}
	}
	for name := range got.header {
		if _, has := want.header[name]; !has && !added(name) {
			t.Errorf("%s is %q, bare none", name, got.header[name])
		}
	}
}

// added reports whether the guard adds a header to answers. What it has whole has a length, though it was streamed.
func added(name string) bool {
	return strings.HasPrefix(name, "Idempoten") || name == "Cache-Control" || name == "X-Correlation-Id" || name == "Content-Length"
}

// A panic that no middleware of the framework recovers goes on once its run is settled.
func TestField02_APanicThatNobodyRecoversIsLost(t *testing.T) {
	t.Parallel()
	for name, newHandler := range map[string]func(*semel.Guard) http.Handler{"chi": chiPanics, "echo": echoPanics, "gin": ginPanics, "fiber": fiberPanics} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewUnstartedServer(newHandler(semeltest.New(t, semel.Policy{})))
			srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			srv.Start()
			t.Cleanup(srv.Close)
			if res, err := http.DefaultClient.Do(request(t, http.MethodPost, srv.URL, "key", `{"amount":4900}`)); err == nil {
				res.Body.Close()
				t.Errorf("answered %d, want a broken connection", res.StatusCode)
			}
			if c := post(t, srv.URL, "key").header.Get("Idempotency-Code"); c != string(refusal.OutcomeUnknown) {
				t.Errorf("the repeat is told %q", c)
			}
		})
	}
}

// What a middleware above the guard has read of a body is missed, loudly, or was not taken away.
func TestField04_ABodyReadAboveTheGuard(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]starter{"chi": startChi, "echo": startEcho, "gin": startGin, "fiber": startFiber} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p probe
			url := start(t, semeltest.New(t, semel.Policy{}), &p) + "/read-above"
			form := func(amount string) answered {
				r := request(t, http.MethodPost, url, "key", "amount="+amount)
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				return send(t, r)
			}
			if name == "fiber" { // it has the body in memory
				if a, b := form("1"), form("2"); a.body != "1" || b.header.Get("Idempotency-Code") != string(refusal.KeyReused) {
					t.Errorf("answered %d %s, then %d %s", a.status, a.body, b.status, b.body)
				}
				return
			}
			if a := form("1"); a.status != 500 || a.header.Get("Idempotency-Code") != string(refusal.BodyConsumed) || p.runs() != 0 {
				t.Errorf("answered %d %s, run %d times", a.status, a.body, p.runs())
			}
		})
	}
}

// On a route that streams a client has the first bytes before the handler has written the last ones.
func TestField02_AStreamFlows(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T, *semel.Guard, chan struct{}) string{"chi": chiStreams, "echo": echoStreams, "gin": ginStreams} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			url := start(t, semeltest.New(t, semel.Policy{Stream: true}), goOn)
			res, err := http.DefaultClient.Do(request(t, http.MethodPost, url, "key", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			goOn <- struct{}{} // the headers are here
			first := make([]byte, 5)
			if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
				t.Fatalf("read %q, %v", first, err)
			}
			goOn <- struct{}{}
			if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != "last" {
				t.Errorf("read %q, %v", rest, err)
			}
			if a := send(t, request(t, http.MethodPost, url, "key", "{}")); a.body != "firstlast" {
				t.Errorf("replayed %q", a.body)
			}
		})
	}
}

// The example of each framework: the framework's own authentication is the guard's scope, and the route names the
// operation.
func TestField02_R10_TheExamplesChargeOnceForEachAccount(t *testing.T) {
	t.Parallel()
	for name, s := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen operations
			guard, err := semel.New(memstore.New(), s.scope, semel.Hold, semel.Options{Observer: &seen, Operations: "/operations"})
			if err != nil {
				t.Fatal(err)
			}
			l := listen(t)
			var charges ledger
			go s.serve(l, guard, &charges) //nolint:errcheck // it ends when the listener is closed
			pay := func(account, body string) answered {
				r := request(t, http.MethodPost, "http://"+l.Addr().String()+"/payments", "order-42", body)
				r.Header.Set("X-Account", account)
				return send(t, r)
			}
			acme, again, other := pay("acme", `{"amount":4900}`), pay("acme", `{"amount":4900}`), pay("other", `{"amount":4900}`)
			if acme.status != 201 || !strings.Contains(acme.body, "ch_1") || again.body != acme.body || !strings.Contains(other.body, "ch_2") {
				t.Errorf("charged %s, %s, %s", acme.body, again.body, other.body)
			}
			if a := pay("acme", `{"amount":1}`); a.header.Get("Idempotency-Code") != string(refusal.KeyReused) {
				t.Errorf("another amount under the key: %d %s", a.status, a.body)
			}
			if a := pay("", `{"amount":4900}`); a.header.Get("Idempotency-Code") != string(refusal.ScopeInvalid) {
				t.Errorf("nobody asked: %d %s", a.status, a.body)
			}
			for account, status := range map[string]int{"acme": 200, "nobody": 404} { // who has lost the answer asks with the key
				r := request(t, http.MethodGet, "http://"+l.Addr().String()+"/operations", "order-42", "")
				r.Header.Set("X-Account", account)
				if a := send(t, r); a.status != status || strings.Contains(a.body, "/payments/ch_1") != (status == 200) {
					t.Errorf("%s asks about the operation: %d %s", account, a.status, a.body)
				}
			}
			if n := charges.charges.Load(); n != 2 {
				t.Errorf("%d charges, want 2", n)
			}
			if names := seen.names(); len(names) != 1 || strings.TrimPrefix(names[0], "POST ") != "/payments" {
				t.Errorf("operations are called %q", names)
			}
		})
	}
}

// operations is an Observer that collects the names of operations.
type operations struct {
	mu   sync.Mutex
	seen []string
}

func (o *operations) Observe(_ context.Context, e event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Kind == event.Decision && !slices.Contains(o.seen, e.Operation) {
		o.seen = append(o.seen, e.Operation)
	}
}

func (o *operations) names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// parts is what the handlers of /stream send.
var parts = [][]byte{[]byte("one, "), []byte("two, "), bytes.Repeat([]byte("x"), 5000)}
