//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// addresses waits for the log line of a gateway that listens, in JSON.
func addresses(t *testing.T, log *output) (listen, admin string) {
	t.Helper()
	eventually(t, "the gateway listens", func() bool {
		for line := range strings.SplitSeq(log.String(), "\n") {
			var l struct{ Msg, Listen, Admin string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "gateway listening" {
				listen, admin = l.Listen, l.Admin
				return true
			}
		}
		return false
	})
	return listen, admin
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		case <-tick.C:
		}
	}
}

// binary builds the program once for all tests of this file.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "semel-test-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "semel")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", &buildError{string(out), err}
	}
	return path, nil
})

type buildError struct {
	output string
	err    error
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.output }

func TestMain(m *testing.M) {
	status := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path)) //nolint:errcheck // a temporary folder
	}
	os.Exit(status)
}

// A process is a gateway in a process of its own with one request under way.
type process struct {
	cmd      *exec.Cmd
	log      *output
	address  string
	admin    string
	release  func() // lets the upstream answer
	answered chan result
}

type result struct {
	status int
	body   string
	err    error
}

func startProcess(t *testing.T) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	began, release := make(chan struct{}), make(chan struct{})
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-release
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "paid")
	}))
	p := &process{log: &output{}, release: sync.OnceFunc(func() { close(release) }), answered: make(chan result, 1)}
	p.cmd = exec.Command(path, "gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", u.URL,
		"--scope", "single", "--store", "memory://", "--log-format", "json")
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.release()
		p.cmd.Process.Kill() //nolint:errcheck // it has ended, mostly
		u.Close()
	})
	p.address, p.admin = addresses(t, p.log)
	req, err := http.NewRequest("POST", "http://"+p.address+"/payments", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "k")
	go func() {
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			p.answered <- result{err: err}
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		p.answered <- result{res.StatusCode, string(body), err}
	}()
	<-began
	return p
}

func (p *process) signal(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func (p *process) draining(t *testing.T) {
	t.Helper()
	eventually(t, "readiness ends", func() bool {
		res, err := http.Get("http://" + p.admin + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})
}

func TestR78_SIGTERMLetsARequestFinish(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	p.signal(t)
	p.draining(t)
	p.release()
	if r := <-p.answered; r.err != nil || r.status != 201 || r.body != "paid" {
		t.Errorf("the request under way got %+v", r)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the process ended with %v\n%s", err, p.log)
	}
	if !strings.Contains(p.log.String(), `"msg":"drained"`) {
		t.Errorf("the log does not say that it was drained:\n%s", p.log)
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := startProcess(t)
	p.signal(t)
	p.draining(t)
	p.signal(t)
	p.cmd.Wait() //nolint:errcheck // how it ended is looked at next
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %v, want by the signal\n%s", p.cmd.ProcessState, p.log)
	}
	if r := <-p.answered; r.err == nil {
		t.Errorf("the request that was cut off got %+v", r)
	}
}

func TestR73_SIGHUPReadsTheFileAgain(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	defer u.Close()
	content := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstore: memory://\nscope: single\nupstream: " + u.URL + "\n"
	file := writeConfig(t, content+"default: {unkeyed: refuse}\n")
	log := &output{}
	cmd := exec.Command(path, "gateway", "--config", file, "--log-format", "json")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it has ended, mostly
		cmd.Wait()         //nolint:errcheck // as above
	})
	address, _ := addresses(t, log)
	status := func() int {
		res, err := http.Post("http://"+address+"/", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for i, c := range []struct {
		change, logged string
		status         int
	}{
		{"default: {unkeyed: pass}\n", `"msg":"reloaded"`, 201},
		{"default: {unkeyed: refuse, leese: 1s}\n", `"msg":"reload refused"`, 201},
	} {
		if err := os.WriteFile(file, []byte(content+c.change), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, c.logged, func() bool { return strings.Contains(log.String(), c.logged) })
		if got := status(); got != c.status {
			t.Errorf("change %d: status %d, want %d\n%s", i, got, c.status, log)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process ended with %v\n%s", err, log)
	}
}
