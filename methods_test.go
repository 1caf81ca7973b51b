package semel_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// request makes a request of a method to /payments/7; header holds name, value pairs.
func request(method, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, "/payments/7", strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// who sends a key with a PUT or DELETE means it.
func TestR8_UnsafeMethodsAreProtectedIfTheyCarryAKey(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"PUT", "DELETE", "PURGE", "put"} {
		for _, optional := range []bool{false, true} {
			h, l, s, _ := payHandler(t, semel.Policy{KeyOptional: optional})
			checkRun(t, answer(h, request(method, `{}`, "Idempotency-Key", "k")))
			checkReplay(t, answer(h, request(method, `{}`, "Idempotency-Key", "k")))
			checkProblem(t, answer(h, request(method, `{"a":1}`, "Idempotency-Key", "k")), 422, refusal.KeyReused)
			checkProblem(t, answer(h, request("POST", `{}`, "Idempotency-Key", "k")), 422, refusal.KeyReused)
			checkProblem(t, answer(h, request(method, `{}`, "Idempotency-Key", "a b")), 400, refusal.KeyInvalid)
			checkProblem(t, answer(h, request(method, `{}`, "Idempotency-Key", "k", "Idempotency-Key", "k")), 400, refusal.KeyInvalid)
			checkEffects(t, l, 1)
			checkRecords(t, s, 1)
			w := answer(h, request(method, `{}`))
			checkRun(t, w)
			if got := w.Header().Get("Cache-Control"); got != "" {
				t.Errorf("%s without a key is answered as a keyed one: %v", method, w.Header())
			}
			checkRun(t, answer(h, request(method, `{}`)))
			checkEffects(t, l, 3)
			checkRecords(t, s, 1)
		}
	}
}

// Without protection the repeat of a DELETE finds nothing, and its client takes that for the outcome.
func TestField16_KeyedPutAndDeleteAreReplayedOverTheWire(t *testing.T) {
	t.Parallel()
	var there atomic.Bool
	g, _ := newGuard(t, nil, semel.Policy{})
	s := httptest.NewServer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if was := there.Swap(r.Method == "PUT"); r.Method == "DELETE" && !was {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})))
	defer s.Close()
	send := func(method, key, body string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/payments/7", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Principal", "alice")
		r.Header.Set("Idempotency-Key", key)
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		return res
	}
	for _, c := range []struct {
		method, key, body string
		status            int
		replayed          string
		there             bool
	}{
		{"PUT", "p", `{"amount":1}`, 204, "", true},
		{"DELETE", "d", "", 204, "", false},
		{"DELETE", "d", "", 204, "true", false},
		{"PUT", "p", `{"amount":1}`, 204, "true", false}, // it is not made again
		{"DELETE", "e", `{"why":"b"}`, 404, "", false},
		{"DELETE", "e", `{"why":"c"}`, 422, "", false},
		{"DELETE", "e", `{ "why":"b" }`, 422, "", false}, // of no type, so compared as sent
		{"DELETE", "e", `{"why":"b"}`, 404, "true", false},
	} {
		res := send(c.method, c.key, c.body)
		if res.StatusCode != c.status || res.Header.Get("Idempotent-Replayed") != c.replayed || there.Load() != c.there {
			t.Errorf("%s %s %s: %d, replayed %q, there %v; want %+v", c.method, c.key, c.body, res.StatusCode,
				res.Header.Get("Idempotent-Replayed"), there.Load(), c)
		}
	}
}

