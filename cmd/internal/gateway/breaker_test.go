package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
	"github.com/semelhq/semel/shardstore"
)

// deadStore counts the claims that it does not answer.
type deadStore struct {
	driver.Store
	down   atomic.Bool
	claims atomic.Int64
}

func (s *deadStore) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	s.claims.Add(1)
	if s.down.Load() {
		return driver.Record{}, false, errors.New("no answer")
	}
	return s.Store.Claim(ctx, id, c)
}

// After a few failures a dead store is not asked for a while: requests are refused at once, or pass where the route
// fails open. When it answers again all is as before.
func TestR63_R64_ADeadStoreIsNotAskedForEachRequest(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	opensFor := func(open time.Duration) (*running, *deadStore) {
		var store *deadStore
		g := start(t, u.URL, func(c *Config) {
			store = &deadStore{Store: c.Store}
			c.Store = store
			c.Breaker, c.ShutdownTimeout = Breaker{Failures: 3, Open: open}, 50*time.Millisecond
			c.Routes = append(c.Routes, Route{Match: "POST /open", Policy: semel.Policy{FailOpen: true}})
		})
		store.down.Store(true)
		return g, store
	}
	// One that stays open for longer than the requests take, and one that does not.
	g, store := opensFor(time.Hour)
	const requests = 30
	for range requests {
		a := ask(t, "POST", g.url+"/payments", "{}", "Idempotency-Key", "k")
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "STORE_UNAVAILABLE") {
			t.Fatalf("answered %d %s", a.status, a.body)
		}
	}
	if n := store.claims.Load(); n >= requests {
		t.Errorf("the dead store was asked %d times for %d requests", n, requests)
	}
	if a := ask(t, "POST", g.url+"/open", "{}", "Idempotency-Key", "k"); a.status != http.StatusCreated || a.header.Get("Idempotency-Status") != "bypassed" {
		t.Errorf("fails open: answered %d %s", a.status, a.body)
	}
	if !strings.Contains(g.log.String(), "circuit breaker is open") {
		t.Error("the log does not say that the breaker has opened")
	}
	g, store = opensFor(200 * time.Millisecond)
	for range 3 {
		ask(t, "POST", g.url+"/payments", "{}", "Idempotency-Key", "k").wants(t, 503, refusal.StoreUnavailable)
	}
	store.down.Store(false)
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := ask(t, "POST", g.url+"/payments", "{}", "Idempotency-Key", "k")
		if a.status == http.StatusCreated {
			break
		}
		if time.Now().After(giveUp) {
			t.Fatalf("answered %d %s, though the store is back", a.status, a.body)
		}
	}
}

// Where each shard of the store has a breaker, the gateway makes none: it would refuse the operations of all shards.
func TestR64_AShardThatIsDownOpensNoBreakerOfAll(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	dead := &deadStore{Store: memstore.New()}
	dead.down.Store(true)
	own := breaker.New(breaker.Options{Failures: 1, Open: time.Hour})
	store, err := shardstore.New([]shardstore.Shard{{Name: "a", Store: memstore.New()}, {Name: "b", Store: dead, Breaker: own}}, shardstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, u.URL, func(c *Config) {
		c.Store, c.BreakerOpen = store, own.Open
		c.Breaker, c.ShutdownTimeout = Breaker{Failures: 1, Open: time.Hour}, 50*time.Millisecond
	})
	statuses := map[int]int{}
	for i := range 40 {
		statuses[ask(t, "POST", g.url+"/payments", "{}", "Idempotency-Key", fmt.Sprint("k", i)).status]++
	}
	if statuses[http.StatusCreated] < 5 || statuses[http.StatusServiceUnavailable] < 5 || len(statuses) != 2 {
		t.Errorf("answered %v, want about half of 40 each", statuses)
	}
	if n := dead.claims.Load(); n > 3 {
		t.Errorf("the dead shard was asked %d times", n)
	}
	wantMetrics(t, g, "idempotency_breaker_open 1")
}
