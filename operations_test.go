package semel_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

const operationsPath = "/operations"

// linkedGuard is a guard whose operations can be asked about, and the handler of the questions.
func linkedGuard(t testing.TB, store driver.Store, o semel.Options) (*semel.Guard, http.Handler, *events) {
	t.Helper()
	o.Operations = operationsPath
	g, seen := newGuardWith(t, store, o)
	mux := http.NewServeMux()
	mux.Handle(operationsPath, g.Operations())
	mux.Handle(operationsPath+"/", g.Operations())
	return g, mux, seen
}

// about makes a question; header holds name, value pairs.
func about(path string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, operationsPath+path, nil)
	r.Header.Set("X-Correlation-Id", "c-1")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// An operationDocument is what clients read of a status.
type operationDocument struct {
	ID        string
	State     string
	Detail    string
	Retryable bool
	Attempts  int
	Ended     time.Time
	Result    *struct {
		Status         int
		Location, Href string
	}
	Links struct{ Self, Result string }
}

func statusOf(t testing.TB, w *httptest.ResponseRecorder, status int) (d operationDocument) {
	t.Helper()
	if w.Code != status || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("answered %d %v %s, want a status with %d", w.Code, w.Header(), w.Body, status)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return d
}

// A situation is a record as some guard has left it.
type situation struct {
	name   string
	claim  driver.Claim
	extend bool // begun
	settle *driver.Outcome
	by     time.Duration // how long after the claim it settles
	later  time.Duration // how long after that it is looked at
}

func (s *situation) leave(t *testing.T, store driver.Store, id driver.ID) {
	t.Helper()
	s.claim.Token, s.claim.Operation, s.claim.Correlation = driver.NewToken(), "POST /payments", "c-secret"
	rec, owned, err := store.Claim(t.Context(), id, s.claim)
	if err != nil || !owned {
		t.Fatalf("claim: %v, %v", owned, err)
	}
	if s.extend {
		if owned, err := store.Extend(t.Context(), id, rec.Owner(), driver.Extension{Begun: true}); err != nil || !owned {
			t.Fatalf("extend: %v, %v", owned, err)
		}
	}
	time.Sleep(s.by)
	if s.settle != nil {
		if _, owned, err := store.Settle(t.Context(), id, rec.Owner(), *s.settle); err != nil || !owned {
			t.Fatalf("settle: %v, %v", owned, err)
		}
	}
	time.Sleep(s.later)
}

