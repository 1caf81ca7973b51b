package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/cmd/internal/demo"
	"github.com/semelhq/semel/internal/proof"
)

// output is where a command prints, also while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err output
	m := Main{Stdout: &out, Stderr: &err}
	status = m.Run(t.Context(), args)
	return status, out.String(), setBack.ReplaceAllString(err.String(), "")
}

// setBack is what a store says that finds the machine's clock set back: the machine does that, and not the command.
var setBack = regexp.MustCompile(`(?m)^.*the machine's clock is behind the times in the database.*\n`)

func TestWrongFlagsAreUsageErrors(t *testing.T) {
	t.Parallel()
	valid := []string{"gateway", "--upstream", "http://127.0.0.1:1", "--scope", "single"}
	for _, c := range []struct {
		args []string
		says []string
		help string
	}{
		{nil, []string{"gateway", "demo"}, "semel --help"},
		{[]string{"proxy"}, []string{"proxy"}, "semel --help"},
		{[]string{"--unknown"}, []string{"unknown flag --unknown"}, "semel --help"},
		{[]string{"gateway"}, []string{"--upstream=URL", "--scope=header:NAME|single"}, "semel gateway --help"},
		{[]string{"gateway", "--scope", "single"}, []string{"--upstream=URL"}, "semel gateway --help"},
		{append(valid, "--colour"), []string{"unknown flag --colour"}, "semel gateway --help"},
		{append(valid, "extra"), []string{"unexpected argument extra"}, "semel gateway --help"},
		{append(valid, "--lease", "30"), []string{"--lease"}, "semel gateway --help"},
		{append(valid, "--lease=-1s"), []string{"lease is negative"}, "semel gateway --help"},
		{append(valid, "--lease", "1ms"), []string{"lease is 1ms, want at least 3ms"}, "semel gateway --help"},
		{append(valid, "--retention", "10m"), []string{"retention is 10m0s, want at least deadline + lease, which is 15m0s + 30s"}, "semel gateway --help"},
		{append(valid, "--deadline", "25h"), []string{"retention is 24h0m0s"}, "semel gateway --help"},
		{append(valid, "--on-lost", "retry"), []string{"--on-lost", "hold"}, "semel gateway --help"},
		{append(valid, "--on-error", "maybe"), []string{"--on-error", "keep"}, "semel gateway --help"},
		{append(valid, "--log-format", "xml"), []string{"--log-format"}, "semel gateway --help"},
		{append(valid, "--log-level", "all"), []string{"--log-level"}, "semel gateway --help"},
		{append(valid, "--listen", "8080"), []string{`listen address "8080" is not host:port`}, "semel gateway --help"},
		{append(valid, "--admin", "here"), []string{`admin address "here" is not host:port`}, "semel gateway --help"},
		{append(valid, "--trust-proxy", "10.0.0.0/99"), []string{`trusted proxy "10.0.0.0/99"`}, "semel gateway --help"},
		{append(valid, "--store", "mysql://127.0.0.1"), []string{"unknown kind; there are memory://, sqlite://FILE, postgres://"}, "semel gateway --help"},
		{append(valid, "--upstream", "payments"), []string{"want http:// or https:// in front"}, "semel gateway --help"},
		{append(valid, "--upstream", "ftp://x"), []string{"http:// or https://"}, "semel gateway --help"},
		{append(valid, "--scope", "X-Account"), []string{"want header:NAME"}, "semel gateway --help"},
		{append(valid, "--scope", "header:X-Account", "--listen", ":8080"), []string{"whose X-Account counts must be said", "--trust-proxy", "which :8080 is not"}, "semel gateway --help"},
		{append(valid, "--scope", "header:X Y"), []string{`"X Y" is not a header name`}, "semel gateway --help"},
		{append(valid, "--scope", "no", "--store", "no", "--trust-proxy", "no"), []string{"scope", "trusted proxy"}, "semel gateway --help"},
		{[]string{"demo", "--twice"}, []string{"unknown flag --twice"}, "semel demo --help"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := run(t, c.args...)
			if status != 2 {
				t.Errorf("exit status %d, want 2", status)
			}
			for _, want := range append(c.says, `Run "`+c.help+`"`) {
				if !strings.Contains(stderr, want) {
					t.Errorf("error does not say %q:\n%s", want, stderr)
				}
			}
			if stdout != "" {
				t.Errorf("standard output has %q", stdout)
			}
		})
	}
}

func TestAnAddressInUseIsAFailure(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, args := range [][]string{
		{"gateway", "--upstream", "http://127.0.0.1:1", "--scope", "single", "--store", "memory://", "--listen", l.Addr().String()},
		{"gateway", "--upstream", "http://127.0.0.1:1", "--scope", "single", "--store", "memory://", "--listen", "127.0.0.1:0", "--admin", l.Addr().String()},
		{"demo", "--once", "--listen", l.Addr().String()},
	} {
		status, _, stderr := run(t, args...)
		if status != 1 || !strings.Contains(stderr, "address already in use") {
			t.Errorf("%v: exit status %d, want 1 for an address in use:\n%s", args, status, stderr)
		}
	}
}

func TestHelpIsComplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, says []string
	}{
		{[]string{"--help"}, []string{"gateway", "demo", "--version"}},
		{[]string{"gateway", "--help"}, []string{
			"Examples:", "semel gateway --upstream http://127.0.0.1:9000 --scope single",
			"--listen", "--admin", "--upstream", "--store", "--scope", "--trust-proxy", "--require-key", "--lease", "--retention", "--wait",
			"--client-timeout", "--deadline", "--on-lost", "--on-error", "--shutdown-timeout", "--log-format", "--log-level", "default 15m",
			"--config", "--check", "--tls-cert", "--tls-key", "--identity-secret-file", "--derivation-secret-file", "--unkeyed", "SIGHUP",
		}},
		{[]string{"demo", "--help"}, []string{"Examples:", "semel demo --once", "--listen"}},
	} {
		status, stdout, stderr := run(t, c.args...)
		if status != 0 || stderr != "" {
			t.Errorf("%v: exit status %d, standard error %q", c.args, status, stderr)
		}
		for _, want := range c.says {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v does not say %q:\n%s", c.args, want, stdout)
			}
		}
		for line := range strings.SplitSeq(stdout, "\n") {
			if len([]rune(line)) > 100 {
				t.Errorf("%v: a line of %d columns: %s", c.args, len([]rune(line)), line)
			}
		}
	}
}

func TestTheVersionNamesTheProgramAndItsGo(t *testing.T) {
	t.Parallel()
	status, stdout, _ := run(t, "--version")
	if status != 0 || !strings.HasPrefix(stdout, "semel ") || !strings.Contains(stdout, " go1.") {
		t.Errorf("exit status %d, %q", status, stdout)
	}
}

func TestDemoOnceSucceeds(t *testing.T) {
	t.Parallel()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	err = proof.Steady(func() (err error) {
		out, err = exec.Command(program, "demo", "--once").CombinedOutput()
		return err
	})
	if err != nil || !strings.Contains(string(out), "14 of 14 scenes came out right") {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "\x1b") {
		t.Error("there are colours in what is not a terminal")
	}
}

func TestDemoFailsWithoutTheGuard(t *testing.T) {
	t.Parallel()
	var stdout, stderr output
	m := Main{Stdout: &stdout, Stderr: &stderr, Demo: demo.Config{
		Front: func(_, service *url.URL) http.Handler {
			p := httputil.NewSingleHostReverseProxy(service)
			p.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			return p
		},
	}}
	if status := m.Run(t.Context(), []string{"demo", "--once"}); status != 1 {
		t.Errorf("exit status %d, want 1:\n%s", status, stdout.String())
	}
	_, kept, _ := strings.Cut(stdout.String(), "stay in ")
	if kept = strings.TrimSpace(kept); kept == "" {
		t.Error("the ledger of a failed demo is not kept, or it isn't said where")
	} else if err := os.RemoveAll(kept); err != nil {
		t.Error(err)
	}
	if !strings.Contains(stderr.String(), "not every step came out right: scene 2 (The same request again)") {
		t.Errorf("the error does not say which: %s", stderr.String())
	}
	if !strings.Contains(stdout.String(), "1 of 9 scenes came out right") {
		t.Errorf("without the guard only the first scene can come out right:\n%s", stdout.String())
	}
}

func TestAGatewayWithAllItsFlagsServes(t *testing.T) {
	t.Parallel()
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Account-Seen", r.Header.Get("X-Account"))
		w.WriteHeader(http.StatusCreated)
	}))
	defer u.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr output
	m := Main{Stdout: &stdout, Stderr: &stderr}
	exited := make(chan int, 1)
	go func() {
		exited <- m.Run(ctx, []string{
			"gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", u.URL, "--store", "memory://",
			"--scope", "header:X-Account", "--trust-proxy", "127.0.0.0/8", "--trust-proxy", "::1", "--require-key", "--unkeyed", "refuse", "--lease", "5s",
			"--retention", "1h", "--wait", "1s", "--client-timeout", "1m", "--deadline", "1m", "--on-lost", "rerun", "--on-error", "keep",
			"--upstream-idle", "2s", "--shutdown-timeout", "1m", "--log-format", "json", "--log-level", "debug",
		})
	}()
	address, admin := addresses(t, &stderr)
	req, err := http.NewRequest("POST", "http://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Account", "acme")
	req.Header.Set("Idempotency-Key", "k")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 201 || res.Header.Get("X-Account-Seen") != "acme" {
		t.Errorf("status %d, scope seen %q", res.StatusCode, res.Header.Get("X-Account-Seen"))
	}
	if res, err = http.Get("http://" + admin + "/readyz"); err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("/readyz is %d", res.StatusCode)
	}
	cancel()
	if status := <-exited; status != 0 {
		t.Errorf("exit status %d\n%s", status, stderr.String())
	}
	for _, want := range []string{`"on_lost":"rerun"`, `"lease":"5s"`, `"retention":"1h0m0s"`, `"deadline":"1m0s"`, `"scope":"header:X-Account"`} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, stderr.String())
		}
	}
}
