package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

func TestField15_UUIDKeysAreFoundInEitherCase(t *testing.T) {
	t.Parallel()
	const upper = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F"
	lower := strings.ToLower(upper)
	s := newShop(t, semel.Policy{KeyFormat: semel.KeyFormat{UUID: semel.UUIDAny}})
	s.runs = 1 // none is lost
	if w := s.pay("acme", upper); w.Code != http.StatusCreated {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, key := range []string{upper, lower, `"` + upper + `"`} {
		contains(t, s.must("find", key, "--scope", "acme"), s.id(lower))
	}

	// On a route for any key the same text is another operation's.
	exact := s.guard.Route(semel.Policy{}).Wrap(s.handler)
	r := httptest.NewRequest(http.MethodPost, "/other", strings.NewReader(`{}`))
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", upper)
	exact.ServeHTTP(httptest.NewRecorder(), r)
	for _, args := range [][]string{{"find", upper, "--scope", "acme"}, {"forget", "--key", upper, "--scope", "acme", "--reason", "-"}} {
		status, _, stderr := s.keys(args...)
		if status != 2 {
			t.Errorf("%v: exit status %d", args, status)
		}
		contains(t, stderr, s.id(upper), s.id(lower), "two operations")
	}
	contains(t, s.must("find", lower, "--scope", "acme"), s.id(lower))
	contains(t, s.must("forget", "--key", lower, "--scope", "acme", "--reason", "-", "--force"), s.id(lower))
}
