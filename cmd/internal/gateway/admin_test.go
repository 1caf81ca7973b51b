package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
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
	if status, r := ready(t, g); status != 200 || r != (readiness{true, "ok", "ok", ""}) {
		t.Errorf("healthy: %d %+v", status, r)
	}
	down.Store(true)
	if status, r := ready(t, g); status != 503 || r != (readiness{false, "ok", "unreachable", ""}) {
		t.Errorf("store down: %d %+v", status, r)
	}
	if !strings.Contains(g.log.String(), "10.1.2.3") {
		t.Error("the log does not show the cause")
	}
	for _, path := range []string{"/livez", "/healthz"} {
		if a := ask(t, "GET", g.admin+path, ""); a.status != 200 {
			t.Errorf("%s is %d while the store is down; a restart would not help", path, a.status)
		}
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

// A cache that is down makes answers slower, not wrong: the gateway stays ready, and says so.
func TestR78_ReadinessSaysThatTheCacheIsDown(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var down atomic.Bool
	g := start(t, u.URL, func(c *Config) {
		c.CheckCache = func(context.Context) error {
			if down.Load() {
				return errors.New("connect to 10.1.2.4")
			}
			return nil
		}
	})
	if status, r := ready(t, g); status != 200 || r != (readiness{true, "ok", "ok", "ok"}) {
		t.Errorf("healthy: %d %+v", status, r)
	}
	down.Store(true)
	if status, r := ready(t, g); status != 200 || r != (readiness{true, "ok", "ok", "unreachable"}) {
		t.Errorf("cache down: %d %+v", status, r)
	}
	if !strings.Contains(g.log.String(), "10.1.2.4") {
		t.Error("the log does not show the cause")
	}
}

// What the store learns of other processes reaches those who wait, through the layer that measures it.
func TestAMeasuredStoreWakes(t *testing.T) {
	t.Parallel()
	id := driver.ID{7}
	var woken driver.ID
	waking := newMetrics(nil).instrument(wakingStore{memstore.New(), id}, "test")
	if err := waking.(driver.Waker).Wake(t.Context(), func(id driver.ID) { woken = id }); err != nil || woken != id {
		t.Errorf("woken for %v, %v", woken, err)
	}
	silent := newMetrics(nil).instrument(memstore.New(), "test")
	if err := silent.(driver.Waker).Wake(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a store that can't wake: %v", err)
	}
}

// So does what the store looks for by itself.
func TestAMeasuredStoreScans(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	if err := newMetrics(nil).instrument(scanningStore{memstore.New(), down}, "test").(driver.Scanner).Scan(t.Context()); !errors.Is(err, down) {
		t.Errorf("the scan ended with %v", err)
	}
	if err := newMetrics(nil).instrument(memstore.New(), "test").(driver.Scanner).Scan(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a store that need not scan: %v", err)
	}
}

type scanningStore struct {
	*memstore.Store
	err error
}

func (s scanningStore) Scan(context.Context) error { return s.err }

type wakingStore struct {
	driver.Store
	id driver.ID
}

func (s wakingStore) Wake(_ context.Context, settled func(driver.ID)) error {
	settled(s.id)
	return nil
}
