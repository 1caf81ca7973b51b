package semel_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// orderKey mints a key from the method and the order number in the body.
func orderKey(r *http.Request, body []byte) (string, error) {
	var order struct{ Order int }
	if err := json.Unmarshal(body, &order); err != nil || order.Order == 0 {
		return "", errors.New("the body names no order")
	}
	return r.Method + "-order-" + strconv.Itoa(order.Order), nil
}

// minted returns a handler that counts its runs, and shows which key and body it was given.
func minted(t *testing.T, p semel.Policy) (http.Handler, *ledger, *events) {
	t.Helper()
	l := &ledger{}
	g, seen := newGuard(t, nil, p)
	return g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.add()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the body: %v", err)
		}
		io.WriteString(w, r.Header.Get("Idempotency-Key")+" "+string(body))
	})), l, seen
}

func TestField21_AClientIsToldToChooseAnotherKeyOnlyIfItChoseOne(t *testing.T) {
	t.Parallel()
	h, _, _ := minted(t, semel.Policy{Mint: orderKey})
	answer(h, post("", `{"order":17,"amount":1}`))
	w := answer(h, post("", `{"order":17,"amount":2}`))
	checkProblem(t, w, 422, refusal.KeyReused)
	if text := w.Body.String(); strings.Contains(text, "choose a new key") || !strings.Contains(text, "no key was sent") {
		t.Errorf("a client without a key is told %s", text)
	}
	answer(h, post("own", `{"order":17,"amount":1}`))
	if w := answer(h, post("own", `{"order":17,"amount":2}`)); !strings.Contains(w.Body.String(), "choose a new key") {
		t.Errorf("a client with a key of its own is told %s", w.Body)
	}
}

func TestR76_MintedKeyFromFields(t *testing.T) {
	t.Parallel()
	h, l, seen := minted(t, semel.Policy{Mint: orderKey})
	for i, body := range []string{`{"order":7,"n":1}`, `{"n":1, "order":7}`} {
		r := post("", body)
		before := r.Header.Clone()
		w := answer(h, r)
		wantAnswer(t, w, http.StatusOK, `POST-order-7 {"order":7,"n":1}`, i > 0)
		if got := w.Header().Get("Idempotency-Key"); got != "POST-order-7" {
			t.Errorf("the answer tells the key %q", got)
		}
		if len(r.Header) != len(before) || r.Header.Get("Idempotency-Key") != "" {
			t.Errorf("the caller's request was changed: %v", r.Header)
		}
	}
	// Another order is another operation, the same order with another content a mismatch, told with its key.
	wantAnswer(t, answer(h, post("", `{"order":8}`)), http.StatusOK, `POST-order-8 {"order":8}`, false)
	w := answer(h, post("", `{"order":7,"n":2}`))
	wantProblem(t, w, http.StatusUnprocessableEntity, refusal.KeyReused)
	if got := w.Header().Get("Idempotency-Key"); got != "POST-order-7" {
		t.Errorf("the refusal tells the key %q", got)
	}
	// A client that sends what was minted for it gets the same operation.
	wantAnswer(t, answer(h, post("POST-order-7", `{"order":7,"n":1}`)), http.StatusOK, `POST-order-7 {"order":7,"n":1}`, true)
	checkEffects(t, l, 2)
	if n := len(seen.results()); n != 5 {
		t.Errorf("%d decisions", n)
	}
}

func TestR76_AKeyThatWasSentIsNotMinted(t *testing.T) {
	t.Parallel()
	never := func(*http.Request, []byte) (string, error) {
		t.Error("minted")
		return "", nil
	}
	h, _, _ := minted(t, semel.Policy{Mint: never})
	wantAnswer(t, answer(h, post("mine", `{"order":7}`)), http.StatusOK, `mine {"order":7}`, false)
	wantProblem(t, answer(h, post(`mine"`, `{}`)), http.StatusBadRequest, refusal.KeyInvalid)

	field, _, _ := minted(t, semel.Policy{Mint: never, KeyField: "/key"})
	wantAnswer(t, answer(field, post("", `{"key":"mine"}`)), http.StatusOK, ` {"key":"mine"}`, false)
}