// Each state, as it is shown: the document, and what stands where the answer would.
func TestR33_EachStateIsShown(t *testing.T) {
	t.Parallel()
	created := &driver.Response{
		Status: 201, Header: http.Header{"Location": {"/payments/17"}, "Content-Type": {"application/json"}, "Cache-Control": {"max-age=60"}},
		Body: []byte(`{"id":17}`),
	}
	rerun := func(sealed string) driver.Claim { return driver.Claim{OnLost: semel.Rerun, Sealed: []byte(sealed)} }
	for _, s := range []situation{
		{name: "running", by: 7 * time.Second},
		{name: "succeeded", by: 2 * time.Second, settle: &driver.Outcome{State: driver.Done, Response: created}},
		{name: "failed", by: 2 * time.Second, settle: &driver.Outcome{
			State: driver.Done, Response: &driver.Response{Status: 402, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("declined")},
		}},
		{name: "no-answer", by: time.Second, settle: &driver.Outcome{State: driver.Done, Error: "secret: why"}},
		{name: "unknown", by: time.Second, settle: &driver.Outcome{State: driver.Unknown, Error: "secret: why"}},
		{name: "lapsed-hold", by: time.Minute},
		{name: "lapsed-begun", claim: rerun(""), extend: true, by: time.Minute},
		{name: "lapsed-rerun", claim: rerun(""), by: time.Minute},
		{name: "lapsed-sealed", claim: rerun("secret"), by: time.Minute},
		{name: "free", by: time.Second, settle: &driver.Outcome{State: driver.Free, Error: "secret: why"}},
		{name: "free-sealed", claim: rerun("secret"), by: time.Second, settle: &driver.Outcome{State: driver.Free}},
		{name: "free-owed", claim: rerun("secret"), by: time.Second, settle: &driver.Outcome{State: driver.Free, Owed: true}},
		{
			name: "expired", claim: driver.Claim{Retention: time.Hour, Tombstone: time.Hour}, by: time.Second,
			settle: &driver.Outcome{State: driver.Done, Response: created}, later: time.Hour,
		},
		{
			name: "forgotten", claim: driver.Claim{Retention: time.Hour}, by: time.Second,
			settle: &driver.Outcome{State: driver.Done, Response: created}, later: time.Hour,
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				_, ask, seen := linkedGuard(t, store, semel.Options{})
				s.leave(t, store, keyed("k"))
				status := answer(ask, about("/"+keyed("k").String()))
				result := answer(ask, about("/"+keyed("k").String()+"/result"))
				text := exchangeText(status) + "\n--\n" + exchangeText(result)
				matchGolden(t, "operation/"+s.name+".http", text)
				if strings.Contains(text, "secret") || strings.Contains(text, "POST /payments") {
					t.Errorf("it shows what is for operators:\n%s", text)
				}
				byKey := answer(ask, about("", "Idempotency-Key", `"k"`))
				if byKey.Code != status.Code || byKey.Body.String() != status.Body.String() || byKey.Header().Get("Idempotency-Key") != `"k"` {
					t.Errorf("by its key:\n%s", exchangeText(byKey))
				}
				if got := seen.results(); len(got) != 0 {
					t.Errorf("questions were reported as decisions: %v", got)
				}
			})
		})
	}
}

// Another principal's operation, one of another kind, one that never was and no id at all look the same.
func TestR33_R10_OnlyItsPrincipalFindsAnOperation(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, ask, _ := linkedGuard(t, store, semel.Options{})
	answer(g.Wrap(say("paid")), post("k", `{}`))
	job := func(context.Context) (int, error) { return 1, nil }
	if _, err := semel.Do(t.Context(), g, semel.Key{Scope: "alice", Operation: "pay", Value: "k"}, semel.Bytes("{}"), job); err != nil {
		t.Fatal(err)
	}
	id := keyed("k").String()
	if d := statusOf(t, answer(ask, about("/"+id)), 200); d.State != "succeeded" {
		t.Fatalf("its own: %+v", d)
	}
	unknown := answer(ask, about("/"+keyed("other").String()))
	wantProblem(t, unknown, 404, refusal.OperationNotFound)
	matchGolden(t, "problem/operation-not-found.http", exchangeText(unknown))
	for path, header := range map[string][]string{
		"/" + id:             {"X-Principal", "mallory"},
		"/" + id + "/result": {"X-Principal", "mallory"},
		"/" + semel.Identify(nil, semel.KindDo, "alice", "k").String(): nil,
		"/" + keyed("other").String() + "/result":                      nil,
		"/x":                nil,
		"/result":           nil,
		"//result":          nil,
		"/" + id + "/":      nil,
		"/" + id + "/other": nil,
		"/" + id[:63]:       nil,
		"/" + id + "=":      nil,
	} {
		r := about("", header...)
		r.URL.Path += path
		w := httptest.NewRecorder()
		g.Operations().ServeHTTP(w, r) // the mux would clean the path
		if got, want := exchangeText(w), exchangeText(unknown); got != want {
			t.Errorf("%s %v:\n%s\nwant as of one that never was:\n%s", path, header, got, want)
		}
	}
	never := answer(ask, about("", "Idempotency-Key", "k", "X-Principal", "mallory"))
	wantProblem(t, never, 404, refusal.OperationNotFound)
	if never.Body.String() != unknown.Body.String() {
		t.Errorf("by key: %s", never.Body)
	}
}

