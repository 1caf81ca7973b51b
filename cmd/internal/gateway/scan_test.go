package gateway

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// A scanned store has no index of what waits. It notes who scans, and which looks there were.
type scanned struct {
	*memstore.Store

	mu    sync.Mutex
	scans int
	looks map[driver.Query]int
}

func (s *scanned) Scan(ctx context.Context) error {
	s.mu.Lock()
	s.scans++
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.scans--
	s.mu.Unlock()
	return ctx.Err()
}

func (s *scanned) List(ctx context.Context, q driver.Query, f func(driver.ID, driver.Record) bool) error {
	s.mu.Lock()
	s.looks[q]++
	s.mu.Unlock()
	return s.Store.List(ctx, q, f)
}

// A gateway on a store that has to be scanned has it scanned, and looks for no work by going through all records.
func TestAGatewayLooksAtWhatAScanHasFound(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	unknown := driver.Query{Reading: driver.ReadsUnknown, Scanned: true}
	sealed := driver.Query{Reading: driver.ReadsFree, Sealed: true, Scanned: true}
	for _, finishes := range []bool{true, false} {
		store := &scanned{Store: memstore.New(), looks: map[driver.Query]int{}}
		g := start(t, up.URL, func(cfg *Config) {
			cfg.Store, cfg.Scope, cfg.Encryption, cfg.Operations = store, Scope{header: "X-Account", set: true}, newKeyring(t), "/operations"
			cfg.Routes = []Route{{
				Match: "POST /payments", Reconcile: "/internal/operations/{operation}",
				Policy: semel.Policy{OnLost: semel.Rerun, RespondAsync: finishes, MaxWait: time.Minute},
			}}
		})
		eventually(t, "both looks", func() bool {
			store.mu.Lock()
			defer store.mu.Unlock()
			return store.looks[unknown] > 0 && store.looks[sealed] > 0 && store.scans > 0
		})
		if err := g.stop(); err != nil {
			t.Fatal(err)
		}
		if store.scans != 0 {
			t.Errorf("%d scans go on", store.scans)
		}
		for q := range store.looks {
			if q != unknown && q != sealed {
				t.Errorf("finishing is %t: the store is asked for %+v", finishes, q)
			}
		}
	}
}
