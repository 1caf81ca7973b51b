//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// The README's quick start, in front of a service that authenticates its callers.
func TestAttack01_TheQuickStartGivesAnswersToTheirCallersOnly(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var effects atomic.Int32
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !known {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		effects.Add(1)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "the secret of "+who)
	}))
	t.Cleanup(u.Close)
	log := &output{}
	cmd := exec.Command(path, "gateway", "--upstream", u.URL, "--scope", "single",
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--operations", "/operations", "--log-format", "json")
	cmd.Stderr, cmd.Dir = log, t.TempDir() // where it makes semel.db
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it has ended, mostly
	})
	address, _ := addresses(t, log)
	ask := func(method, path, token string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "order-42")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	if status, body := ask("POST", "/payments", "alice"); status != 201 || body != "the secret of alice" {
		t.Fatalf("the first request: %d %s", status, body)
	}
	for _, token := range []string{"", "bob"} {
		for _, q := range [][2]string{{"POST", "/payments"}, {"GET", "/operations"}} {
			if status, body := ask(q[0], q[1], token); status != 403 || strings.Contains(body, "alice") {
				t.Errorf("%s %s by %q: %d %s", q[0], q[1], token, status, body)
			}
		}
	}
	if status, body := ask("POST", "/payments", "alice"); status != 201 || body != "the secret of alice" || effects.Load() != 1 {
		t.Errorf("her repeat: %d %s, %d effects", status, body, effects.Load())
	}
	if !strings.Contains(log.String(), "scope single: all callers are one") {
		t.Errorf("no warning at the start:\n%s", log)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the gateway ended with %v\n%s", err, log)
	}
	list := exec.Command(path, "keys", "find", "order-42", "--single", "--json", "--store", "sqlite://semel.db")
	list.Dir = cmd.Dir
	shown, err := list.CombinedOutput()
	if err != nil || !strings.Contains(string(shown), `"status": 201`) || strings.Contains(string(shown), ":credentials") {
		t.Errorf("what an operator is shown (%v):\n%s", err, shown)
	}
}
