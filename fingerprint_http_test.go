package semel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// A request that another one differs from in one respect.
type variant struct {
	name string
	make func() *http.Request
}

func with(change func(*http.Request)) func() *http.Request {
	return func() *http.Request {
		r := post("k", `{"amount":5,"to":"alice"}`)
		change(r)
		return r
	}
}

var otherRequests = []variant{
	{"body", func() *http.Request { return post("k", `{"amount":6,"to":"alice"}`) }},
	{"a number's text", func() *http.Request { return post("k", `{"amount":5.0,"to":"alice"}`) }},
	{"empty body", func() *http.Request { return post("k", ``) }},
	{"query", with(func(r *http.Request) { r.URL.RawQuery = "to=mallory" })},
	{"path", with(func(r *http.Request) { r.URL.Path = "/refunds" })},
	{"escaped path", with(func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/pay/ments", "/pay%2Fments" })},
	{"method", with(func(r *http.Request) { r.Method = "PATCH" })},
	{"media type", with(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })},
	{"If-Match", with(func(r *http.Request) { r.Header.Set("If-Match", `"v1"`) })},
	{"If-None-Match", with(func(r *http.Request) { r.Header.Set("If-None-Match", `*`) })},
	{"If-Unmodified-Since", with(func(r *http.Request) { r.Header.Set("If-Unmodified-Since", "Sat, 01 Jan 2000 00:00:00 GMT") })},
}

var sameRequests = []variant{
	{"itself", func() *http.Request { return post("k", `{"amount":5,"to":"alice"}`) }},
	{"another order", func() *http.Request { return post("k", `{"to":"alice","amount":5}`) }},
	{"white space", func() *http.Request { return post("k", "{ \"amount\" :5,\n\"to\":\"alice\" }\n") }},
	{"escapes", func() *http.Request { return post("k", `{"amount":5,"to":"\u0061lice"}`) }},
	{"gzip", func() *http.Request {
		return post("k", string(packed(`{"amount":5,"to":"alice"}`)), "Content-Encoding", "gzip")
	}},
	{"another token", with(func(r *http.Request) { r.Header.Set("Authorization", "Bearer 2") })},
	{"another trace", with(func(r *http.Request) { r.Header.Set("Traceparent", "00-1-2-01") })},
	{"another agent", with(func(r *http.Request) { r.Header.Set("User-Agent", "retry/2") })},
	{"another coding accepted", with(func(r *http.Request) { r.Header.Set("Accept-Encoding", "br") })},
	{"charset", with(func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") })},
}

// In every state that a record can have, another request is refused with 422, the record stays as it was to the byte,
// and the first request is still the one that counts.
func TestCase01_Case16_R16_AnotherRequestIsRefusedInEveryState(t *testing.T) {
	t.Parallel()
	type state struct {
		name string
		p    semel.Policy
		want driver.Reading
		// run makes the record by a first request, and leaves it in its state until it returns.
		run func(h http.Handler, hold *held)
	}
	first := func(h http.Handler, how string) {
		r := post("k", `{"amount":5,"to":"alice"}`, "X-How", how)
		func() {
			defer func() { recover() }() //nolint:errcheck // the handler's own panic
			answer(h, r)
		}()
	}
	for _, st := range []state{
		{"done", shortLease(semel.Hold), driver.ReadsDone, func(h http.Handler, _ *held) { first(h, "ok") }},
		{"free, and may have had its effect", shortLease(semel.Rerun), driver.ReadsFree, func(h http.Handler, _ *held) { first(h, "503") }},
		{"unknown", shortLease(semel.Hold), driver.ReadsUnknown, func(h http.Handler, _ *held) { first(h, "panic") }},
		{"running", shortLease(semel.Hold), driver.ReadsRunning, func(h http.Handler, b *held) {
			go first(h, "block")
			synctest.Wait()
		}},
		{"lapsed, hold", shortLease(semel.Hold), driver.ReadsUnknown, func(h http.Handler, b *held) {
			b.dead = true
			go first(h, "block")
			time.Sleep(10 * time.Second)
		}},
		{"lapsed, rerun", shortLease(semel.Rerun), driver.ReadsFree, func(h http.Handler, b *held) {
			b.dead = true
			go first(h, "block")
			time.Sleep(10 * time.Second)
		}},
	} {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs ledger
				b := &held{release: make(chan struct{})}
				store := memstore.New()
				cut := &faulty{Store: store}
				cut.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
					if b.dead {
						return false, errors.New("cut off")
					}
					return store.Extend(ctx, id, by, x)
				}
				p := st.p
				p.Methods = []string{"POST", "PATCH"}
				g, _ := newGuard(t, cut, p)
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs.add()
					switch r.Header.Get("X-How") {
					case "503":
						w.WriteHeader(503)
					case "panic":
						panic("lost")
					case "block":
						<-b.release
					}
					io.WriteString(w, "secret answer")
				}))
				st.run(h, b)
				before := recordOfKey(t, store, "alice", "k")
				if got := before.Reads(p.OnLost); got != st.want {
					t.Fatalf("the record reads %v, want %v", got, st.want)
				}
				other, _ := newGuard(t, store, p) // as another process, or the same after a restart
				h2 := other.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					runs.add()
					w.WriteHeader(http.StatusOK)
				}))
				for _, v := range otherRequests {
					for _, guard := range []http.Handler{h, h2} {
						w := answer(guard, v.make())
						checkProblem(t, w, 422, refusal.KeyReused)
						if strings.Contains(w.Body.String(), "secret") {
							t.Errorf("%s: the problem shows the stored answer", v.name)
						}
					}
				}
				after := recordOfKey(t, store, "alice", "k")
				if !bytes.Equal(recordBytes(t, before), recordBytes(t, after)) {
					t.Errorf("the record was changed by a refusal:\n%+v\n%+v", before, after)
				}
				if got := runs.count(); got != 1 {
					t.Errorf("the handler ran %d times, want 1", got)
				}
				// The first request is answered as ever.
				w := answer(h2, post("k", `{"amount":5,"to":"alice"}`))
				want := map[driver.Reading]int{driver.ReadsDone: 200, driver.ReadsFree: 200, driver.ReadsUnknown: 409, driver.ReadsRunning: 409}[st.want]
				if w.Code != want {
					t.Errorf("the first request, repeated, is answered %d %s, want %d", w.Code, w.Body, want)
				}
				close(b.release)
				synctest.Wait()
			})
		})
	}
}

