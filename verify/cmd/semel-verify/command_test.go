package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	p := program{strings.NewReader(""), &out, &err}
	status = p.run(t.Context(), args)
	return status, out.String(), err.String()
}

// payments is an API that makes a payment each time that it is asked.
func payments() http.Handler {
	var mu sync.Mutex
	made := 0
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		made++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%d}`, made)
	})
}

func TestR89_VerifyOfAnUnprotectedAPI(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(payments())
	defer api.Close()
	status, stdout, stderr := run(t, "--target", api.URL+"/payments", "--body", `{"order":"${uuid}","amount":1}`, "--later", "1ms")
	if status != exitFailed {
		t.Errorf("status %d, want %d\n%s", status, exitFailed, stderr)
	}
	for _, want := range []string{"violated", "R-26", "2 effects", "POST /payments, key"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output does not say %q:\n%s", want, stdout)
		}
	}
	if !strings.Contains(stderr, "does not keep its promises") {
		t.Errorf("stderr %q", stderr)
	}
}

func TestR89_R89a_VerifyOfAProtectedAPI(t *testing.T) {
	t.Parallel()
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(guard.Wrap(payments()))
	defer api.Close()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	status, stdout, stderr := run(t, "--target", api.URL+"/payments", "--body", `{"order":"${uuid}","amount":1}`, "--later", "1ms",
		"--rate", "100", "--duration", "1s", "--min-success", "99%", "--max-p99", "1m", "--seed", "7",
		"--json", file("a.json"), "--junit", file("a.xml"), "--report", file("a.html"), "--prometheus", file("a.prom"))
	if status != exitOK {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	for name, whole := range map[string]func([]byte) error{
		"a.json": func(b []byte) error { return json.Unmarshal(b, new(map[string]any)) },
		"a.xml":  func(b []byte) error { return xml.Unmarshal(b, new(struct{ XMLName xml.Name })) },
		"a.html": func(b []byte) error { return says(b, ", semel-verify</title>") },
		"a.prom": func(b []byte) error { return says(b, "semel_verify_") },
	} {
		text, err := os.ReadFile(file(name))
		if err == nil {
			err = whole(text)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !strings.Contains(stdout, "all safe") || !strings.Contains(stdout, "--min-success") {
		t.Errorf("output:\n%s", stdout)
	}
	// A bound that can't hold fails the run; JSON in place of the table is nothing but JSON.
	status, stdout, _ = run(t, "--target", api.URL+"/payments", "--body", `{"order":"${uuid}","amount":1}`, "--only", "repeat",
		"--rate", "50", "--duration", "200ms", "--max-p99", "1ns", "--json", "-")
	if status != exitFailed || json.Unmarshal([]byte(stdout), new(map[string]any)) != nil {
		t.Errorf("status %d, output %.200s", status, stdout)
	}
}

func says(b []byte, want string) error {
	if !strings.Contains(string(b), want) {
		return fmt.Errorf("it does not say %q", want)
	}
	return nil
}

func TestWrongUseOfVerifyIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("target: http://127.0.0.1:1\nretires: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--target or --scenario is needed"},
		{[]string{"--target", "localhost"}, `"localhost" is not an http:// or https:// URL`},
		{[]string{"--target", "http://127.0.0.1:1", "--profile", "soap"}, `"soap" is none of draft07, stripe`},
		{[]string{"--target", "http://127.0.0.1:1", "--header", "no colon"}, `"no colon" has no colon`},
		{[]string{"--target", "http://127.0.0.1:1", "--body", "${order}"}, "${order} is not a generated field"},
		{[]string{"--target", "http://127.0.0.1:1", "--body", "@" + filepath.Join(dir, "none")}, "no such file"},
		{[]string{"--target", "http://127.0.0.1:1", "--faults", "20%"}, "--faults needs a load"},
		{[]string{"--target", "http://127.0.0.1:1", "--faults", "120%"}, `"120%" is not a part such as 20% or 0.2`},
		{[]string{"--target", "http://127.0.0.1:1", "--min-success", "99.9"}, `"99.9" is not a part`},
		{[]string{"--target", "http://127.0.0.1:1", "--max-p99", "1s"}, "bound a load"},
		{[]string{"--target", "http://127.0.0.1:1", "--rate=-1"}, "must be above zero"},
		{[]string{"--target", "http://127.0.0.1:1", "--lease", "soon"}, `"soon" is not a time`},
		{[]string{"--target", "http://127.0.0.1:1", "--only", "everything"}, `there is no check "everything"; there are repeat, concurrent`},
		{[]string{"--scenario", bad}, "[2:1] unknown field"},
		{[]string{"--scenario", filepath.Join(dir, "none.yaml")}, "no such file"},
	} {
		status, stdout, stderr := run(t, c.args...)
		if status != exitUsage || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%q: status %d, stderr %q, want %q", c.args, status, stderr, c.want)
		}
	}
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	uncounted := filepath.Join(dir, "uncounted.yaml")
	if err := os.WriteFile(uncounted, []byte("target: "+api.URL+"\neffects: {url: /count, pointer: /n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := run(t, "--scenario", uncounted); status != exitUsage || !strings.Contains(stderr, "count effects: GET /count: status 404") {
		t.Errorf("effects that can't be counted: status %d, stderr %q", status, stderr)
	}
	if status, _, stderr := run(t, "--target", "http://127.0.0.1:1/"); status != exitFailed || !strings.Contains(stderr, "can't be asked") {
		t.Errorf("nobody there: status %d, stderr %q", status, stderr)
	}
	if _, stdout, _ := run(t, "--help"); strings.Contains(stdout, "$$") || !strings.Contains(stdout, `"order":"${uuid}"`) {
		t.Errorf("the help does not show how to write a generated field:\n%s", stdout)
	}
	if status, stdout, _ := run(t, "--list"); status != exitOK || !strings.Contains(stdout, "crash-after-effect") {
		t.Errorf("list: status %d, %q", status, stdout)
	}
}
