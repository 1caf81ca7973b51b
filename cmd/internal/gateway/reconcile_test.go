package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

const questionPath = "/internal/operations/"

// reconciles lets the gateway ask about the requests that no route names.
func reconciles(c *Config) { c.Default.Reconcile = questionPath + "{operation}" }

// says answers a question.
func says(w http.ResponseWriter, outcome string, status int, body string) {
	w.Header().Set("Idempotency-Outcome", outcome)
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func TestR75a_AKilledAnswerIsFoundAgain(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			hangUp(w, r) // after the effect
			return
		}
		w.Header().Set("Location", "/payments/1")
		w.Header().Add("Link", "<a>, <b>")
		w.Header().Add("Link", "<c>")
		w.Header().Set("Set-Cookie", "a=b")
		says(w, "done", http.StatusCreated, `{"id":1}`)
	})
	g := start(t, u.URL, reconciles, func(c *Config) { c.Default.ReplayTo = ReplayToAnyone })
	post(t, g.url, "k").wants(t, 409, refusal.OutcomeUnknown)
	settled(t, g, u)
	a := post(t, g.url, "k")
	if a.status != http.StatusCreated || !a.replayed() || a.body != `{"id":1}` || a.header.Get("Location") != "/payments/1" ||
		!reflect.DeepEqual(a.header["Link"], []string{"<a>, <b>", "<c>"}) {
		t.Errorf("replayed %+v", a)
	}
	for _, never := range []string{"Set-Cookie", "Idempotency-Outcome"} {
		if a.header.Get(never) != "" {
			t.Errorf("%s is replayed: %q", never, a.header[never])
		}
	}
	if n := u.executions("k"); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
	run, question := u.requests()[0], u.requests()[1]
	id := run.Header.Get("Idempotency-Operation")
	if question.Method != "GET" || question.URL.Path != questionPath+id || question.Header.Get("Idempotency-Operation") != id {
		t.Errorf("asked %s %s about %q", question.Method, question.URL, question.Header.Get("Idempotency-Operation"))
	}
	if was, is := fence(t, run), fence(t, question); is != was+1 {
		t.Errorf("asked with fence %d, want that of the run, which was %d, raised by one", is, was)
	}
	if got := question.Header.Get("Idempotency-Attempt"); got != "1" {
		t.Errorf("asked about attempt %q, want 1", got)
	}
	if got := question.Header.Get("X-Correlation-Id"); got == "" || got != run.Header.Get("X-Correlation-Id") {
		t.Errorf("asked under correlation id %q, want the run's", got)
	}
	for _, key := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if question.Header.Get(key) != "" {
			t.Errorf("the question carries %s", key)
		}
	}
	eventually(t, "the decision's log line", func() bool {
		return strings.Contains(g.log.String(), `"event":"idempotency_reconcile","result":"done","digest":"`+id+`"`)
	})
	wantMetrics(t, g, `idempotency_reconcile_total{result="done"} 1`)
}

func fence(t *testing.T, r *http.Request) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(r.Header.Get("Idempotency-Fence"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestR75a_AfterNeverTheNextRequestRuns(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusNotFound, http.StatusServiceUnavailable} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				first := false
				switch once.Do(func() { first = true }); {
				case first:
					hangUp(w, r) // before the effect
				case r.Method == "GET":
					says(w, "never", status, "")
				default:
					created(w, r)
				}
			})
			g := start(t, u.URL, reconciles)
			post(t, g.url, "k").wants(t, 409, refusal.OutcomeUnknown)
			settled(t, g, u)
			a := post(t, g.url, "k")
			a.wants(t, http.StatusCreated, "")
			if a.replayed() || u.executions("k") != 2 {
				t.Errorf("replayed %v after %d executions, want the second one's own answer", a.replayed(), u.executions("k"))
			}
			seen := u.requests()
			if asked, ran := fence(t, seen[1]), fence(t, seen[2]); ran <= asked {
				t.Errorf("it ran under fence %d, which the upstream may refuse: it was asked with %d", ran, asked)
			}
		})
	}
}

