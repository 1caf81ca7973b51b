package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// What may be released or lost does not begin, so a repeat gets the same on a streaming route as on any other.
func TestField05_R42_R44_AStreamingRouteDecidesAsAnyOther(t *testing.T) {
	t.Parallel()
	completed := &Condition{Pointer: "/status", Equals: `"COMPLETED"`}
	for _, c := range []struct {
		name    string
		onLost  semel.LostPolicy
		change  func(*Route)
		outcome string
		status  int
		body    string
		want    string
	}{
		{"a success", semel.Hold, nil, "", 201, "{}", replays},
		{"a status of release_on", semel.Hold, func(r *Route) { r.ReleaseOn = []int{409} }, "", 409, "busy", runsAgain},
		{"the upstream says release", semel.Hold, nil, "release", 201, "{}", runsAgain},
		{"the upstream says unknown", semel.Rerun, nil, "unknown", 201, "{}", isUnknown},
		{"the upstream says keep", semel.Hold, nil, "keep", 503, "busy", replays},
		{"502", semel.Hold, nil, "", 502, "bad gateway", isUnknown},
		{"502 under rerun", semel.Rerun, nil, "", 502, "bad gateway", runsAgain},
		{"504", semel.Hold, nil, "", 504, "late", isUnknown},
		{"503", semel.Hold, nil, "", 503, "busy", isUnknown},
		{"503 under rerun", semel.Rerun, nil, "", 503, "busy", runsAgain},
		{"408", semel.Hold, nil, "", 408, "slow", isUnknown},
		{"429", semel.Hold, nil, "", 429, "slow down", runsAgain},
		{"500", semel.Hold, nil, "", 500, "broken", replays},
		{"500 under rerun", semel.Rerun, nil, "", 500, "broken", runsAgain},
		{"keep_if, and it is so", semel.Hold, func(r *Route) { r.KeepIf = completed }, "", 200, `{"status":"COMPLETED"}`, replays},
		{"keep_if, and it is not", semel.Hold, func(r *Route) { r.KeepIf = completed }, "", 200, `{"status":"FAILED"}`, runsAgain},
		{"keep_if, and nobody can tell", semel.Hold, func(r *Route) { r.KeepIf = completed }, "", 200, `not JSON`, isUnknown},
	} {
		for _, mode := range []string{"buffered", "stream", "events"} {
			if mode == "stream" && strings.HasPrefix(c.name, "keep_if") {
				continue // such a route is refused
			}
			t.Run(c.name+" "+mode, func(t *testing.T) {
				t.Parallel()
				up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
					if c.outcome != "" {
						w.Header().Set("Idempotency-Outcome", c.outcome)
					}
					if mode == "events" {
						w.Header().Set("Content-Type", "text/event-stream")
					}
					w.WriteHeader(c.status)
					w.(http.Flusher).Flush()
					io.WriteString(w, c.body)
				})
				g := start(t, up.URL, func(cfg *Config) {
					cfg.Default.Policy.OnLost, cfg.Default.Policy.Stream = c.onLost, mode == "stream"
					if c.change != nil {
						c.change(&cfg.Default)
					}
				})
				if got := repeated(t, g, up, "/p"); got != c.want {
					t.Errorf("a repeat %s, want that it %s", got, c.want)
				}
			})
		}
	}
}

// Proxies speak HTTP/1.0 to what is behind them, where an answer without a length ends with its connection.
func TestField05_R38_AStreamWhoseUpstreamBreaksDoesNotEndCleanly(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: one\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	g := start(t, up.URL)
	for _, proto := range []string{"HTTP/1.0", "HTTP/1.1"} {
		c := dial(t, g.Addr().String())
		fmt.Fprintf(c, "POST /p %s\r\nHost: x\r\nIdempotency-Key: k%s\r\nContent-Length: 0\r\n\r\n", proto, proto[5:])
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			continue // it was reset before it was read
		}
		if body, err := io.ReadAll(res.Body); err == nil && (res.StatusCode == http.StatusOK || len(body) == 0) {
			t.Errorf("%s: the lost stream ended cleanly with %d %q", proto, res.StatusCode, body)
		}
	}
}

// Without room for a temporary file an answer above the limit is streamed.
func TestField06_AnAnswerThatCannotBeKept(t *testing.T) { //nolint:paralleltest // it sets the environment
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		dir := filepath.Join(t.TempDir(), "tmp")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", dir)
		up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 2<<20)) })
		g := start(t, up.URL, func(c *Config) { c.Default.Policy.OnLost = onLost })
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if a := post(t, g.url, "k"); a.status != http.StatusOK || len(a.body) != 2<<20 {
			t.Errorf("%v: answered %d, %d bytes", onLost, a.status, len(a.body))
		}
		b := post(t, g.url, "k")
		if n := up.executions("k"); n != 1 || !strings.Contains(b.body, string(refusal.ReplayUnavailable)) {
			t.Errorf("%v: executed %d times, the repeat got %d %.200s", onLost, n, b.status, b.body)
		}
	}
}