func TestR33_QuestionsThatCantBeAnswered(t *testing.T) {
	t.Parallel()
	mem := memstore.New()
	store := &faulty{Store: mem}
	g, err := semel.New(store, semel.ScopeFunc(func(r *http.Request) (string, error) {
		if r.Header.Get("X-Principal") == "nobody" {
			return "", errors.New("secret: no tenant")
		}
		return "alice", nil
	}), semel.Hold, semel.Options{Operations: operationsPath})
	if err != nil {
		t.Fatal(err)
	}
	answer(g.Wrap(say("paid")), post("k", `{}`))
	fail := func(err error) {
		store.set(func(f *faulty) {
			f.load = func(context.Context, driver.ID) (driver.Record, error) { return driver.Record{}, err }
		})
	}
	for _, c := range []struct {
		name   string
		r      *http.Request
		load   error
		status int
		code   refusal.Code
	}{
		{"no key", about(""), nil, 400, refusal.KeyMissing},
		{"bad key", about("", "Idempotency-Key", `"a`), nil, 400, refusal.KeyInvalid},
		{"no principal", about("/"+keyed("k").String(), "X-Principal", "nobody"), nil, 400, refusal.ScopeInvalid},
		{"no principal, by key", about("", "X-Principal", "nobody", "Idempotency-Key", "k"), nil, 400, refusal.ScopeInvalid},
		{"store down", about("/" + keyed("k").String()), errStoreDown, 503, refusal.StoreUnavailable},
		{"unreadable", about("/" + keyed("k").String()), driver.ErrUnreadable, 409, refusal.ReplayUnavailable},
	} {
		fail(c.load)
		w := answer(g.Operations(), c.r)
		wantProblem(t, w, c.status, c.code)
		text := exchangeText(w)
		if w.Header().Get("Cache-Control") != "no-store" || strings.Contains(text, "secret") || strings.Contains(text, "not run") {
			t.Errorf("%s: %s", c.name, text)
		}
	}
	for _, method := range []string{"POST", "DELETE", "PUT", "OPTIONS"} {
		r := about("/" + keyed("k").String())
		r.Method = method
		if w := answer(g.Operations(), r); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: answered %d %v", method, w.Code, w.Header())
		}
	}
}

// A store that is down is not asked by each question.
func TestR33_R64_QuestionsPassTheBreaker(t *testing.T) {
	t.Parallel()
	asked := 0
	store := &faulty{Store: memstore.New(), load: func(context.Context, driver.ID) (driver.Record, error) {
		asked++
		return driver.Record{}, errStoreDown
	}}
	b := &switchBreaker{}
	_, ask, seen := linkedGuard(t, store, semel.Options{Breaker: b})
	wantProblem(t, answer(ask, about("/"+keyed("k").String())), 503, refusal.StoreUnavailable)
	b.set(true)
	wantProblem(t, answer(ask, about("/"+keyed("k").String())), 503, refusal.StoreUnavailable)
	if asked != 1 || len(b.heard) != 1 || !errors.Is(b.heard[0], errStoreDown) || seen.count(event.StoreError) != 1 {
		t.Errorf("asked %d times, the breaker heard %v, %d reported; want 1 of each", asked, b.heard, seen.count(event.StoreError))
	}
}

func TestR33_HEADIsAnsweredAsGET(t *testing.T) {
	t.Parallel()
	g, ask, _ := linkedGuard(t, nil, semel.Options{})
	answer(g.Wrap(say("paid")), post("k", `{}`))
	s := httptest.NewServer(ask)
	defer s.Close()
	for path, want := range map[string]int{"/" + keyed("k").String(): 200, "/" + keyed("k").String() + "/result": 201, "/x": 404} {
		head, err := http.Head(s.URL + operationsPath + path)
		if err != nil {
			t.Fatal(err)
		}
		head.Body.Close()
		get, err := http.Get(s.URL + operationsPath + path)
		if err != nil {
			t.Fatal(err)
		}
		get.Body.Close()
		if head.StatusCode != want || get.StatusCode != want || head.ContentLength != get.ContentLength || get.ContentLength <= 0 {
			t.Errorf("%s: HEAD %d, %d bytes; GET %d, %d bytes; want %d", path, head.StatusCode, head.ContentLength, get.StatusCode, get.ContentLength, want)
		}
	}
}

