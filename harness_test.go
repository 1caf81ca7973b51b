package semel_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// Guards without an Observer write to the default logger: that of the tests says nothing.
func init() { slog.SetDefault(slog.New(slog.DiscardHandler)) }

// newGuard returns a guard over store with the given policy, whose events are kept. A nil store is a fresh memory
// store.
func newGuard(t testing.TB, store driver.Store, p semel.Policy) (*semel.Guard, *events) {
	t.Helper()
	return newGuardWith(t, store, semel.Options{Policy: p})
}

func newGuardWith(t testing.TB, store driver.Store, o semel.Options) (*semel.Guard, *events) {
	t.Helper()
	if store == nil {
		store = memstore.New()
	}
	seen := &events{}
	if o.Observer == nil {
		o.Observer = seen
	}
	g, err := semel.New(store, semel.ScopeFunc(headerScope), o.Policy.OnLost, o)
	if err != nil {
		t.Fatalf("new guard: %v", err)
	}
	semel.IdentityChecked(g) // tests count verbs and records
	return g, seen
}

// headerScope takes the principal from a header, "alice" if there is none.
func headerScope(r *http.Request) (string, error) {
	if who := r.Header.Get("X-Principal"); who != "" {
		return who, nil
	}
	return "alice", nil
}

// events keeps what an Observer was told.
type events struct {
	mu   sync.Mutex
	list []event.Event
}

func (e *events) Observe(_ context.Context, ev event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

// count returns how many events of a kind were seen.
func (e *events) count(kind event.Kind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

// all returns what was seen so far.
func (e *events) all() []event.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// results returns the results of the decisions, in order.
func (e *events) results() (list []event.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Kind == event.Decision {
			list = append(list, ev.Result)
		}
	}
	return list
}

// post makes a keyed JSON POST to /payments; header holds name, value pairs. An empty key sends none.
func post(key, body string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// answer serves one request and returns what came of it.
func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ledger counts effects, as the judge of what happened.
type ledger struct {
	mu sync.Mutex
	n  int
}

func (l *ledger) add() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.n
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// pay is a handler that has one effect and answers 201 with its number.
func (l *ledger) pay(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) //nolint:errcheck // a test's body is in memory
	n := l.add()
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, "payment "+string(rune('0'+n)))
}

// faulty wraps a store; hooks that are set run instead of a verb, and may call the real one.
type faulty struct {
	driver.Store
	mu     sync.Mutex
	claim  func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error)
	extend func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error)
	settle func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error)
	load   func(context.Context, driver.ID) (driver.Record, error)
}

// set changes the hooks while the store is in use.
func (f *faulty) set(change func(*faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faulty) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	f.mu.Lock()
	hook := f.claim
	f.mu.Unlock()
	if hook != nil {
		return hook(ctx, id, c)
	}
	return f.Store.Claim(ctx, id, c)
}

func (f *faulty) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	f.mu.Lock()
	hook := f.extend
	f.mu.Unlock()
	if hook != nil {
		return hook(ctx, id, by, x)
	}
	return f.Store.Extend(ctx, id, by, x)
}

func (f *faulty) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	f.mu.Lock()
	hook := f.settle
	f.mu.Unlock()
	if hook != nil {
		return hook(ctx, id, by, o)
	}
	return f.Store.Settle(ctx, id, by, o)
}

func (f *faulty) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	f.mu.Lock()
	hook := f.load
	f.mu.Unlock()
	if hook != nil {
		return hook(ctx, id)
	}
	return f.Store.Load(ctx, id)
}

// briefLease is the lease of tests whose time is synctest's. In real time it might end while a busy machine does
// something else.
const briefLease = 3 * time.Second

// usualSettleWait is what Policy.SettleWait is by default.
const usualSettleWait = 5 * time.Second

// shortLease is a policy with that lease.
func shortLease(onLost semel.LostPolicy) semel.Policy {
	return semel.Policy{OnLost: onLost, Lease: briefLease, MaxRun: time.Minute, Retention: time.Hour}
}

// inRealTime returns p with a lease that outlasts whatever holds up a test.
func inRealTime(p semel.Policy) semel.Policy {
	p.Lease = driver.DefaultLease
	return p
}