// held is a handler that blocks; dead cuts its heartbeats off.
type held struct {
	release chan struct{}
	dead    bool
}

func TestCase22_R18_R19_R20_HonestRepeatsAreOneRequest(t *testing.T) {
	t.Parallel()
	h, l, _, _ := payHandler(t, semel.Policy{})
	checkRun(t, answer(h, sameRequests[0].make()))
	for _, v := range sameRequests {
		if w := answer(h, v.make()); w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: answered %d %s, want a replay", v.name, w.Code, w.Body)
		}
	}
	checkEffects(t, l, 1)
}

func TestCase22_R21_FormsAndMultipartBodiesAreComparedByContent(t *testing.T) {
	t.Parallel()
	form := func(body string) *http.Request {
		r := post("k", body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}
	h, l, _, _ := payHandler(t, semel.Policy{})
	checkRun(t, answer(h, form("a=1&b=2&b=3")))
	checkReplay(t, answer(h, form("b=2&b=3&a=1")))
	checkProblem(t, answer(h, form("a=1&b=3&b=2")), 422, refusal.KeyReused)

	upload := func(key, content string) *http.Request {
		var b bytes.Buffer
		mw := multipart.NewWriter(&b) // a fresh boundary each time
		part, err := mw.CreateFormFile("file", "a.txt")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, content)
		mw.Close()
		r := post(key, b.String())
		r.Header.Set("Content-Type", mw.FormDataContentType())
		return r
	}
	checkRun(t, answer(h, upload("k2", "content")))
	checkReplay(t, answer(h, upload("k2", "content")))
	checkProblem(t, answer(h, upload("k2", "Content")), 422, refusal.KeyReused)
	checkEffects(t, l, 2)
}