// A request for which no key can be made is refused, unless the route lets it pass; the reason is shown.
func TestR76_NothingToMintFrom(t *testing.T) {
	t.Parallel()
	none := func(*http.Request, []byte) (string, error) { return "", nil }
	for _, c := range []struct {
		name   string
		policy semel.Policy
		code   refusal.Code // "" means that it runs unprotected
		detail string
	}{
		{"none", semel.Policy{Mint: none}, refusal.KeyMissing, "send the header Idempotency-Key"},
		{"none, optional", semel.Policy{Mint: none, KeyOptional: true}, "", ""},
		{"an error", semel.Policy{Mint: orderKey}, refusal.KeyInvalid, "the body names no order"},
		{"an error, optional", semel.Policy{Mint: orderKey, KeyOptional: true}, refusal.KeyInvalid, "the body names no order"},
		{"not a key", semel.Policy{Mint: func(*http.Request, []byte) (string, error) { return "secret, card", nil }}, refusal.KeyInvalid, "the one made is not valid"},
		{"too long", semel.Policy{Mint: func(*http.Request, []byte) (string, error) { return strings.Repeat("x", 256), nil }}, refusal.KeyInvalid, "the one made is not valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, l, seen := minted(t, c.policy)
			for range 2 {
				w := answer(h, post("", `{"n":1}`))
				if c.code == "" {
					wantAnswer(t, w, http.StatusOK, ` {"n":1}`, false)
				} else {
					wantProblem(t, w, http.StatusBadRequest, c.code)
					if !strings.Contains(w.Body.String(), c.detail) || strings.Contains(w.Body.String(), "secret") {
						t.Errorf("told %s", w.Body)
					}
				}
				if got := w.Header()["Idempotency-Key"]; got != nil {
					t.Errorf("the answer tells the key %q", got)
				}
			}
			checkEffects(t, l, map[bool]int{true: 2, false: 0}[c.code == ""])
			want := event.Refused
			if c.code == "" {
				want = event.Unkeyed
			}
			if got := seen.results(); len(got) != 2 || got[0] != want {
				t.Errorf("decisions %v, want %v", got, want)
			}
		})
	}
}

// The rules for clients' keys are not for those that are made; its first header is where they come from.
func TestR76_AMintedKeyComesInTheFirstHeader(t *testing.T) {
	t.Parallel()
	h, _, _ := minted(t, semel.Policy{
		Mint: orderKey, KeyHeaders: []string{"X-Request-Key", "Idempotency-Key"},
		KeyFormat: semel.KeyFormat{UUID: semel.UUIDv4, Strict: true},
	})
	w := answer(h, post("", `{"order":7}`))
	wantAnswer(t, w, http.StatusOK, ` {"order":7}`, false)
	if got := w.Header(); got.Get("X-Request-Key") != "POST-order-7" || got["Idempotency-Key"] != nil {
		t.Errorf("headers %v", got)
	}
	wantProblem(t, answer(h, post("POST-order-7", `{"order":7}`)), http.StatusBadRequest, refusal.KeyInvalid)
}

