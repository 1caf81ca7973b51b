// Package frameworktest holds what the tests of the frameworks' middlewares share.
package frameworktest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semeltest"
)

// Post returns what h answers to a request under the key "key".
func Post(h http.Handler, path string) *httptest.ResponseRecorder {
	return answer(h, post(path))
}

func post(path string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "key")
	return r
}

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Operations are the names of those that decisions were about, as an observer is told. They are for one request at a
// time.
type Operations []string

// Observe takes note of a decision.
func (o *Operations) Observe(_ context.Context, e event.Event) {
	if e.Kind == event.Decision {
		*o = append(*o, e.Operation)
	}
}

// Refused fails unless a middleware panics over a policy.
func Refused(t *testing.T, p semel.Policy, middleware func(*semel.Guard)) {
	t.Helper()
	g := semeltest.New(t, p)
	defer func() {
		if recover() == nil {
			t.Errorf("a policy is taken that answers before the handler has ended: %+v", p)
		}
	}()
	middleware(g)
}

// PatienceBefore fails unless a framework works behind a guard that answers before the handler has. Its handler must
// wait for goOn, which is closed once the client has left, and is given the later answer's status and body.
func PatienceBefore(t *testing.T, framework http.Handler, goOn chan struct{}, status int, body string) {
	t.Helper()
	g := semeltest.New(t, semel.Policy{Patience: time.Millisecond})
	h := g.Wrap(framework)
	if w := Post(h, "/"); w.Code != http.StatusGatewayTimeout {
		t.Errorf("answered %d, want 504", w.Code)
	}
	close(goOn)
	w, end := Post(h, "/"), time.Now().Add(time.Minute)
	for w.Header().Get("Idempotency-Code") == "IDEMPOTENCY_IN_PROGRESS" && time.Now().Before(end) {
		time.Sleep(time.Millisecond) // a repeat waits no longer than the policy's patience
		w = Post(h, "/")
	}
	if w.Code != status || strings.TrimSpace(w.Body.String()) != body {
		t.Errorf("repeated: %d %s", w.Code, w.Body)
	}
}

// NobodyIsRefused fails unless a scope without a function is refused, and so is a request outside of the framework, of
// which account can't tell whose it is. route has the framework serve a handler.
func NobodyIsRefused(t *testing.T, none, account semel.Scope, route func(http.Handler) http.Handler) {
	t.Helper()
	if _, err := semel.New(memstore.New(), none, semel.Hold, semel.Options{}); err == nil {
		t.Error("a scope without a function is taken")
	}
	h := route(guarded(t, account).Wrap(http.NotFoundHandler()))
	if w := Post(h, "/"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "scope-invalid") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

// ReaderIsRefused fails unless a scope that reads the body is caught, as one of net/http is. route has the framework
// serve under a guard.
func ReaderIsRefused(t *testing.T, account semel.Scope, route func(*semel.Guard) http.Handler) {
	t.Helper()
	r := post("/")
	r.ContentLength = -1
	if w := answer(route(guarded(t, account)), r); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "body-consumed") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
}

func guarded(t *testing.T, s semel.Scope) *semel.Guard {
	t.Helper()
	g, err := semel.New(memstore.New(), s, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}
