package semel_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// What another guard refuses is never the outcome: it has the key, and alone knows what becomes of it.
func TestR42_Field03_AnothersRefusalIsNotKept(t *testing.T) {
	t.Parallel()
	const kept, released = "kept", "released"
	for _, c := range []struct {
		status int
		header []string // name, value
		policy semel.Policy
		want   string
	}{
		{409, []string{"Idempotency-Code", string(refusal.InProgress)}, semel.Policy{}, released},
		{422, []string{"Idempotency-Code", string(refusal.KeyReused)}, semel.Policy{}, released},
		{400, []string{"Idempotency-Code", string(refusal.KeyMissing)}, semel.Policy{}, released},
		{409, []string{"Idempotency-Code", string(refusal.OutcomeUnknown)}, semel.Policy{}, released},
		{503, []string{"Idempotency-Code", string(refusal.OutcomePending)}, semel.Policy{}, released},
		{500, []string{"Idempotency-Code", string(refusal.NoAnswer)}, semel.Policy{}, released},
		{500, []string{"Idempotency-Code", string(refusal.NoAnswer)}, semel.Policy{OnLost: semel.Rerun}, released},
		{200, []string{"Idempotency-Code", string(refusal.InProgress)}, semel.Policy{}, released}, // an envelope that knows 200 only
		{409, []string{"Idempotency-Code", "IDEMPOTENCY_OF_A_LATER_VERSION"}, semel.Policy{}, released},
		{409, []string{"Idempotency-Code", string(refusal.InProgress)}, semel.Policy{Stream: true}, released},
		{409, []string{"Idempotency-Code", "OUT_OF_STOCK"}, semel.Policy{}, kept},
		{409, nil, semel.Policy{}, kept},
		{422, nil, semel.Policy{}, kept},

		{409, []string{"Retry-After", "3"}, semel.Policy{}, released},
		{400, []string{"Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"}, semel.Policy{}, released},
		{409, []string{"Retry-After", "3"}, semel.Policy{Stream: true}, released},
		{202, []string{"Retry-After", "3"}, semel.Policy{}, kept}, // the work has begun
		{301, []string{"Retry-After", "3"}, semel.Policy{}, kept},
		{500, []string{"Retry-After", "3"}, semel.Policy{}, kept}, // OnError has the say
		{409, []string{"Retry-After", "3"}, semel.Policy{Decide: func(int, http.Header, []byte) semel.Verdict { return semel.VerdictKeep }}, kept},
	} {
		t.Run(fmt.Sprint(c.status, c.header, c.policy.OnLost, c.policy.Stream, c.policy.Decide != nil), func(t *testing.T) {
			t.Parallel()
			l := &ledger{}
			g, seen := newGuard(t, nil, c.policy)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if l.add() > 1 {
					w.WriteHeader(http.StatusCreated)
					return
				}
				for i := 0; i+1 < len(c.header); i += 2 {
					w.Header().Set(c.header[i], c.header[i+1])
				}
				w.WriteHeader(c.status)
				io.WriteString(w, "refused")
			}))
			first := answer(h, post("k", "{}"))
			if first.Code != c.status || first.Body.String() != "refused" {
				t.Fatalf("the first answer is %d %q", first.Code, first.Body)
			}
			for i := 0; i+1 < len(c.header); i += 2 {
				if got := first.Header().Get(c.header[i]); got != c.header[i+1] {
					t.Errorf("the first answer has %s: %q", c.header[i], got)
				}
			}
			again := answer(h, post("k", "{}"))
			got := kept
			if again.Code == http.StatusCreated && l.count() == 2 {
				got = released
			}
			if got != c.want || got == kept && (l.count() != 1 || again.Header().Get("Idempotent-Replayed") != "true") {
				t.Errorf("it was %s, want %s: then %d %v, %d runs", got, c.want, again.Code, again.Header(), l.count())
			}
			want := event.Executed
			if len(c.header) > 0 && c.header[0] == "Idempotency-Code" && c.want == released && !strings.HasSuffix(c.header[1], "LATER_VERSION") {
				want = event.Refused
			}
			if got := seen.results()[0]; got != want {
				t.Errorf("the first request counts as %s, want %s", got, want)
			}
		})
	}
}