func TestCase13_R17_TheQueryIsPartOfTheRequest(t *testing.T) {
	t.Parallel()
	h, l, _, _ := payHandler(t, semel.Policy{})
	send := func(query string) *httptest.ResponseRecorder {
		r := post("k", `{}`)
		r.URL.RawQuery = query
		return answer(h, r)
	}
	checkRun(t, send("to=alice&n=1"))
	checkReplay(t, send("n=1&to=alice"))
	for _, other := range []string{"to=mallory&n=1", "to=alice", "", "to=alice&n=1&n=2", "to=alice&n=1;x"} {
		checkProblem(t, send(other), 422, refusal.KeyReused)
	}
	checkEffects(t, l, 1)
}

func TestR17_HostAndOtherHeadersCountWhereAskedFor(t *testing.T) {
	t.Parallel()
	p := semel.Policy{Fingerprint: semel.FingerprintPolicy{Host: true, Headers: []string{"Api-Version"}}}
	h, _, _, _ := payHandler(t, p)
	checkRun(t, answer(h, post("k", `{}`, "Api-Version", "1")))
	checkReplay(t, answer(h, post("k", `{}`, "Api-Version", "1")))
	checkProblem(t, answer(h, post("k", `{}`, "Api-Version", "2")), 422, refusal.KeyReused)
	r := post("k", `{}`, "Api-Version", "1")
	r.Host = "other.example.com"
	checkProblem(t, answer(h, r), 422, refusal.KeyReused)
}

func TestR22_ExcludedFieldsDoNotCount(t *testing.T) {
	t.Parallel()
	h, l, _, _ := payHandler(t, semel.Policy{Fingerprint: semel.FingerprintPolicy{
		Exclude: []string{"/sent_at", "/items/*/seen"}, ExcludeNames: []string{"nonce"}, NullIsAbsent: true,
	}})
	checkRun(t, answer(h, post("k", `{"a":1,"sent_at":"1","items":[{"id":1,"seen":1}],"nonce":"x"}`)))
	checkReplay(t, answer(h, post("k", `{"a":1,"sent_at":"2","items":[{"id":1}],"NONCE":"y","memo":null}`)))
	checkProblem(t, answer(h, post("k", `{"a":1,"items":[{"id":2}]}`)), 422, refusal.KeyReused)
	checkEffects(t, l, 1)
}

func TestR23_ChangedSettingsReplayEqualRequestsAndRefuseTheRestAsUnavailable(t *testing.T) {
	t.Parallel()
	const body = `{"amount":5,"sent_at":"1"}`
	settings := semel.Policy{Fingerprint: semel.FingerprintPolicy{Exclude: []string{"/sent_at"}}}
	for name, change := range map[string]func(*semel.Guard, driver.Store) *semel.Guard{
		"another process": func(_ *semel.Guard, s driver.Store) *semel.Guard {
			changed, _ := newGuard(t, s, settings)
			return changed
		},
		"another route": func(old *semel.Guard, _ driver.Store) *semel.Guard { return old.Route(settings) },
	} {
		s, l := memstore.New(), &ledger{}
		old, _ := newGuard(t, s, semel.Policy{})
		checkRun(t, answer(old.Wrap(http.HandlerFunc(l.pay)), post("k", body)))
		before := recordBytes(t, recordOfKey(t, s, "alice", "k"))

		h := change(old, s).Wrap(http.HandlerFunc(l.pay))
		checkReplay(t, answer(h, post("k", body)))                                                              // equal to the byte
		checkProblem(t, answer(h, post("k", `{"sent_at":"1","amount":5}`)), 409, refusal.ReplayUnavailable)     // the same, but who knows
		checkProblem(t, answer(h, post("k", `{"amount":9,"sent_at":"1"}`)), 409, refusal.ReplayUnavailable)     // another, but who knows
		checkProblem(t, answer(h, post("k", `{"amount":5,"sent_at":"other"}`)), 409, refusal.ReplayUnavailable) // the same now, another then
		checkReplay(t, answer(h, post("k", body)))
		checkEffects(t, l, 1)
		if after := recordBytes(t, recordOfKey(t, s, "alice", "k")); !bytes.Equal(before, after) {
			t.Errorf("%s: the record was changed by a refusal", name)
		}
	}
}

