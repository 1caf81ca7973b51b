package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// A running is a gateway that serves, with what a test needs to see of it.
type running struct {
	*Gateway
	url, admin string
	log        *logBuffer
	stop       func() error // drains, and returns Run's error
}

// start runs a gateway in front of upstream until the test ends. change may alter its configuration.
func start(t *testing.T, upstream string, change ...func(*Config)) *running {
	t.Helper()
	target, err := ParseUpstream(upstream)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{log: &logBuffer{}}
	cfg := Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: target, Store: memstore.New(), Scope: Scope{set: true},
		Hosts: []string{"*"}, ShutdownTimeout: time.Minute, Log: slog.New(slog.NewJSONHandler(r.log, nil)), Instance: "test",
	}
	for _, f := range change {
		f(&cfg)
	}
	if r.Gateway, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := r.Listen(); err != nil {
		t.Fatal(err)
	}
	r.url, r.admin = "http://"+r.Addr().String(), "http://"+r.AdminAddr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		r.stop() //nolint:errcheck // tests of the drain look at it
	})
	return r
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// An upstream answers by a function and remembers the requests that it has executed.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

func newUpstream(t *testing.T, answer http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		u.mu.Lock()
		u.seen = append(u.seen, r)
		u.mu.Unlock()
		answer(w, r)
	}))
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) requests() []*http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*http.Request(nil), u.seen...)
}

// executions counts the requests with a key.
func (u *upstream) executions(key string) (n int) {
	for _, r := range u.requests() {
		if r.Header.Get("Idempotency-Key") == key {
			n++
		}
	}
	return n
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, `{"id":1}`)
}

// An answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request on a connection of its own.
func ask(t *testing.T, method, address, body string, header ...string) answer {
	t.Helper()
	a, err := tryAsk(method, address, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, address, err)
	}
	return a
}

func tryAsk(method, address, body string, header ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(content)}, err
}

// askTooMuch is ask for a body that is refused before it has been read. What is still to come of it may cost its client
// the answer with the connection, so that it asks again.
func askTooMuch(t *testing.T, method, address, body string, header ...string) (a answer) {
	t.Helper()
	var err error
	for range 5 {
		if a, err = tryAsk(method, address, body, header...); err == nil {
			return a
		}
	}
	t.Fatalf("%s %s: %v", method, address, err)
	return a
}

func post(t *testing.T, address, key string) answer {
	t.Helper()
	return ask(t, "POST", address+"/payments", `{"amount":1}`, "Idempotency-Key", key, "Content-Type", "application/json")
}

// wants checks status and code of an answer; code "" means that it is not a problem.
func (a answer) wants(t *testing.T, status int, code refusal.Code) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d; body %s", a.status, status, a.body)
	}
	isProblem := a.header.Get("Content-Type") == "application/problem+json"
	if isProblem != (code != "") || !strings.Contains(a.body, string(code)) {
		t.Fatalf("answer is %q (%s), want code %q", a.body, a.header.Get("Content-Type"), code)
	}
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s did not come about in a minute", what)
		case <-tick.C:
		}
	}
}

// closedPort returns an address that refuses connections until the test ends, or open is called: that of the near end
// of a connection, which nobody else can take as long as it stands, and at which nobody listens.
func closedPort(t *testing.T) (address string, open func()) {
	t.Helper()
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	near, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}).Dial("tcp", far.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	open = func() {
		near.Close()
		far.Close()
	}
	t.Cleanup(open)
	return near.LocalAddr().String(), open
}

func TestR34_R73_ARepeatThroughTheGatewayGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	first := post(t, g.url, "k1")
	again := post(t, g.url, `"k1"`)
	first.wants(t, 201, "")
	again.wants(t, 201, "")
	if first.replayed() || !again.replayed() {
		t.Errorf("replay marker: first %v, repeat %v", first.replayed(), again.replayed())
	}
	if again.body != first.body || again.header.Get("Location") != "/payments/1" {
		t.Errorf("repeat is %q at %q, first was %q", again.body, again.header.Get("Location"), first.body)
	}
	if n := len(u.requests()); n != 1 {
		t.Errorf("upstream executed %d requests, want 1", n)
	}
}

