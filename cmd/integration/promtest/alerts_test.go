//go:build unix

package promtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
)

// Each alert fires and is over again: for an operation that was lost with its gateway and that nobody asks for, for a
// service that refuses connections, and for a store that is down.
func TestField19_AlertsFireAndClear(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	redis, err := servers.NewRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	proof.Reads("deploy")
	rules, err := os.ReadFile("../../../deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	if !proof.Long() { // how long each takes to fire and to clear is proved below, against series
		rules = times.ReplaceAll(rules, []byte("${1}6s"))
	}
	file := filepath.Join(dir, "alerts.yml")
	if err := os.WriteFile(file, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	targets := filepath.Join(dir, "targets.json")
	prometheus, err := servers.NewPrometheus(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["` + file + `"]
scrape_configs:
  - {job_name: semel, file_sd_configs: [{files: ["` + targets + `"], refresh_interval: 1s}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prometheus.Close() })
	service := newService(t)
	w := &watched{
		t: t, dir: dir, program: built(t), prometheus: "http://" + prometheus.Addr(), targets: targets,
		store: "redis://" + redis.Addr(), service: service.URL,
	}

	g := w.gateway()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		g.post("lost", "/slow") //nolint:errcheck // its gateway is killed
	}()
	id := <-service.arrived
	w.quiet("IdempotencyUnknown")
	g.kill()
	<-lost
	g = w.gateway()
	w.fires("IdempotencyUnknown")
	out, err := exec.Command(w.program, "keys", "release", id, "--store", w.store, "--reason", "it had no effect", "--yes").CombinedOutput()
	if err != nil {
		t.Fatalf("release: %v: %s", err, out)
	}
	w.clears("IdempotencyUnknown")

	service.leave()
	w.fires("IdempotencyUpstreamFails", func(n int) {
		if status, err := g.post(fmt.Sprint("refused-", n), "/payments"); err != nil || status != http.StatusServiceUnavailable {
			t.Fatalf("without the service: %d, %v", status, err)
		}
	})
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	w.fires("IdempotencyStoreDown")
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	w.clears("IdempotencyStoreDown")
	w.clears("IdempotencyUpstreamFails")
}

// times match how long an alert is looked for, and over how long.
var times = regexp.MustCompile(`(for: |\[)[0-9]+[smh]`)

// built builds the program.
func built(t *testing.T) string {
	t.Helper()
	proof.Reads(proof.Code)
	path := filepath.Join(t.TempDir(), "semel")
	if out, err := exec.Command("go", "build", "-o", path, "../../semel").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// A service never answers /slow; what arrives there it names by its operation.
type service struct {
	*httptest.Server
	arrived chan string
	over    chan struct{}
	leave   func()
}

func newService(t *testing.T) *service {
	s := &service{arrived: make(chan string, 1), over: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			s.arrived <- r.Header.Get("Idempotency-Operation")
			<-s.over
		}
		w.WriteHeader(http.StatusCreated)
	}))
	s.leave = sync.OnceFunc(func() {
		close(s.over)
		s.Close()
	})
	t.Cleanup(s.leave)
	return s
}

// watched is what Prometheus watches: the one gateway that runs.
type watched struct {
	t                   *testing.T
	dir, program        string
	prometheus, targets string
	store, service      string
}

type gateway struct {
	cmd     *exec.Cmd
	address string
	ended   chan struct{}
}

// gateway starts a gateway and has Prometheus scrape it.
func (w *watched) gateway() *gateway {
	w.t.Helper()
	config := filepath.Join(w.dir, "gateway.yaml")
	if err := os.WriteFile(config, []byte(`
listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstream: `+w.service+`
scope: single
store: `+w.store+`
default: {lease: 1s}
`), 0o600); err != nil {
		w.t.Fatal(err)
	}
	g := &gateway{cmd: exec.Command(w.program, "gateway", "--config", config, "--log-format", "json"), ended: make(chan struct{})}
	log := &output{}
	g.cmd.Dir, g.cmd.Stderr = w.dir, log
	if err := g.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(g.ended)
		g.cmd.Wait() //nolint:errcheck // it is killed
	}()
	w.t.Cleanup(g.kill)
	admin := ""
	w.until("the gateway listens", func(int) bool {
		for line := range strings.SplitSeq(log.String(), "\n") {
			var l struct{ Msg, Listen, Admin string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "gateway listening" {
				g.address, admin = l.Listen, l.Admin
			}
		}
		select {
		case <-g.ended:
			w.t.Fatalf("the gateway has ended: %s", log)
		default:
		}
		return admin != ""
	})
	next := w.targets + ".next"
	if err := os.WriteFile(next, []byte(`[{"targets": ["`+admin+`"]}]`), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, w.targets); err != nil { // whole at every moment
		w.t.Fatal(err)
	}
	return g
}

func (g *gateway) kill() {
	g.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-g.ended
}

// post sends a keyed request and returns its status.
func (g *gateway) post(key, path string) (int, error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+g.address+path, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return res.StatusCode, nil
}

// fires waits until the alert fires; meanwhile it does what is given, again and again.
func (w *watched) fires(alert string, do ...func(n int)) {
	w.t.Helper()
	w.until(alert+" fires", func(n int) bool {
		for _, f := range do {
			f(n)
		}
		return w.state(alert) == "firing"
	})
}

func (w *watched) clears(alert string) {
	w.t.Helper()
	w.until(alert+" is over", func(int) bool { return w.state(alert) == "" })
}

// quiet fails if the alert fires.
func (w *watched) quiet(alert string) {
	w.t.Helper()
	if state := w.state(alert); state != "" {
		w.t.Fatalf("%s is %s", alert, state)
	}
}

// state is "firing" or "pending", and "" for neither.
func (w *watched) state(alert string) string {
	w.t.Helper()
	res, err := http.Get(w.prometheus + "/api/v1/alerts")
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	body, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(body, &got)
	}
	if err != nil {
		w.t.Fatalf("alerts: %v: %s", err, body)
	}
	state := ""
	for _, a := range got.Data.Alerts {
		if a.Labels["alertname"] == alert && state != "firing" {
			state = a.State
		}
	}
	return state
}

// until waits for what comes about in its own time. The bound only keeps a broken test from waiting for ever.
func (w *watched) until(what string, holds func(n int) bool) {
	w.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for n := 0; !holds(n); n++ {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within five minutes: %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// output collects what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// The rules are checked, and tested against series, by Prometheus' own tool.
func TestField19_TheRulesAreSound(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		proof.Reads("deploy")
		cmd := exec.Command("promtool", args...)
		cmd.Dir = "../../../deploy"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
}
