package gateway

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

func TestField20_R78_WhoIsReadyWithoutTheStore(t *testing.T) {
	t.Parallel()
	var (
		closed   = Route{Match: "POST /payments"}
		open     = Route{Match: "POST /quotes", Policy: semel.Policy{FailOpen: true}}
		observed = Route{Match: "POST /orders", Policy: semel.Policy{ObserveOnly: true}}
		reading  = Route{Match: "GET /prices"}
		guarded  = Route{Match: "GET /tickets", Policy: semel.Policy{Methods: []string{"GET"}}}
	)
	for _, c := range []struct {
		why    string
		rule   Readiness
		others bool // those that no route names fail open
		routes []Route
		want   bool
	}{
		{"each needs the store", ReadyIfAllFailOpen, false, nil, false},
		{"all fail open", ReadyIfAllFailOpen, true, []Route{open}, true},
		{"a route that only observes refuses nobody", ReadyIfAllFailOpen, true, []Route{open, observed}, true},
		{"nothing is guarded of what only reads", ReadyIfAllFailOpen, true, []Route{reading}, true},
		{"unless its policy says so", ReadyIfAllFailOpen, true, []Route{guarded}, false},
		{"one needs the store", ReadyIfAllFailOpen, true, []Route{open, closed}, false},
		{"those that no route names need it", ReadyIfAllFailOpen, false, []Route{open}, false},
		{"one that fails open is enough", ReadyIfAnyFailsOpen, false, []Route{open, closed}, true},
		{"there is none", ReadyIfAnyFailsOpen, false, []Route{closed}, false},
		{"it is ready whatever the routes", ReadyAlways, false, []Route{closed}, true},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			cfg := Config{ReadyWithoutStore: c.rule, Routes: c.routes}
			cfg.Default.Policy.FailOpen = c.others
			if got := cfg.servesWithoutStore(); got != c.want {
				t.Errorf("ready without the store: %t, want %t", got, c.want)
			}
		})
	}
}

func TestField20_R78_AGatewayThatFailsOpenIsReadyAndServesWithoutItsStore(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var down atomic.Bool
	var dead *deadStore
	g := start(t, u.URL, func(c *Config) {
		dead = &deadStore{Store: c.Store}
		c.Store, c.ShutdownTimeout = fadingStore{dead, &down}, 50*time.Millisecond
		c.Default.Policy.FailOpen = true
	})
	down.Store(true)
	dead.down.Store(true)
	if status, r := ready(t, g); status != 200 || r != (readiness{true, "ok", "unreachable", ""}) {
		t.Errorf("store down: %d %+v", status, r)
	}
	if a := post(t, g.url, "k"); a.status != 201 {
		t.Errorf("it is ready, and answers %d", a.status)
	}
	g.draining.Store(true)
	if status, r := ready(t, g); status != 503 || r.Gateway != "draining" {
		t.Errorf("draining: %d %+v", status, r)
	}
	g.draining.Store(false)
}

// A reload may change which routes fail open, and the setting itself.
func TestField20_ReadinessFollowsAReload(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	f := startFromFile(t, u.URL, "default: {fail_open: true}\n")
	if !f.table.Load().withoutStore {
		t.Error("all fail open, and it is not ready without the store")
	}
	f.rewrite(t, u.URL, "default: {fail_open: false}\n")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if f.table.Load().withoutStore {
		t.Error("none fails open any more, and it is ready without the store")
	}
	f.rewrite(t, u.URL, "ready_without_store: always\n")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if !f.table.Load().withoutStore {
		t.Error("the setting does not count after a reload")
	}
}
