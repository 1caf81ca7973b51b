package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const configured = `listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstream: http://127.0.0.1:1
store: sqlite://none.db
scope: single
routes:
  - match: POST /payments
    unkeyed: refuse
    retention: 72h
    reconcile: /operations/{operation}
  - match: PUT /accounts/{id}
    methods: [PUT]
    on_lost: rerun
    retention: forever
    observe: true
`

func writeConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestR73_CheckSaysWhatTheRoutesAre(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "none.db")
	path := writeConfig(t, strings.Replace(configured, "none.db", store, 1))
	status, stdout, stderr := run(t, "gateway", "--config", path, "--check")
	want := `ok
ROUTE               PROTECTS                 WITHOUT KEY  LOST   LEASE  DEADLINE  RETENTION  SPECIAL
default             POST,PATCH,others keyed  pass         hold   30s    15m       24h
POST /payments      POST                     refuse       hold   30s    15m       72h        reconcile
PUT /accounts/{id}  PUT                      pass         rerun  30s    15m       forever    observes only
`
	if got := regexp.MustCompile(` +\n`).ReplaceAllString(stdout, "\n"); status != 0 || got != want {
		t.Errorf("exit status %d, standard output\n%s\nwant\n%s", status, got, want)
	}
	if n := strings.Count(stderr, "level=WARN"); n != 7 {
		t.Errorf("%d warnings, want of no identity secret, of single, of an answer that is found, of two routes that let requests pass, of one that observes and of case in paths:\n%s", n, stderr)
	}
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("checking has made the store: %v", err)
	}
}

func TestR73_CheckWorksForFlagsToo(t *testing.T) {
	t.Parallel()
	status, stdout, _ := run(t, "gateway", "--upstream", "http://127.0.0.1:1", "--scope", "single", "--store", "sqlite://none.db",
		"--unkeyed", "mint-random", "--retention", "48h", "--check")
	if status != 0 || !strings.HasPrefix(stdout, "ok\n") || !strings.Contains(stdout, "mint-random") || !strings.Contains(stdout, "48h") {
		t.Errorf("exit status %d, standard output\n%s", status, stdout)
	}
}

func TestR73_CheckReportsEveryMistake(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, configured+"  - match: POST /a\n    leese: 1s\n    lease: -1s\n    exclude: [a]\n")
	for _, args := range [][]string{{"--check"}, nil} {
		status, stdout, stderr := run(t, append([]string{"gateway", "--config", path}, args...)...)
		if status != 2 || stdout != "" {
			t.Errorf("%v: exit status %d, standard output %q", args, status, stdout)
		}
		for _, want := range []string{
			path + `:17:5: unknown setting "leese"`, "    17 |     leese: 1s\n       |     ^",
			path + ":18:12: lease is negative: -1s", path + `:19:15: exclude: JSON Pointer "a" does not begin with /`,
		} {
			if !strings.Contains(stderr, want) {
				t.Errorf("%v: the error does not say %q:\n%s", args, want, stderr)
			}
		}
	}
}

func TestR33_ThePathOfOperationsIsAFlag(t *testing.T) {
	t.Parallel()
	args := []string{"gateway", "--upstream", "http://127.0.0.1:9000", "--scope", "single", "--check", "--operations"}
	if status, stdout, stderr := run(t, append(args, "/operations")...); status != 0 {
		t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
	}
	if status, _, stderr := run(t, append(args, "/op/")...); status != 2 || !strings.Contains(stderr, `operations "/op/" is not a path such as /operations`) {
		t.Errorf("exit status %d, standard error %q", status, stderr)
	}
}

