package npmtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// patience is how long anything may take: a protection from waiting for ever, not an expectation.
const patience = 60 * time.Second

// An api is a process of server.js with a folder of its own.
type api struct {
	url      string
	scenario []byte // scenario.yaml with its address and its folder
	process  struct{ Crash, Restart, Pause, Resume, Ready string }
}

// start starts one, by the command of the scenario. It ends with the test.
func start(t *testing.T) *api {
	t.Helper()
	from, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(home, "api-")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(from, "server.js"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server.js"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(from, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	a := &api{}
	a.locate(t, dir, "0")
	a.run(t, a.process.Restart)
	a.locate(t, dir, portIn(t, filepath.Join(dir, "log")))
	t.Cleanup(func() { a.run(t, a.process.Crash) })
	a.wait(t)
	return a
}

// locate reads the scenario for the folder and the port.
func (a *api) locate(t *testing.T, dir, port string) {
	t.Helper()
	text, err := testdata.ReadFile("testdata/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]string{{"/srv/payments", dir}, {"127.0.0.1:3000", "127.0.0.1:" + port}, {"PORT=3000", "PORT=" + port}} {
		if !bytes.Contains(text, []byte(r[0])) {
			t.Fatalf("the scenario has no %s", r[0])
		}
		text = bytes.ReplaceAll(text, []byte(r[0]), []byte(r[1]))
	}
	var s struct {
		Target  string
		Process struct{ Crash, Restart, Pause, Resume, Ready string }
	}
	if err := yaml.Unmarshal(text, &s); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
	a.scenario, a.url, a.process = text, s.Target, s.Process
}

var listening = regexp.MustCompile(`(?m)^listening on http://127\.0\.0\.1:(\d+)$`)

// portIn waits until the server says where it listens.
func portIn(t *testing.T, log string) string {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		said, err := os.ReadFile(log)
		if m := listening.FindSubmatch(said); m != nil {
			return string(m[1])
		}
		if time.Now().After(until) {
			t.Fatalf("the server does not listen: %v\n%s", err, said)
		}
	}
}

// run runs a command of the scenario as verify does.
func (a *api) run(t *testing.T, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}

// wait waits until the server answers.
func (a *api) wait(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r := a.send(t.Context(), get(a.process.Ready))
		if r.err == nil && r.status == 200 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("GET %s: %s", a.process.Ready, r)
		}
	}
}

// crash ends the process as SIGKILL does and starts it again.
func (a *api) crash(t *testing.T) {
	t.Helper()
	a.run(t, a.process.Crash)
	a.run(t, a.process.Restart)
	a.wait(t)
}

func (a *api) host() string { return strings.TrimPrefix(a.url, "http://") }