// A guard within a guard: the outer one has claimed the operation, and the inner one must not wait for it.
func TestR42_Field03_AGuardPassesItsOwnOperation(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for _, c := range []struct {
		name  string
		inner func(outer *semel.Guard) *semel.Guard
	}{
		{"the same guard", func(g *semel.Guard) *semel.Guard { return g }},
		{"another policy", func(g *semel.Guard) *semel.Guard {
			return g.Route(semel.Policy{KeyHeaders: []string{"X-Key", "Idempotency-Key"}})
		}},
		{"another guard on the store", func(*semel.Guard) *semel.Guard { g, _ := newGuard(t, s, semel.Policy{}); return g }},
		{"one that observes", func(g *semel.Guard) *semel.Guard { return g.Route(semel.Policy{ObserveOnly: true}) }},
		{"one that waits", func(g *semel.Guard) *semel.Guard { return g.Route(semel.Policy{Wait: time.Hour}) }},
		{"one that reads the body", func(g *semel.Guard) *semel.Guard { return g.Route(semel.Policy{KeyField: "/key"}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &ledger{}
			outer, seen := newGuard(t, s, semel.Policy{})
			h := outer.Wrap(c.inner(outer).Wrap(http.HandlerFunc(l.pay)))
			for _, result := range []event.Result{event.Executed, event.Replayed} {
				w := answer(h, post(strings.ReplaceAll(c.name, " ", "-"), "{}"))
				if w.Code != 201 || w.Body.String() != "payment 1" || l.count() != 1 {
					t.Errorf("%d %s, %d executions", w.Code, w.Body, l.count())
				}
				if got := seen.results(); got[len(got)-1] != result {
					t.Errorf("it counts as %v, want %s at the end", got, result)
				}
			}
			if got := seen.results(); len(got) != 2 {
				t.Errorf("%d decisions were told of 2 requests: %v", len(got), got)
			}
		})
	}
}

func TestField03_WhatTheInnerGuardDoesNotOwnIsItsOwnOperation(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	first, second := memstore.New(), memstore.New()
	outer, _ := newGuard(t, first, semel.Policy{})
	other, _ := newGuard(t, second, semel.Policy{})
	for _, inner := range []*semel.Guard{other, outer.Route(semel.Policy{PerOperation: true})} {
		before := l.count()
		key := fmt.Sprint("k", before)
		h := outer.Wrap(inner.Wrap(http.HandlerFunc(l.pay)))
		for range 2 {
			if w := answer(h, post(key, "{}")); w.Code != 201 || l.count() != before+1 {
				t.Errorf("%d %s, %d executions", w.Code, w.Body, l.count()-before)
			}
		}
		if w := answer(inner.Wrap(http.HandlerFunc(l.pay)), post(key, "{}")); w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("the inner guard has no record: %d %v", w.Code, w.Header())
		}
	}
}

// Two layers: while a request that went past the outer guard runs, the outer one is told so, and keeps nothing of it.
func TestField03_TheOuterGuardGetsTheOutcomeOfTheInnerOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		outer, _ := newGuard(t, memstore.New(), semel.Policy{})
		inner, _ := newGuard(t, memstore.New(), semel.Policy{})
		service := inner.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Second)
			l.pay(w, r)
		}))
		h := outer.Wrap(service)
		go answer(service, post("k", "{}"))
		synctest.Wait()
		if w := answer(h, post("k", "{}")); w.Code != http.StatusConflict || w.Header().Get("Idempotency-Code") != string(refusal.InProgress) || w.Header().Get("Retry-After") == "" {
			t.Errorf("during the run: %d %v", w.Code, w.Header())
		}
		if w := answer(h, post("k", `{"other":1}`)); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("another request: %d %s", w.Code, w.Body)
		}
		time.Sleep(6 * time.Second)
		for range 2 {
			if w := answer(h, post("k", "{}")); w.Code != 201 || w.Body.String() != "payment 1" || w.Header().Get("Idempotent-Replayed") != "true" {
				t.Errorf("after it: %d %v", w.Code, w.Header())
			}
		}
		if l.count() != 1 {
			t.Errorf("%d executions", l.count())
		}
	})
}