func TestR75a_AnAnswerTooLargeToKeepIsDoneWithoutOne(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			hangUp(w, r)
			return
		}
		says(w, "done", http.StatusOK, strings.Repeat("x", 101))
	})
	g := start(t, u.URL, func(c *Config) {
		c.Routes = []Route{{Match: "POST /payments", Policy: semel.Policy{MaxResponseBody: 100}, Reconcile: "/ops?of={operation}"}}
	})
	post(t, g.url, "k").wants(t, 409, refusal.OutcomeUnknown)
	settled(t, g, u)
	post(t, g.url, "k").wants(t, 409, refusal.ReplayUnavailable)
	if got := u.requests()[1].URL; got.Path != "/ops" || got.Query().Get("of") != u.requests()[0].Header.Get("Idempotency-Operation") {
		t.Errorf("asked at %s", got)
	}
}

// settled waits until the first operation that the upstream has seen is no longer unknown.
func settled(t *testing.T, g *running, u *upstream) {
	t.Helper()
	id, err := driver.ParseID(u.requests()[0].Header.Get("Idempotency-Operation"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the decision", func() bool {
		rec, err := g.cfg.Store.Load(t.Context(), id)
		return err == nil && rec.State != driver.Unknown
	})
}

// A reconciliation under test, without a gateway: its own clock is fast.
type reconciling struct {
	*reconciler
	store driver.Store
	log   *logBuffer

	mu      sync.Mutex
	results []string
}

const operationName = "POST /payments"

func newReconciling(t *testing.T, upstream string, names ...string) *reconciling {
	t.Helper()
	return newReconcilingOn(t, memstore.New(), upstream, names...)
}

func newReconcilingOn(t *testing.T, store driver.Store, upstream string, names ...string) *reconciling {
	t.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	q, err := newQuestion(target, questionPath+"{operation}")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semel.New(store, semel.SingleTenant, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	transport := newTransport(time.Second)
	t.Cleanup(transport.CloseIdleConnections)
	r := &reconciling{store: store, log: &logBuffer{}}
	r.reconciler, err = newReconciler(store, nil, transport, "X-Correlation-Id", slog.New(slog.NewJSONHandler(r.log, nil)), func(result string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.results = append(r.results, result)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.every(time.Millisecond)
	routes := map[string]*reconcileRoute{}
	for _, name := range append(names, operationName) {
		routes[name] = &reconcileRoute{guard: guard, question: q}
	}
	r.use(routes)
	return r
}

// run runs the loop until the test ends, or until what it returns is called.
func (r *reconciling) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// count returns how often a result was told.
func (r *reconciling) told(result string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.results {
		if s == result {
			n++
		}
	}
	return n
}

// numbered returns the identity of a test's nth operation.
func numbered(n int) (id driver.ID) {
	id[0] = 1 // a scope that is not reserved
	binary.BigEndian.PutUint64(id[16:], uint64(n))
	return id
}

// unknown leaves an operation whose outcome is unknown, and returns its record.
func unknown(t *testing.T, s driver.Store, n int, name string) driver.Record {
	t.Helper()
	rec, owned, err := s.Claim(t.Context(), numbered(n), driver.Claim{Token: driver.NewToken(), Operation: name, Correlation: "c"})
	if err != nil || !owned {
		t.Fatalf("claim: %v, %v", owned, err)
	}
	rec, owned, err = s.Settle(t.Context(), numbered(n), rec.Owner(), driver.Outcome{State: driver.Unknown})
	if err != nil || !owned {
		t.Fatalf("settle: %v, %v", owned, err)
	}
	return rec
}

func state(t *testing.T, s driver.Store, n int) driver.State {
	t.Helper()
	rec, err := s.Load(context.Background(), numbered(n))
	if err != nil {
		t.Fatal(err)
	}
	return rec.State
}

func TestR75a_WhatTheUpstreamDoesNotSayInSoManyWordsIsLater(t *testing.T) {
	t.Parallel()
	elsewhere := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { says(w, "never", 200, "") })
	for name, answer := range map[string]http.HandlerFunc{
		"a bare 404":      http.NotFound,
		"a bare 200":      created,
		"500":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"done with a 404": func(w http.ResponseWriter, _ *http.Request) { says(w, "done", 404, "") },
		"done with a 500": func(w http.ResponseWriter, _ *http.Request) { says(w, "done", 500, "") },
		"an unknown word": func(w http.ResponseWriter, _ *http.Request) { says(w, "release", 200, "") },
		"another case":    func(w http.ResponseWriter, _ *http.Request) { says(w, "Never", 200, "") },
		"nothing":         func(w http.ResponseWriter, _ *http.Request) { says(w, "", 200, "") },
		"two words": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Idempotency-Outcome", "done")
			w.Header().Add("Idempotency-Outcome", "never")
		},
		"no answer": hangUp,
		"an answer cut off": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Idempotency-Outcome", "done")
			breakOff(w, r)
		},
		"a redirection": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"done, redirected": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Idempotency-Outcome", "done")
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		},
		"never in a trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer:Idempotency-Outcome", "never")
			io.WriteString(w, "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, answer)
			r := newReconciling(t, u.URL)
			unknown(t, r.store, 1, operationName)
			r.run(t)
			eventually(t, "a third question", func() bool { return r.told("later") >= 3 })
			if s := state(t, r.store, 1); s != driver.Unknown {
				t.Errorf("it became %v", s)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, result := range r.results {
				if result != "later" {
					t.Errorf("told %q", result)
				}
			}
		})
	}
	t.Run("the upstream is down", func(t *testing.T) {
		t.Parallel()
		address, _ := closedPort(t)
		r := newReconciling(t, "http://"+address)
		unknown(t, r.store, 1, operationName)
		r.run(t)
		eventually(t, "a second question", func() bool { return r.told("later") >= 2 })
		if s := state(t, r.store, 1); s != driver.Unknown {
			t.Errorf("it became %v", s)
		}
	})
	t.Cleanup(func() {
		if n := len(elsewhere.requests()); n != 0 {
			t.Errorf("%d redirections were followed", n)
		}
	})
}

