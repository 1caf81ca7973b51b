package semel_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// readers that match names in either case, as encoding/json does, make the order of two such names the amount.
func TestField07_R20_NamesThatDifferInCaseOnlyAreComparedAsSent(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p struct{ Amount int }
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "paid %d", p.Amount)
	}))
	const sent = `{"amount":1,"Amount":2}`
	if w := answer(h, post("k", sent)); w.Body.String() != "paid 2" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	checkProblem(t, answer(h, post("k", `{"Amount":2,"amount":1}`)), 422, refusal.KeyReused)
	checkProblem(t, answer(h, post("k", `{"amount":1, "Amount":2}`)), 422, refusal.KeyReused)
	if w := answer(h, post("k", sent)); w.Body.String() != "paid 2" || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("again: %d %s", w.Code, w.Body)
	}
}

// what of such a body doesn't count can't be told.
func TestField07_R22_ExclusionsRefuseABodyWithTwoNamesThatMayBeOne(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]semel.FingerprintPolicy{
		"by pointer": {Exclude: []string{"/sent_at"}},
		"by name":    {ExcludeNames: []string{"sent_at"}},
	} {
		h, l, s, seen := payHandler(t, semel.Policy{Fingerprint: p})
		for _, body := range []string{
			`{"amount":1,"sent_at":2,"Sent_At":3}`, `{"sent_at":1,"sent_at":2}`, `{"amount":1,"Amount":2}`, `[{"sent_at":1,"ſent_at":2}]`,
		} {
			w := answer(h, post("k", body))
			checkProblem(t, w, 400, refusal.RequestUnreadable)
			for _, want := range []string{"differ in case only", `"retryable":false`} {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s, %s: no %s in %s", name, body, want, w.Body)
				}
			}
		}
		if got := seen.results(); slices.ContainsFunc(got, func(r event.Result) bool { return r != event.Refused }) || len(got) != 4 {
			t.Errorf("%s: reported as %s", name, got)
		}
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
		checkRun(t, answer(h, post("k", `{"amount":1,"sent_at":2}`)))
		checkReplay(t, answer(h, post("k", `{"sent_at":3,"amount":1}`)))
	}
}

// what was called a form by mistake is read as it is by its handler.
func TestField07_R21_WhatIsNoFormIsComparedAsSent(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body) //nolint:errcheck // a test's body is in memory
	}))
	send := func(key, body string) *httptest.ResponseRecorder {
		r := post(key, body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return answer(h, r)
	}
	for i, c := range [][2]string{
		{`{"q":"1+1"}`, `{"q":"1 1"}`},
		{`{"q":"=1+1"}`, `{"q":"=1%201"}`},
		{`{"a":1}&{"b":1}=`, `{"b":1}=&{"a":1}`},
		{`<q a="=">1+1</q>`, `<q a="=">1 1</q>`},
		{"1+1", "1%201"},
		{"a=1+1\n", "a=1%201\n"},
		{"a= 1+1", "a= 1%201"},
		{"ä=1+1", "ä=1%201"},
		{"a&b=1", "a=&b=1"},
		{"amount=1&Amount=2", "Amount=2&amount=1"}, // one name to some servers
	} {
		key := fmt.Sprint("k", i)
		if w := send(key, c[0]); w.Code != 200 || w.Body.String() != c[0] {
			t.Errorf("%q: %d %q", c[0], w.Code, w.Body)
		}
		checkProblem(t, send(key, c[1]), 422, refusal.KeyReused)
		if w := send(key, c[0]); w.Body.String() != c[0] || w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("%q again: %d %q", c[0], w.Code, w.Body)
		}
	}
	send("form", "card[code]=1+1&to=bob@example.org")
	if w := send("form", "to=bob%40example.org&card%5Bcode%5D=1%201"); w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("a form in other words: %d %q", w.Code, w.Body)
	}
}

func TestField07_R17_AQueryThatIsNoFormIsComparedAsSent(t *testing.T) {
	t.Parallel()
	h, l, _, _ := payHandler(t, semel.Policy{})
	send := func(query string) *httptest.ResponseRecorder {
		r := post("k", `{}`)
		r.URL.RawQuery = query
		return answer(h, r)
	}
	checkRun(t, send(`{"a":"1&2"}`))
	r := post("case", `{}`)
	r.URL.RawQuery = "amount=1&Amount=2&b=3"
	checkRun(t, answer(h, r))
	for query, wants := range map[string]func(*httptest.ResponseRecorder){
		"b=3&amount=1&Amount=2": func(w *httptest.ResponseRecorder) { checkReplay(t, w) },
		"Amount=2&amount=1&b=3": func(w *httptest.ResponseRecorder) { checkProblem(t, w, 422, refusal.KeyReused) },
	} {
		r := post("case", `{}`)
		r.URL.RawQuery = query
		wants(answer(h, r))
	}
	checkProblem(t, send(`2"}&{"a":"1`), 422, refusal.KeyReused)
	checkReplay(t, send(`{"a":"1&2"}`))
	checkEffects(t, l, 2)
}