// A key is made of the decoded body, or without it where that is kept in a file.
func TestR76_WhatAKeyIsMadeFrom(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	see := func(r *http.Request, body []byte) (string, error) {
		seen <- string(body)
		if body == nil {
			return r.URL.Path[1:], nil
		}
		return "whole", nil
	}
	h, _, _ := minted(t, semel.Policy{Mint: see, SpoolRequestAbove: 100, MaxRequestBody: 1000})
	for _, c := range []struct {
		name, body, coding, plain, key string
	}{
		{"plain", `{"order":7}`, "", `{"order":7}`, "whole"},
		{"packed", packedText(t, `{"order":7,"n":1}`), "gzip", `{"order":7,"n":1}`, "whole"},
		{"kept in a file", `"` + strings.Repeat("x", 200) + `"`, "", "", "payments"},
	} {
		r := post("", c.body)
		if c.coding != "" {
			r.Header.Set("Content-Encoding", c.coding)
		}
		r.Header.Set("X-Principal", c.name)
		w := answer(h, r)
		wantAnswer(t, w, http.StatusOK, c.key+" "+c.body, false)
		if got := <-seen; got != c.plain {
			t.Errorf("%s: made from %q, want %q", c.name, got, c.plain)
		}
	}
	wantProblem(t, answer(h, post("", `"`+strings.Repeat("x", 2000)+`"`)), http.StatusRequestEntityTooLarge, refusal.BodyTooLarge)
}

// A time window in the key makes the same fields another operation later.
func TestR76_AWindowInTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		window := func(*http.Request, []byte) (string, error) {
			return "order-7-" + strconv.FormatInt(time.Now().Unix()/60, 10), nil
		}
		h, l, _ := minted(t, semel.Policy{Mint: window})
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		for _, replay := range []bool{false, true} {
			if w := answer(h, post("", `{}`)); replayed(w) != replay {
				t.Errorf("answered %q, replayed %v", w.Body, replayed(w))
			}
			time.Sleep(59 * time.Second)
		}
		if w := answer(h, post("", `{}`)); replayed(w) {
			t.Errorf("after the window: %q", w.Body)
		}
		checkEffects(t, l, 2)
	})
}

// A minted key is a key: of its principal, and not for early data.
func TestR76_R10_R58_AMintedKeyIsAKey(t *testing.T) {
	t.Parallel()
	h, l, _ := minted(t, semel.Policy{Mint: orderKey})
	for _, who := range []string{"alice", "bob"} {
		wantAnswer(t, answer(h, post("", `{"order":7}`, "X-Principal", who)), http.StatusOK, `POST-order-7 {"order":7}`, false)
	}
	wantProblem(t, answer(h, post("", `{"order":9}`, "Early-Data", "1")), http.StatusTooEarly, refusal.EarlyData)
	checkEffects(t, l, 2)
}

// Observed, the handler runs as without a guard; what would have become of its minted key is reported.
func TestR76_R92_MintingIsObserved(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	g, seen := newGuard(t, nil, semel.Policy{Mint: orderKey, ObserveOnly: true})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.add()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Idempotency-Key") != "" {
			t.Errorf("key %q, %v", r.Header.Get("Idempotency-Key"), err)
		}
		w.Write(body)
	}))
	for range 2 {
		w := answer(h, post("", `{"order":7}`))
		wantAnswer(t, w, http.StatusOK, `{"order":7}`, false)
		if got := w.Header()["Idempotency-Key"]; got != nil {
			t.Errorf("the answer tells the key %q", got)
		}
		drained(t, g)
	}
	wantAnswer(t, answer(h, post("", `{"n":1}`)), http.StatusOK, `{"n":1}`, false)
	checkEffects(t, l, 3)
	want := []event.Result{event.Executed, event.Replayed, event.Refused}
	if got := seen.results(); len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("decisions %v, want %v", got, want)
	}
}

// A function that throws leaves no file behind, and nothing was run.
func TestR76_MintThrows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &ledger{}
	g, _ := newGuardWith(t, nil, semel.Options{TempDir: dir, Policy: semel.Policy{
		SpoolRequestAbove: 100,
		Mint:              func(*http.Request, []byte) (string, error) { panic("no order") },
	}})
	if got := thrownBy(func() { answer(g.Wrap(http.HandlerFunc(l.pay)), post("", strings.Repeat("x", 500))) }); got != "no order" {
		t.Errorf("threw %q", got)
	}
	if n := openFiles(t, dir); n != 0 {
		t.Errorf("%d files left", n)
	}
	checkEffects(t, l, 0)
	drained(t, g)
}