func TestR75a_TheLateOwnerIsFencedWhileTheUpstreamIsAsked(t *testing.T) {
	t.Parallel()
	var (
		store = memstore.New()
		late  driver.Record
	)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if got := fence(t, r); got <= late.Fence {
			t.Errorf("asked with fence %d, want above %d", got, late.Fence)
		}
		_, owned, err := store.Settle(r.Context(), numbered(1), late.Owner(), driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 200}})
		if owned || err != nil {
			t.Errorf("the late owner settles: %v, %v", owned, err)
		}
		says(w, "never", 404, "")
	})
	var owned bool
	var err error
	late, owned, err = store.Claim(t.Context(), numbered(1), driver.Claim{Token: driver.NewToken(), Operation: operationName, Lease: time.Millisecond})
	if err != nil || !owned {
		t.Fatalf("claim: %v, %v", owned, err)
	}
	r := newReconcilingOn(t, store, u.URL)
	r.run(t)
	eventually(t, "the decision", func() bool { return state(t, store, 1) == driver.Free })
}

func TestR56_R75a_R87_AStoreThatLastsShowsWhatWasDecided(t *testing.T) {
	t.Parallel()
	opened, err := stores.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "semel.db"), stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	var known atomic.Bool
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if !known.Load() {
			http.NotFound(w, r)
			return
		}
		says(w, "done", http.StatusCreated, `{"id":1}`)
	})
	m := newMetrics(nil)
	store := m.instrument(opened.Store, "sqlite")
	unknown(t, store, 1, operationName)
	m.store.look(t.Context())
	if got := scraped(t, m, "idempotency_unknown"); got != "idempotency_unknown 1" {
		t.Errorf("scraped %q of one unknown operation", got)
	}
	r := newReconcilingOn(t, opened.Store, u.URL)
	stop := r.run(t)
	eventually(t, "a second question", func() bool { return r.told("later") >= 2 })
	known.Store(true)
	eventually(t, "the decision", func() bool { return r.told("done") == 1 })
	stop()
	if rec, err := store.Load(t.Context(), numbered(1)); err != nil || rec.State != driver.Done || string(rec.Response.Body) != `{"id":1}` {
		t.Errorf("it is %v with %+v, %v", rec.State, rec.Response, err)
	}
	var trail []string
	id := numbered(1)
	err = store.(driver.Auditor).AuditTrail(t.Context(), &id, 0, func(e driver.AuditEntry) bool {
		trail = append(trail, e.Actor+" "+e.Result)
		return true
	})
	if want := []string{"reconcile done", "reconcile later", "reconcile asked"}; err != nil || !reflect.DeepEqual(trail, want) {
		t.Errorf("audited %q, %v; want %q", trail, err, want)
	}
}