func TestAFileAndFlagsThatSayTheSameAreRefused(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, configured)
	status, _, stderr := run(t, "gateway", "--config", path, "--check", "--log-level", "warn", "--log-format", "json",
		"--lease", "30s", "--require-key", "--scope", "single", "--lease", "31s")
	if status != 2 || !strings.Contains(stderr, "leave out --lease, --require-key, --scope\n") {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
	if status, _, stderr = run(t, "gateway", "--config", path, "--check", "--log-level", "warn", "--log-format", "json"); status != 0 {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}

func TestWhatCantBeOpenedIsAFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--config", filepath.Join(dir, "none.yaml")}, 2, "read configuration: open"},
		{[]string{"--store", "sqlite://" + dir + "/none/x.db"}, 1, "none"},
		{[]string{"--store", "memory://", "--identity-secret-file", filepath.Join(dir, "none")}, 1, "read the identity secret"},
		{[]string{"--store", "memory://", "--derivation-secret-file", filepath.Join(dir, "none")}, 1, "read the derivation secret"},
		{[]string{"--store", "memory://", "--derivation-secret-file", short}, 2, "has 5 bytes, want at least 16"},
		{[]string{"--store", "memory://", "--tls-cert", short}, 2, "tls: there is a certificate but no key"},
		{[]string{"--store", "memory://", "--tls-cert", short, "--tls-key", short}, 2, "tls: load certificate"},
		{[]string{"--store", "memory://", "--require-key", "--unkeyed", "pass"}, 2, "--require-key contradicts --unkeyed pass"},
		{[]string{"--unkeyed", "mint"}, 2, "--unkeyed"},
	} {
		args := append([]string{"gateway"}, c.args...)
		if c.args[0] != "--config" {
			args = append(args, "--upstream", "http://127.0.0.1:1", "--scope", "single")
		}
		status, _, stderr := run(t, args...)
		if status != c.status || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit status %d, want %d with %q:\n%s", c.args, status, c.status, c.says, stderr)
		}
	}
}

func TestR15_AGatewayOnAFileReplaysAfterARestart(t *testing.T) {
	t.Parallel()
	executed := 0
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		executed++
		w.WriteHeader(http.StatusCreated)
	}))
	defer u.Close()
	db := filepath.Join(t.TempDir(), "semel.db")
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		var stderr output
		m := Main{Stdout: &output{}, Stderr: &stderr}
		exited := make(chan int, 1)
		go func() {
			exited <- m.Run(ctx, []string{
				"gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", u.URL, "--store", "sqlite://" + db,
				"--scope", "single", "--unkeyed", "refuse", "--log-format", "json",
			})
		}()
		address, _ := addresses(t, &stderr)
		req, err := http.NewRequest("POST", "http://"+address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 201 || (res.Header.Get("Idempotent-Replayed") == "true") != (i == 1) {
			t.Errorf("start %d: status %d, replayed %q", i, res.StatusCode, res.Header.Get("Idempotent-Replayed"))
		}
		cancel()
		if status := <-exited; status != 0 {
			t.Errorf("start %d: exit status %d:\n%s", i, status, stderr.String())
		}
	}
	if executed != 1 {
		t.Errorf("executed %d times, want once", executed)
	}
	if info, err := os.Stat(db + ".secret"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret's file: %v, %v", info, err)
	}
}

func TestField21_CheckWarnsOfWhatWouldMakeRepeatsRun(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, strings.Replace(configured, "scope: single", "scope: header:Authorization", 1)+
		"  - match: POST /orders\n    unkeyed: mint\n    mint: {fields: [/order_id, /sent_at]}\n")
	status, stdout, stderr := run(t, "gateway", "--config", path, "--check")
	if status != 0 || !strings.HasPrefix(stdout, "ok\n") {
		t.Errorf("exit status %d, standard output\n%s", status, stdout)
	}
	for _, want := range []string{"the scope is a credential", "field=/sent_at", "say exclude: [] if there are none"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no warning %q in\n%s", want, stderr)
		}
	}
}

func TestField21_FlagsTakeDaysAndAnUpstreamOfHostAndPort(t *testing.T) {
	t.Parallel()
	args := []string{"gateway", "--upstream", "127.0.0.1:9200", "--scope", "header:X-Tenant,X-User", "--store", "memory://", "--check"}
	if status, stdout, stderr := run(t, append(args, "--retention", "3d")...); status != 0 || !strings.Contains(stdout, " 72h") {
		t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
	}
	if status, _, stderr := run(t, append(args, "--retention", "3y")...); status != 2 || !strings.Contains(stderr, `"3y" is not a time such as 500ms, 30s, 24h or 3d`) {
		t.Errorf("exit status %d\n%s", status, stderr)
	}
}
