package verify_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/verify"
)

// payments makes a payment each time that it is asked.
func payments() http.Handler {
	var made atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%d}`, made.Add(1))
	})
}

// newService returns them behind a guard.
func newService() (http.Handler, error) {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{})
	if err != nil {
		return nil, err
	}
	return guard.Wrap(payments()), nil
}

// the test that docs/verify.md shows.
func TestPaymentsTakeEffectOnce(t *testing.T) {
	service, err := newService()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(service)
	defer server.Close()
	report, err := verify.Run(t.Context(), &verify.Scenario{
		Target:  server.URL,
		Request: verify.Template{Path: "/payments", Body: new(`{"order":"${uuid}","amount":100}`)},
		Later:   verify.Duration(time.Second), // how long the check repeat-later waits
	}, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Violated() {
		report.Print(t.Output(), false)
		t.Fail()
	}
}

//
func TestAServiceWithoutAGuardIsViolated(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(payments())
	defer server.Close()
	report, err := verify.Run(t.Context(), &verify.Scenario{
		Target:  server.URL,
		Request: verify.Template{Path: "/payments", Body: new(`{"order":"${uuid}","amount":100}`)},
	}, verify.Options{Only: []string{"repeat"}})
	if err != nil {
		t.Fatal(err)
	}
	if !report.Violated() || len(report.Checks) != 1 || len(report.Checks[0].Findings) == 0 {
		t.Errorf("two payments under one key were not found: %+v", report.Checks)
	}
}

func TestRunRefusesAScenarioThatMakesNoSense(t *testing.T) {
	t.Parallel()
	_, err := verify.Run(t.Context(), &verify.Scenario{Target: "localhost"}, verify.Options{})
	if !errors.As(err, new(verify.UsageError)) || !strings.Contains(err.Error(), "not an http:// or https:// URL") {
		t.Errorf("error %v, want a UsageError", err)
	}
}
