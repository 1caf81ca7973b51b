package verify_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/verify"
)

// a guarded PUT is checked as a POST is, but that it need not have a key.
func TestField16_KeyedPutIsVerified(t *testing.T) {
	t.Parallel()
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{IdentitySecret: []byte("0123456789abcdef")})
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	s := httptest.NewServer(guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":"a-%d"}`, n.Add(1))
	})))
	t.Cleanup(s.Close)
	text := "target: " + s.URL + "\nrequest:\n  method: PUT\n  path: /accounts/7\n  headers: {Content-Type: application/json}\n  body: '{\"order\":\"${uuid}\"}'\n"
	scenario, err := verify.ReadScenario([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := scenario.Complete(); err != nil {
		t.Fatal(err)
	}
	report, err := verify.Run(t.Context(), scenario, verify.Options{Only: []string{"key-missing", "repeat", "key-malformed", "mismatch-body"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Checks {
		switch {
		case r.Name == "key-missing" && (r.Status != verify.Skipped || !strings.Contains(r.Why, "R-8")):
			t.Errorf("%s: %s %s", r.Name, r.Status, r.Why)
		case r.Name != "key-missing" && r.Status != verify.Passed:
			t.Errorf("%s: %s %s %v", r.Name, r.Status, r.Why, r.Findings)
		}
	}
	if len(report.Checks) != 4 {
		t.Errorf("%d checks, want 4", len(report.Checks))
	}
}