// The path as clients see it is in the links; what a proxy takes off, the mount takes off too.
func TestR33_MountedBehindAProxy(t *testing.T) {
	t.Parallel()
	g, _ := newGuardWith(t, nil, semel.Options{Operations: "/api v1/operations"})
	answer(g.Wrap(say("paid")), post("k", `{}`))
	id := keyed("k").String()
	for path, h := range map[string]http.Handler{
		"/api%20v1/operations/" + id: g.Operations(),
		"/op/" + id:                  http.StripPrefix("/op", g.Operations()),
		"/op/" + id + "?x=/result":   http.StripPrefix("/op/", g.Operations()),
	} {
		d := statusOf(t, answer(h, httptest.NewRequest("GET", path, nil)), 200)
		if want := "/api%20v1/operations/" + id; d.Links.Self != want || d.Links.Result != want+"/result" || d.Result.Href != d.Links.Result {
			t.Errorf("%s: links %+v, want below %s", path, d, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Operations without a path did not panic")
		}
	}()
	without, _ := newGuard(t, nil, semel.Policy{})
	without.Operations()
}

// What is told of a result is told only to whom it may be given, and an answer is given as a repeat would get it.
func TestR33_R13_ResultsAreReplays(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	io.WriteString(zw, `{"id":17}`)
	zw.Close()
	allowed := true
	ring := newTestKeyring(t)
	store := memstore.New()
	g, ask, seen := linkedGuard(t, store, semel.Options{Encryption: ring, Policy: semel.Policy{AuthorizeReplay: func(*http.Request) error {
		if !allowed {
			return errors.New("secret: revoked")
		}
		return nil
	}}})
	answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/17")
		w.Header().Set("Cache-Control", "public, max-age=60")
		w.WriteHeader(http.StatusCreated)
		w.Write(packed.Bytes())
	})), post("k", `{}`))
	id := "/" + keyed("k").String()
	w := answer(ask, about(id+"/result"))
	wantAnswer(t, w, 201, `{"id":17}`, true)
	if h := w.Header(); h.Get("Content-Encoding") != "" || h.Get("Location") != "/payments/17" || h.Get("Cache-Control") != "no-store" ||
		h.Get("Idempotency-Expires") == "" {
		t.Errorf("header %v", h)
	}
	if w := answer(ask, about(id+"/result", "Accept-Encoding", "gzip")); w.Body.String() != packed.String() {
		t.Errorf("to one who takes gzip: %q", w.Body)
	}
	if d := statusOf(t, answer(ask, about(id)), 200); d.Result == nil || d.Result.Location != "/payments/17" || d.Result.Status != 201 {
		t.Errorf("status %+v", d)
	}
	allowed = false
	wantProblem(t, answer(ask, about(id+"/result")), 403, refusal.ReplayForbidden)
	if d := statusOf(t, answer(ask, about(id)), 200); d.State != "succeeded" || d.Result == nil || d.Result.Location != "" {
		t.Errorf("status of an answer that may not be shown: %+v", d)
	}
	_, without, seen2 := linkedGuard(t, store, semel.Options{})
	if d := statusOf(t, answer(without, about(id)), 200); d.State != "succeeded" || d.Result != nil || d.Detail == "" {
		t.Errorf("status without the key of the answer: %+v", d)
	}
	wantProblem(t, answer(without, about(id+"/result")), 409, refusal.ReplayUnavailable)
	if seen.count(event.Unreadable) != 0 || seen2.count(event.Unreadable) != 2 {
		t.Errorf("unreadable answers reported: %d and %d, want 0 and 2", seen.count(event.Unreadable), seen2.count(event.Unreadable))
	}
}

