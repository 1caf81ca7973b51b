package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/refusal"
)

// A reloading is a gateway whose configuration is in a file.
type reloading struct {
	*running
	file, common string
}

// startFromFile starts a gateway from a file with the given routes.
func startFromFile(t *testing.T, upstream, routes string) *reloading {
	t.Helper()
	common := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstore: memory://\nscope: single\ninstance: test\nupstream: "
	f := &reloading{file: writeFile(t, "gateway.yaml", common+upstream+"\n"+routes), common: common}
	f.running = start(t, upstream, func(c *Config) {
		loaded, err := LoadFile(f.file)
		if err != nil {
			t.Fatal(err)
		}
		loaded.Store, loaded.Log = c.Store, c.Log
		*c = loaded
	})
	return f
}

// rewrite puts other routes, and perhaps another upstream, into the file.
func (f *reloading) rewrite(t *testing.T, upstream, routes string) {
	t.Helper()
	if err := os.WriteFile(f.file, []byte(f.common+upstream+"\n"+routes), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestR73_AReloadReplacesTheRoutes(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := startFromFile(t, u.URL, "routes: [{match: POST /a, unkeyed: refuse}]\n")
	ask(t, "POST", g.url+"/a", "").wants(t, 400, refusal.KeyMissing)
	post(t, g.url, "k").wants(t, 201, "")
	g.rewrite(t, u.URL, "default: {unkeyed: refuse}\nroutes: [{match: POST /a, problems: {envelope: simple}}, {match: POST /payments}]\n")
	if err := g.Reload(); err != nil {
		t.Fatal(err)
	}
	ask(t, "POST", g.url+"/a", "").wants(t, 201, "")
	ask(t, "POST", g.url+"/b", "").wants(t, 400, refusal.KeyMissing)
	if a := post(t, g.url, "k"); !a.replayed() {
		t.Errorf("what was answered before the reload is not replayed: %d", a.status)
	}
	log := g.log.String()
	for _, want := range []string{`"msg":"reloaded"`, `"routes":2`, `"msg":"requests without a key pass unprotected","route":"POST /a"`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
	metrics := ask(t, "GET", g.admin+"/metrics", "").body
	if !strings.Contains(metrics, `operation="POST /payments"`) || strings.Contains(metrics, `operation="POST /b"`) {
		t.Errorf("the metrics' operations are not the routes:\n%s", metrics)
	}
}

func TestR73_AReloadMayMoveTheUpstream(t *testing.T) {
	t.Parallel()
	old, next := newUpstream(t, created), newUpstream(t, created)
	g := startFromFile(t, old.URL, "")
	post(t, g.url, "k1").wants(t, 201, "")
	g.rewrite(t, next.URL, "")
	if err := g.Reload(); err != nil {
		t.Fatal(err)
	}
	post(t, g.url, "k2").wants(t, 201, "")
	if len(old.requests()) != 1 || len(next.requests()) != 1 {
		t.Errorf("%d requests at the old upstream, %d at the new one", len(old.requests()), len(next.requests()))
	}
	g.rewrite(t, g.url, "")
	if err := g.Reload(); err == nil || !strings.Contains(err.Error(), "is the gateway itself") {
		t.Errorf("error is %v", err)
	}
	post(t, g.url, "k3").wants(t, 201, "")
}

func TestR73_AFileWithErrorsChangesNothing(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := startFromFile(t, u.URL, "default: {unkeyed: refuse}\n")
	for _, c := range []struct {
		routes string
		says   []string
	}{
		{"default: {unkeyed: pass, leese: 1s}\nroutes: [{match: PUT /a, unkeyed: refuse}]\n", []string{`gateway.yaml:7:26: unknown setting \"leese\"`, "gateway.yaml:8:35: unkeyed: without a key a PUT passes"}},
		{"default: [", []string{"gateway.yaml:7:10: sequence end token"}},
		{"default: {unkeyed: pass}\ncorrelation_header: X-Other\nshutdown_timeout: 1s\n", []string{
			"correlation_header: a change from X-Correlation-Id to X-Other needs a restart", "shutdown_timeout: a change from 40s to 1s needs a restart",
		}},
		{"default: {unkeyed: pass}\nupstream_idle: 2s\ntrusted_proxies: [10.0.0.0/8]\nproblems: {base: \"urn:x:\"}\nidentity_secret_file: s\nderivation_secret_file: s\n", []string{
			"upstream_idle: a change", "trusted_proxies: a change", "problems.base: a change", "derivation_secret_file: a change", "identity_secret_file: a change",
		}},
	} {
		g.rewrite(t, u.URL, c.routes)
		if err := g.Reload(); err == nil {
			t.Errorf("%q was taken over", c.routes)
		}
		for _, want := range c.says {
			if n := strings.Count(g.log.String(), want); n != 1 {
				t.Errorf("%d lines say %q:\n%s", n, want, g.log)
			}
		}
		ask(t, "POST", g.url+"/a", "").wants(t, 400, refusal.KeyMissing)
	}
	for _, fixed := range []string{"listen", "admin", "store", "scope", "instance"} {
		content := strings.Replace(g.common+u.URL+"\n", fixed+": ", fixed+": ", 1)
		other := map[string]string{"listen": "127.0.0.1:1", "admin": ":1", "store": "sqlite://x.db", "scope": "header:X-Account", "instance": "other"}[fixed]
		lines := strings.Split(content, "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, fixed+":") {
				lines[i] = fixed + ": \"" + other + "\""
			}
		}
		if err := os.WriteFile(g.file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.Reload(); err == nil || !strings.Contains(err.Error(), fixed+": a change from") || strings.Count(err.Error(), "needs a restart") != 1 {
			t.Errorf("%s: error is %v", fixed, err)
		}
	}
	if err := os.Remove(g.file); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(); err == nil || !strings.Contains(err.Error(), "read configuration") {
		t.Errorf("error is %v", err)
	}
	ask(t, "POST", g.url+"/a", "").wants(t, 400, refusal.KeyMissing)
	if executed := len(u.requests()); executed != 0 {
		t.Errorf("executed %d times", executed)
	}
}

func TestR73_ARequestUnderWayEndsUnderItsOldRoute(t *testing.T) {
	t.Parallel()
	began, released := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			created(w, r)
			return
		}
		close(began)
		<-released
		w.WriteHeader(http.StatusConflict)
	})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	g := startFromFile(t, u.URL, "default: {release_on: [409]}\n")
	answered := make(chan answer, 1)
	go func() {
		a, err := tryAsk("POST", g.url+"/payments", `{"amount":1}`, "Idempotency-Key", "k", "Content-Type", "application/json")
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	<-began
	g.rewrite(t, u.URL, "default: {unkeyed: refuse}\n") // which keeps a 409
	if err := g.Reload(); err != nil {
		t.Fatal(err)
	}
	post(t, g.url, "k").wants(t, 409, refusal.InProgress) // one record, under whatever route
	release()
	(<-answered).wants(t, 409, "")
	post(t, g.url, "k").wants(t, 201, "") // it was released
}

func TestR73_NoRequestIsDroppedWhileReloading(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := startFromFile(t, u.URL, "routes: [{match: POST /a}]\n")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var asked, executed atomic.Int64
	var clients sync.WaitGroup
	for n := range 4 {
		c := client(t, nil, protocols[n%2].set)
		address := g.url + "/" + []string{"a", "b"}[n/2]
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				req, err := http.NewRequest("POST", address, strings.NewReader("body"))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Idempotency-Key", fmt.Sprintf("k-%d-%d", n, i/2))
				res, err := c.Do(req)
				if err != nil {
					t.Errorf("request %d of %d: %v", i, n, err)
					return
				}
				res.Body.Close()
				asked.Add(1)
				replayed := res.Header.Get("Idempotent-Replayed") == "true"
				if res.StatusCode != 201 || replayed != (i%2 == 1) {
					t.Errorf("request %d of %d: status %d, replayed %t", i, n, res.StatusCode, replayed)
				}
				if !replayed {
					executed.Add(1)
				}
			}
		})
	}
	for i := 0; (i < 200 || asked.Load() < 200) && ctx.Err() == nil && !t.Failed(); i++ {
		g.rewrite(t, u.URL, []string{
			"routes: [{match: POST /a, unkeyed: refuse, lease: 10s}]\n",
			"default: {wait: 1s}\nroutes: [{match: POST /a, on_error: keep}, {match: POST /b, retention: 48h}]\n",
			"default: {lease: 20s, leese: 1}\n",
		}[i%3])
		if err := g.Reload(); (err != nil) != (i%3 == 2) {
			t.Errorf("reload %d: %v", i, err)
		}
	}
	if asked.Load() < 200 {
		t.Errorf("only %d requests came while it was reloading", asked.Load())
	}
	stop()
	clients.Wait()
	if n := int64(len(u.requests())); n != executed.Load() {
		t.Errorf("the upstream executed %d requests, %d were answered as such", n, executed.Load())
	}
}

func TestAReloadWithoutFilesChangesNothing(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.Default.Unkeyed = UnkeyedRefuse })
	if err := g.Reload(); err != nil {
		t.Fatal(err)
	}
	ask(t, "POST", g.url+"/a", "").wants(t, 400, refusal.KeyMissing)
}