func TestR75a_OnlyTheRoutesOwnOperationsAreAskedAbout(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { says(w, "never", 200, "") })
	r := newReconciling(t, u.URL, "")
	routes := *r.routes.Load()
	routes["PUT /settled/by/hand"] = nil
	r.use(routes)
	for n, name := range []string{"PUT /settled/by/hand", "send the letters", "rebuild /index", ""} {
		unknown(t, r.store, n, name)
	}
	unknown(t, r.store, 10, operationName)
	unknown(t, r.store, 11, "POST /what/no/route/names")
	r.run(t)
	eventually(t, "two decisions", func() bool { return r.told("never") == 2 })
	for n := range 4 {
		if s := state(t, r.store, n); s != driver.Unknown {
			t.Errorf("operation %d became %v", n, s)
		}
	}
	for n := 10; n <= 11; n++ {
		if s := state(t, r.store, n); s != driver.Free {
			t.Errorf("operation %d became %v", n, s)
		}
	}
}

func TestR79_SeveralGatewaysReconcileOneStore(t *testing.T) {
	t.Parallel()
	const n = 60
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { says(w, "done", 200, "x") })
	store := memstore.New()
	for i := range n {
		unknown(t, store, i, operationName)
	}
	var all []*reconciling
	for range 3 {
		r := newReconcilingOn(t, store, u.URL)
		all = append(all, r)
		r.run(t)
	}
	eventually(t, "every decision", func() bool {
		for i := range n {
			if state(t, store, i) != driver.Done {
				return false
			}
		}
		return true
	})
	for _, r := range all {
		if r.told("failed")+r.told("never") > 0 {
			t.Errorf("told %v", r.results)
		}
	}
}

func TestOnlySoManyQuestionsAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	var (
		mu        sync.Mutex
		now, most int
		goOn      = make(chan struct{})
	)
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-goOn
		mu.Lock()
		now--
		mu.Unlock()
		says(w, "never", 200, "")
	})
	r := newReconciling(t, u.URL)
	const n = 4 * reconcileAtOnce
	for i := range n {
		unknown(t, r.store, i, operationName)
	}
	r.run(t)
	eventually(t, "as many questions as are allowed", func() bool { mu.Lock(); defer mu.Unlock(); return now == reconcileAtOnce })
	close(goOn)
	eventually(t, "every decision", func() bool { return r.told("never") == n })
	if most > reconcileAtOnce {
		t.Errorf("%d questions at once, want %d at most", most, reconcileAtOnce)
	}
}

func TestAReconcilerEndsWithItsQuestions(t *testing.T) {
	t.Parallel()
	asked, left := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	})
	r := newReconciling(t, u.URL)
	r.every(time.Hour)
	unknown(t, r.store, 1, operationName)
	stop := r.run(t)
	<-asked
	stop()
	<-left
	if s := state(t, r.store, 1); s != driver.Unknown {
		t.Errorf("it became %v", s)
	}
	if got := r.log.String(); got != "" {
		t.Errorf("the end of the loop is logged as a decision: %s", got)
	}
}