func newTestKeyring(t testing.TB) *keyring.Ring {
	t.Helper()
	k, err := keyring.New(keyring.Key{ID: "k1", Key: bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Refusals that leave an outcome open say where it can be asked about; others do not, nor do those of routes whose
// operations have no record while they run.
func TestR33_RefusalsCarryTheLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := shortLease(semel.Hold)
		p.Patience = time.Second
		g, ask, _ := linkedGuard(t, nil, semel.Options{Policy: p})
		want := operationsPath + "/" + keyed("k").String()
		linked := func(w *httptest.ResponseRecorder, status int, code refusal.Code, wanted string) {
			t.Helper()
			wantProblem(t, w, status, code)
			var shown semel.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil {
				t.Fatal(err)
			}
			link := ""
			if wanted != "" {
				link = "<" + wanted + `>; rel="status"`
			}
			if shown.Operation != wanted || w.Header().Get("Link") != link {
				t.Errorf("%s: operation %q, Link %q; want %q", code, shown.Operation, w.Header().Get("Link"), wanted)
			}
		}
		lose := true
		h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Second)
			if lose {
				semel.FromContext(r.Context()).Lost(errDown)
			}
		}))
		linked(answer(h, post("k", `{}`)), 504, refusal.OutcomePending, want)
		linked(answer(h, post("k", `{}`)), 409, refusal.InProgress, want)
		if d := statusOf(t, answer(ask, about(strings.TrimPrefix(want, operationsPath))), 200); d.State != "running" {
			t.Errorf("the link leads to %+v", d)
		}
		linked(answer(h, post("k", `{"other":1}`)), 422, refusal.KeyReused, "")
		linked(answer(h, post("", `{}`)), 400, refusal.KeyMissing, "")
		drained(t, g)
		linked(answer(h, post("k", `{}`)), 409, refusal.OutcomeUnknown, want)

		plain, _ := newGuard(t, nil, p)
		linked(answer(plain.Wrap(paused(&ledger{}, time.Minute)), post("k", `{}`)), 504, refusal.OutcomePending, "")
		drained(t, plain)
	})
}

func TestR33_R59_ClientsOfOtherOriginsMayReadTheLinks(t *testing.T) {
	t.Parallel()
	g, _, _ := linkedGuard(t, nil, semel.Options{})
	allow, expose := g.Route(semel.Policy{MaxWait: time.Second}).CORSHeaders()
	for _, name := range []string{"Link", "Location", "Preference-Applied"} {
		if !strings.Contains(strings.Join(expose, " "), name) {
			t.Errorf("expose %v lacks %s", expose, name)
		}
	}
	if !strings.Contains(strings.Join(allow, " "), "Prefer") {
		t.Errorf("allow %v lacks Prefer", allow)
	}
}

func TestField23_AnOperationTellsUntilWhenItsAnswerIsKept(t *testing.T) {
	t.Parallel()
	for retention, want := range map[time.Duration]bool{0: true, time.Hour: true, semel.Forever: false} {
		synctest.Test(t, func(t *testing.T) {
			g, ask, _ := linkedGuard(t, nil, semel.Options{Policy: semel.Policy{MaxRun: time.Minute, Retention: retention, Tombstone: time.Hour}})
			first := answer(g.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", `{}`))
			w := answer(ask, about("", "Idempotency-Key", "k"))
			var d struct{ Expires time.Time }
			if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
				t.Fatal(err)
			}
			header := first.Header().Get("Idempotency-Expires")
			if w.Header().Get("Idempotency-Expires") != header || (header != "") != want {
				t.Errorf("kept for %v: the answer says %q, the status %q", retention, header, w.Header().Get("Idempotency-Expires"))
			}
			if want && d.Expires.Format(http.TimeFormat) != header || !want && !d.Expires.IsZero() {
				t.Errorf("kept for %v: the status says %v in its body, %q in its header", retention, d.Expires, header)
			}
		})
	}
}