func TestR26_AHundredAtOnceAreOneExecution(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		created(w, r)
	})
	g := start(t, u.URL)
	answers := make(chan answer, 100)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			a, err := tryAsk("POST", g.url+"/payments", "", "Idempotency-Key", "k")
			if err != nil {
				t.Error(err)
			}
			answers <- a
		})
	}
	for range 99 { // the refused ones don't wait for the one that runs
		a := <-answers
		a.wants(t, 409, refusal.InProgress)
		if a.header.Get("Retry-After") == "" {
			t.Error("409 without Retry-After")
		}
	}
	close(release)
	(<-answers).wants(t, 201, "")
	all.Wait()
	if n := len(u.requests()); n != 1 {
		t.Errorf("upstream executed %d requests, want 1", n)
	}
}

func TestR7_KeysAreOptionalUnlessRequired(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	optional := start(t, u.URL)
	required := start(t, u.URL, func(c *Config) { c.Default.Unkeyed = UnkeyedRefuse })
	ask(t, "POST", optional.url+"/", "x").wants(t, 201, "")
	ask(t, "POST", required.url+"/", "x").wants(t, 400, refusal.KeyMissing)
	ask(t, "PUT", required.url+"/", "x").wants(t, 201, "")
	if n := len(u.requests()); n != 2 {
		t.Errorf("upstream executed %d requests, want 2", n)
	}
}

func TestAllConfigurationErrorsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Listen: "8080", Admin: "x", Default: Route{Policy: semel.Policy{Lease: -1, Retention: time.Minute, MaxRun: time.Hour}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`listen address "8080"`, `admin address "x"`, "no upstream", "no store", "lease is negative", "retention is 1m0s, want at least",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
}

func TestR11_AGatewayNeedsAScope(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Store: memstore.New(), Upstream: &url.URL{Scheme: "http", Host: "localhost"},
	})
	if err == nil || !strings.Contains(err.Error(), "scope") {
		t.Errorf("error is %v, want one about the scope", err)
	}
}

func TestAnUpstreamThatIsTheGatewayItselfIsRefused(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"localhost", "127.0.0.1"} {
		listen := func() error {
			address, open := closedPort(t)
			_, port, _ := net.SplitHostPort(address)
			g, err := New(Config{
				Listen: address, Admin: "127.0.0.1:0", Store: memstore.New(), Scope: Scope{set: true},
				Upstream: &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)},
			})
			if err != nil {
				t.Fatal(err)
			}
			open()
			return g.Listen()
		}
		err := listen()
		for tries := 0; errors.Is(err, syscall.EADDRINUSE) && tries < 100; tries++ { // somebody else was faster
			err = listen()
		}
		if err == nil || !strings.Contains(err.Error(), "is the gateway itself") {
			t.Errorf("upstream %s: error is %v", host, err)
		}
	}
}

func TestTheConfigurationReachesTheRecord(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	var last atomic.Pointer[driver.Claim]
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Store = claimCounter{c.Store, &n, &last}
		c.Default.Policy.Lease, c.Default.Policy.Retention, c.Default.Policy.OnLost = 7*time.Second, 50*time.Minute, semel.Rerun
	})
	ask(t, "POST", g.url+"/", "", "Idempotency-Key", "k", "X-Correlation-Id", "id-1").wants(t, 201, "")
	got := last.Load()
	if got.Lease != 7*time.Second || got.Retention != 50*time.Minute || got.OnLost != semel.Rerun ||
		got.Operation != "POST /" || got.Correlation != "id-1" {
		t.Errorf("the claim is %+v", got)
	}
}

type observerFunc func(event.Event)

func (f observerFunc) Observe(_ context.Context, e event.Event) { f(e) }

func TestObserversAreToldEveryEvent(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var mu sync.Mutex
	var results []event.Result
	g := start(t, u.URL, func(c *Config) {
		c.Observers = []event.Observer{observerFunc(func(e event.Event) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, e.Result)
		})}
	})
	post(t, g.url, "k").wants(t, 201, "")
	post(t, g.url, "k").wants(t, 201, "")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(results, event.Executed) || !slices.Contains(results, event.Replayed) {
		t.Errorf("results are %q", results)
	}
}
