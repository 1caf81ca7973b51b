package gateway

import (
	"bytes"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// A request of which nothing was sent is refused, not executed, and its key is free again.
func TestField19_ARefusedConnectionIsNoExecution(t *testing.T) {
	t.Parallel()
	address, _ := closedPort(t)
	g := start(t, "http://"+address, func(c *Config) { c.Routes = []Route{{Match: "POST /payments"}} })
	for range 2 {
		ask(t, "POST", g.url+"/payments", `{}`, "Idempotency-Key", "k").wants(t, 503, upstreamUnavailable.code)
	}
	ask(t, "GET", g.url+"/payments", "").wants(t, 503, upstreamUnavailable.code)
	wantMetrics(t, g,
		`idempotency_requests_total{code="UPSTREAM_UNAVAILABLE",operation="POST /payments",result="refused"} 2`,
		`idempotency_upstream_errors_total{kind="unreachable"} 3`)
	if all := ask(t, "GET", g.admin+"/metrics", "").body; strings.Contains(all, `result="executed"`) {
		t.Errorf("what was not sent counts as executed:\n%s", all)
	}
	if !strings.Contains(g.log.String(), `"result":"refused","code":"UPSTREAM_UNAVAILABLE"`) {
		t.Errorf("the log does not say that it was refused: %s", g.log.String())
	}
}

func TestField19_ErrorsOfTheUpstreamAreCountedByKind(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs-up":
			hangUp(w, r)
		case "/breaks-off":
			breakOff(w, r)
			hangUp(w, r)
		case "/slow":
			select {
			case <-ended:
			case <-r.Context().Done():
			}
		default:
			created(w, r)
		}
	})
	g := start(t, u.URL, func(c *Config) {
		c.Routes = []Route{{Match: "POST /slow", Policy: semel.Policy{MaxRun: 50 * time.Millisecond}}}
	})
	for _, path := range []string{"/hangs-up", "/breaks-off", "/slow"} {
		if a, err := tryAsk("POST", g.url+path, `{}`, "Idempotency-Key", path); err != nil || a.status < 400 {
			t.Errorf("%s: answered %d, %v", path, a.status, err)
		}
	}
	ask(t, "POST", g.url+"/fine", `{}`, "Idempotency-Key", "fine").wants(t, 201, "")
	tryAsk("POST", g.url+"/breaks-off", `{}`) //nolint:errcheck // a request without a key, whose answer breaks
	wantMetrics(t, g,
		`idempotency_upstream_errors_total{kind="cut_off"} 2`, `idempotency_upstream_errors_total{kind="no_answer"} 1`,
		`idempotency_upstream_errors_total{kind="timeout"} 1`, `idempotency_upstream_errors_total{kind="unreachable"} 0`,
		`idempotency_requests_total{code="",operation="POST other",result="unknown"} 2`, `idempotency_requests_total{code="",operation="POST /slow",result="unknown"} 1`)
	if !strings.Contains(g.log.String(), `"level":"WARN","msg":"idempotency","event":"idempotency_check","result":"unknown"`) {
		t.Errorf("an unknown outcome is no warning in the log: %s", g.log.String())
	}
}

func TestField19_ReloadsAreCounted(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := startFromFile(t, u.URL, "")
	wantMetrics(t, g.running, "idempotency_reload_last_successful 1", `idempotency_reload_total{result="success"} 0`)
	at := scraped(t, g.metrics, "idempotency_reload_success_timestamp_seconds")
	g.rewrite(t, u.URL, "nonsense: 1\n")
	if err := g.Reload(); err == nil {
		t.Fatal("a file with a mistake is taken")
	}
	wantMetrics(t, g.running, "idempotency_reload_last_successful 0", `idempotency_reload_total{result="failure"} 1`)
	if got := scraped(t, g.metrics, "idempotency_reload_success_timestamp_seconds"); got != at {
		t.Errorf("a reload that was refused has moved the time from %s to %s", at, got)
	}
	g.rewrite(t, u.URL, "")
	if err := g.Reload(); err != nil {
		t.Fatal(err)
	}
	wantMetrics(t, g.running, "idempotency_reload_last_successful 1", `idempotency_reload_total{result="success"} 1`)
	if got := scraped(t, g.metrics, "idempotency_reload_success_timestamp_seconds"); got == at {
		t.Errorf("a reload has left the time at %s", at)
	}
}

func TestField19_TheBreakerIsShown(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var dead *deadStore
	g := start(t, u.URL, func(c *Config) {
		dead = &deadStore{Store: c.Store}
		c.Store, c.Breaker, c.ShutdownTimeout = dead, Breaker{Failures: 1, Open: time.Hour}, 50*time.Millisecond
	})
	wantMetrics(t, g, "idempotency_breaker_open 0", "idempotency_store_up 1")
	dead.down.Store(true)
	post(t, g.url, "k").wants(t, 503, refusal.StoreUnavailable)
	wantMetrics(t, g, "idempotency_breaker_open 1",
		`idempotency_requests_total{code="IDEMPOTENCY_STORE_UNAVAILABLE",operation="POST other",result="refused"} 1`)
}

// What Prometheus' own checker finds fault with, users would trip over.
func TestField19_PrometheusFindsNoFaultWithTheMetrics(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	post(t, g.url, "k").wants(t, 201, "")
	wantMetrics(t, g, "idempotency_unknown 0")
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = bytes.NewBufferString(ask(t, "GET", g.admin+"/metrics", "").body)
	out, err := check.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("promtool: %v: %s", err, out)
	}
}