// a field of the body is a key for these methods, too; a body that can't have it passes as it was sent.
func TestField16_KeyedPutCarriesItsKeyInAField(t *testing.T) {
	t.Parallel()
	const asJSON = "application/vnd.shop+json; charset=UTF-8"
	var got []string
	store, l := memstore.New(), &ledger{}
	g, seen := newGuard(t, store, semel.Policy{KeyField: "/key", MaxRequestBody: 100})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, string(body))
		l.pay(w, r)
	}))
	keyed := request("PUT", `{"key":"k","a":1}`, "Content-Type", asJSON)
	checkRun(t, answer(h, keyed))
	checkReplay(t, answer(h, request("PUT", `{"a":1,"key":"k"}`, "Content-Type", asJSON)))
	checkRecords(t, store, 1)

	long := strings.Repeat("x", 200)
	for _, c := range [][2]string{{`{"a":1}`, asJSON}, {``, asJSON}, {`key=k`, "text/plain"}, {long, "image/png"}, {`{"key":"k"`, ""}} {
		checkRun(t, answer(h, request("PUT", c[0], "Content-Type", c[1])))
		if last := got[len(got)-1]; last != c[0] {
			t.Errorf("the handler reads %q, want %q", last, c[0])
		}
	}
	checkProblem(t, answer(h, request("PUT", `{"key":"k"`, "Content-Type", asJSON)), 400, refusal.KeyInvalid) // may carry one
	checkProblem(t, answer(h, request("PUT", `"`+long+`"`, "Content-Type", asJSON)), 413, refusal.BodyTooLarge)
	checkEffects(t, l, 6)
	checkRecords(t, store, 1)
	for _, r := range seen.results() {
		if r == event.Bypassed {
			t.Error("a request without a key counts as bypassed")
		}
	}
}

// a key is made only where one is needed.
func TestField16_KeyedPutIsNotMinted(t *testing.T) {
	t.Parallel()
	mint := func(*http.Request, []byte) (string, error) { return "minted", nil }
	h, l, s, _ := payHandler(t, semel.Policy{Mint: mint})
	checkRun(t, answer(h, request("PUT", `{}`)))
	checkRun(t, answer(h, request("PUT", `{}`)))
	checkEffects(t, l, 2)
	checkRecords(t, s, 0)
	h, l, s, _ = payHandler(t, semel.Policy{Mint: mint, Methods: []string{"PUT"}})
	checkRun(t, answer(h, request("PUT", `{}`)))
	checkReplay(t, answer(h, request("PUT", `{}`)))
	checkRun(t, answer(h, request("DELETE", `{}`, "Idempotency-Key", "k")))
	checkRun(t, answer(h, request("DELETE", `{}`, "Idempotency-Key", "k")))
	checkEffects(t, l, 3)
	checkRecords(t, s, 1)
}

func TestField16_KeyedPutIsObserved(t *testing.T) {
	t.Parallel()
	h, l, s, seen := payHandler(t, semel.Policy{ObserveOnly: true})
	checkRun(t, answer(h, request("PUT", `{}`, "Idempotency-Key", "k")))
	if e := seen.observed(t); e.Result != event.Executed {
		t.Errorf("observed %+v", e)
	}
	checkRun(t, answer(h, request("PUT", `{}`, "Idempotency-Key", "k")))
	if e := seen.observed(t); e.Result != event.Replayed {
		t.Errorf("observed %+v", e)
	}
	checkRun(t, answer(h, request("PUT", `{}`)))
	if n := len(seen.results()); n != 0 {
		t.Errorf("%d decisions about a request without a key", n)
	}
	checkEffects(t, l, 3)
	checkRecords(t, s, 1)
}

// what a client keyed is finished without it, whatever its method.
func TestField16_KeyedPutIsFinishedWithoutItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, _ := newFinishing(t, store, finishing())
		var l ledger
		h := g.Wrap(counted(&l, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 2 {
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		wantProblem(t, answer(h, request("PUT", `{}`, "Idempotency-Key", "k")), http.StatusInternalServerError, refusal.NoAnswer)
		stop := finish(t, g, h, semel.CompleterOptions{})
		time.Sleep(time.Minute)
		stop()
		if rec := loaded(t, store, "k"); rec.State != driver.Done || l.count() != 2 {
			t.Errorf("%v after %d runs, want done after 2", rec.State, l.count())
		}
	})
}