// The wait of an operation doubles up to its longest, and no request shortens it below half the interval.
func TestR75a_AnOperationIsAskedAboutLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan time.Time, 1)
		r := newReconciling(t, "http://upstream.invalid")
		r.client.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
			asked <- time.Now()
			return nil, errors.New("no upstream today")
		})
		r.every(reconcileInterval)
		unknown(t, r.store, 1, operationName)
		r.run(t)
		last, longest := <-asked, time.Duration(0)
		for n := range 11 {
			at := <-asked
			wait, most := at.Sub(last), min(reconcileInterval<<n, reconcileLongest)
			if wait < reconcileInterval/2 || wait > most+reconcileInterval {
				t.Errorf("wait %d is %v, want at most %v and the time between two looks", n, wait, most)
			}
			last, longest = at, max(longest, wait)
		}
		if longest < reconcileLongest/2 {
			t.Errorf("the longest wait is %v, want near %v", longest, reconcileLongest)
		}
		met := func() (n int) {
			r.Observe(t.Context(), event.Event{Kind: event.Decision, Result: event.Unknown, ID: numbered(1), Operation: operationName})
			synctest.Wait()
			return len(asked)
		}
		if synctest.Wait(); met() != 0 {
			t.Error("a request that has met it has it asked about again at once")
		}
		time.Sleep(reconcileInterval / 2)
		if met() != 1 {
			t.Error("a request that has met it does not have it asked about sooner")
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Where nothing may be asked about, the store is not kept busy.
func TestAStoreIsNotSearchedForAGatewayWithoutQuestions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReconciling(t, "http://upstream.invalid")
		r.lister = failingLister{}
		r.use(nil)
		stop := r.run(t)
		time.Sleep(time.Minute)
		stop()
		if got := r.log.String(); got != "" {
			t.Errorf("it was searched: %s", got)
		}
	})
}

// Whoever has just seized an operation is about to decide: an operator, or another gateway.
func TestAnOperationThatAnotherHasJustSeizedIsLeftToIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store, err := memstore.Open(memstore.Options{Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	r := newReconcilingOn(t, store, "http://upstream.invalid")
	unknown(t, store, 1, operationName)
	seized, err := store.Seize(t.Context(), numbered(1), driver.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	asked := func(fence uint64) bool {
		rec, err := store.Load(t.Context(), numbered(1))
		if err != nil {
			t.Fatal(err)
		}
		at, due := r.due(numbered(1), &rec, fence)
		return due && rec.Now >= at
	}
	if asked(seized.Fence - 1) {
		t.Error("it is asked about")
	}
	if !asked(seized.Fence) {
		t.Error("its own seizing keeps it from being asked about again")
	}
	now = now.Add(2 * questionTime)
	if !asked(0) {
		t.Error("it is left alone for ever")
	}
}

// Only a request that could not be answered, and whose route has a question, has the upstream asked.
func TestOnlyUnknownOperationsThatARequestHasMetAreAskedAboutAtOnce(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { says(w, "never", 200, "") })
	r := newReconciling(t, u.URL)
	r.lister = failingLister{} // no look finds any
	for n, e := range []event.Event{
		{Kind: event.Decision, Result: event.Unknown, Operation: "POST /other"},
		{Kind: event.Decision, Result: event.Replayed, Operation: operationName},
		{Kind: event.Lapsed, Result: event.Unknown, Operation: operationName},
		{Kind: event.Decision, Result: event.Unknown, Operation: operationName, Observed: true},
		{Kind: event.Decision, Result: event.Unknown, Operation: operationName},
	} {
		e.ID = numbered(n)
		unknown(t, r.store, n, operationName)
		r.Observe(t.Context(), e)
	}
	r.run(t)
	eventually(t, "a decision", func() bool { return state(t, r.store, 4) == driver.Free })
	for n := range 4 {
		if s := state(t, r.store, n); s != driver.Unknown {
			t.Errorf("operation %d became %v", n, s)
		}
	}
}

func TestAReconcilerNeedsAStoreToSearch(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	for name, s := range map[string]driver.Store{
		"not listed": struct {
			driver.Store
			driver.Seizer
		}{memory, memory},
		"not seized": struct {
			driver.Store
			driver.Lister
		}{memory, memory},
	} {
		if _, err := newReconciler(s, nil, http.DefaultTransport, "", slog.New(slog.DiscardHandler), nil); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func TestALookThatFailsIsLogged(t *testing.T) {
	t.Parallel()
	r := newReconciling(t, "http://upstream.invalid")
	r.lister = failingLister{}
	r.run(t)
	eventually(t, "a log line", func() bool { return strings.Contains(r.log.String(), "no list today") })
}

type failingLister struct{}

func (failingLister) List(context.Context, driver.Query, func(driver.ID, driver.Record) bool) error {
	return fmt.Errorf("no list today")
}
