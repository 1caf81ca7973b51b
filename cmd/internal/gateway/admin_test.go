package gateway

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
)

func ready(t *testing.T, g *running) (int, readiness) {
	t.Helper()
	a := ask(t, "GET", g.admin+"/readyz", "")
	var r readiness
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		t.Fatalf("/readyz: %q: %v", a.body, err)
	}
	if strings.Contains(a.body, "10.1.2.3") {
		t.Errorf("/readyz shows the cause: %s", a.body)
	}
	return a.status, r
}

func TestR78_ReadinessSaysWhichPartIsDown(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var down atomic.Bool
	g := start(t, u.URL, func(c *Config) { c.Store = fadingStore{c.Store, &down} })
	if status, r := ready(t, g); status != 200 || r != (readiness{true, "ok", "ok"}) {
		t.Errorf("healthy: %d %+v", status, r)
	}
	down.Store(true)
	if status, r := ready(t, g); status != 503 || r != (readiness{false, "ok", "unreachable"}) {
		t.Errorf("store down: %d %+v", status, r)
	}
	if !strings.Contains(g.log.String(), "10.1.2.3") {
		t.Error("the log does not show the cause")
	}
	if a := ask(t, "GET", g.admin+"/healthz", ""); a.status != 200 {
		t.Errorf("/healthz is %d while the store is down; a restart would not help", a.status)
	}
	down.Store(false)
	if status, r := ready(t, g); status != 200 || !r.Ready {
		t.Errorf("store up again: %d %+v", status, r)
	}
}

func TestR78_AdministrationHasAnAddressOfItsOwn(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	ask(t, "GET", g.url+"/readyz", "").wants(t, 201, "") // the upstream's own
	if a := ask(t, "GET", g.admin+"/payments", ""); a.status != 404 {
		t.Errorf("the admin address forwards: %d", a.status)
	}
	if a := ask(t, "POST", g.admin+"/readyz", ""); a.status != 405 {
		t.Errorf("POST /readyz is %d", a.status)
	}
}
