package tieredstore_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// send sends a keyed request, and fails unless the answer has the status, and the body if one is given.
func send(t testing.TB, h http.Handler, key, body string, status int, answer string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != status || answer != "" && w.Body.String() != answer {
		t.Errorf("key %s, body %s: %d %q, want %d %q", key, body, w.Code, w.Body, status, answer)
	}
}
