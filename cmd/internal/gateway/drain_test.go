package gateway

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func TestR78_ADrainFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		created(w, r)
	})
	g := start(t, u.URL)
	answered := make(chan answer, 1)
	go func() {
		a, err := tryAsk("POST", g.url+"/", "", "Idempotency-Key", "k")
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	eventually(t, "readiness to end", func() bool {
		status, r := ready(t, g)
		return status == 503 && r.Gateway == "draining" && r.Store == "ok"
	})
	eventually(t, "the listener to close", func() bool {
		c, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			return true
		}
		c.Close()
		return false
	})
	select {
	case err := <-stopped:
		t.Fatalf("the drain ended with a request under way: %v", err)
	default:
	}
	close(release)
	(<-answered).wants(t, 201, "")
	if err := <-stopped; err != nil {
		t.Errorf("drain: %v", err)
	}
	if !strings.Contains(g.log.String(), `"msg":"drained"`) {
		t.Errorf("the log does not say that it was drained:\n%s", g.log)
	}
}

func TestR78_ADrainWaitsForRunsWithoutAClient(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		created(w, r)
	})
	store := memstore.New()
	g := start(t, u.URL, func(c *Config) { c.Store, c.Default.Policy.Patience = store, 20*time.Millisecond })
	post(t, g.url, "k").wants(t, 504, refusal.OutcomePending)
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	eventually(t, "the drain to begin", func() bool { return g.draining.Load() })
	close(release)
	if err := <-stopped; err != nil {
		t.Fatalf("drain: %v", err)
	}
	next := start(t, u.URL, func(c *Config) { c.Store = store })
	a := post(t, next.url, "k")
	a.wants(t, 201, "")
	if !a.replayed() || u.executions("k") != 1 {
		t.Errorf("replayed %t, executed %d times; the drain lost the outcome", a.replayed(), u.executions("k"))
	}
}

func TestR78_ADrainIsBounded(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(http.ResponseWriter, *http.Request) {
		close(began)
		<-release
	})
	t.Cleanup(func() { close(release) })
	g := start(t, u.URL, func(c *Config) { c.ShutdownTimeout = 50 * time.Millisecond })
	cut := make(chan error, 1)
	go func() {
		_, err := tryAsk("POST", g.url+"/", "", "Idempotency-Key", "k")
		cut <- err
	}()
	<-began
	err := g.stop()
	for _, want := range []string{"requests under way", "1 runs or releases under way"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
	if err := <-cut; err == nil {
		t.Error("the client whose request was cut off got an answer")
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, change := range []func(*Config){
		func(c *Config) { c.Listen = g.Addr().String() },
		func(c *Config) { c.Admin = g.Addr().String() },
	} {
		cfg := g.cfg
		cfg.Listen, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0"
		change(&cfg)
		other, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("error is %v", err)
		}
	}
}

func TestADrainedGatewayKeepsNoConnection(t *testing.T) {
	t.Parallel()
	u := newDyingUpstream(t)
	g := start(t, "http://"+u.Addr().String(), func(c *Config) { c.UpstreamIdle = time.Minute })
	post(t, g.url, "k").wants(t, 201, "")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		u.Close()
		u.work.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("a connection to the upstream is still open")
	}
}