// However often a request came before, and in whatever order of its members, and after a run that left nothing: what
// counts is the request that the record is of.
func TestR16_R20_WhatIsRememberedOfARequestNeverDecides(t *testing.T) {
	t.Parallel()
	const one, reordered, other = `{"amount":5,"to":"a"}`, `{"to":"a","amount":5}`, `{"amount":6,"to":"a"}`
	var busy atomic.Bool
	var runs ledger
	g, _ := newGuard(t, memstore.New(), semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy.Load() {
			w.WriteHeader(503)
			return
		}
		runs.pay(w, r)
	}))
	busy.Store(true)
	for _, body := range []string{other, one, other, other} {
		if w := answer(h, post("k", body)); w.Code != 503 {
			t.Fatalf("%s: answered %d, want 503", body, w.Code) // released: the key has not been used
		}
	}
	busy.Store(false)
	checkRun(t, answer(h, post("k", one)))
	for range 2 {
		checkReplay(t, answer(h, post("k", one)))
		checkReplay(t, answer(h, post("k", reordered)))
		checkReplay(t, answer(h, post("k", reordered)))
		checkProblem(t, answer(h, post("k", other)), 422, refusal.KeyReused)
		checkProblem(t, answer(h, post("k", other)), 422, refusal.KeyReused)
	}
	checkRun(t, answer(h, post("k2", other))) // another operation
	checkEffects(t, &runs, 2)
}

// also where the first run has not ended, or was lost.
func TestR23_ChangedSettingsNeverTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := memstore.New(), &ledger{}
		p := shortLease(semel.Rerun)
		old, _ := newGuard(t, s, p)
		free := old.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
		answer(free, post("k", `{"a":1,"b":2}`))
		p.Fingerprint.NullIsAbsent = true
		changed, _ := newGuard(t, s, p)
		h := changed.Wrap(http.HandlerFunc(l.pay))
		checkProblem(t, answer(h, post("k", `{"b":2,"a":1}`)), 409, refusal.ReplayUnavailable)
		checkEffects(t, l, 0)
		checkRun(t, answer(h, post("k", `{"a":1,"b":2}`)))
	})
}

func TestCase14_R13_TheSameKeyOnAnotherOperationIsRefused(t *testing.T) {
	t.Parallel()
	var l ledger
	g, _ := newGuard(t, nil, semel.Policy{})
	mux := http.NewServeMux()
	h := g.Wrap(http.HandlerFunc(l.pay))
	mux.Handle("POST /a", h)
	mux.Handle("PATCH /a", h)
	mux.Handle("POST /b", h)
	send := func(method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(`{}`))
		r.Header.Set("Idempotency-Key", "k")
		return answer(mux, r)
	}
	checkRun(t, send("POST", "/a"))
	checkProblem(t, send("POST", "/b"), 422, refusal.KeyReused)
	checkProblem(t, send("PATCH", "/a"), 422, refusal.KeyReused)
	checkReplay(t, send("POST", "/a"))
	checkEffects(t, &l, 1)
}

// Where the operation is part of the identity, it is so for derived keys too: two operations never share one
// downstream.
func TestCase14_R13_PerOperationMakesTheOperationPartOfTheIdentity(t *testing.T) {
	t.Parallel()
	var derived []string
	g, _ := newGuard(t, nil, semel.Policy{PerOperation: true})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		derived = append(derived, semel.FromContext(r.Context()).Key("charge"))
		w.WriteHeader(201)
	}))
	send := func(method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(`{}`))
		r.Header.Set("Idempotency-Key", "k")
		return answer(h, r)
	}
	operations := [][2]string{{"POST", "/a"}, {"POST", "/b"}, {"PATCH", "/a"}, {"POST", "/a%2Fb"}, {"POST", "/a/b"}}
	seen := map[string]bool{}
	for i, op := range operations {
		checkRun(t, send(op[0], op[1]))
		checkReplay(t, send(op[0], op[1]))
		if len(derived) != i+1 || seen[derived[i]] {
			t.Fatalf("%v: derived keys %q, want a new one", op, derived)
		}
		seen[derived[i]] = true
	}
	r := httptest.NewRequest("POST", "/a?x=1", strings.NewReader(`{}`)) // the query is part of the request, not of the operation
	r.Header.Set("Idempotency-Key", "k")
	checkProblem(t, answer(h, r), 422, refusal.KeyReused)
}
