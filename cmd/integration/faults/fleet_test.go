package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/refusal"
)

// lease is that of a run. It is long enough for a server to be started in it, on most days.
const lease = 800 * time.Millisecond

// A fleet is two instances that share a storage.
type fleet struct {
	a, b    *instance
	witness driver.Store // the storage, past all proxies
	server  servers.Server
	world   world

	exhaust   func(*testing.T) (release func()) // takes all of the server's connections
	exhausted func()                            // gives them back
	oneCommit bool
}

// An instance has a proxy between its store and the server.
type instance struct {
	proxy *Proxy
	store driver.Store
	guard *semel.Guard
	hold  http.Handler
	rerun http.Handler
}

// A seat is where a fleet's storage is.
type seat struct {
	server servers.Server
	addr   string
	// open returns a store whose server is at addr.
	open      func(t *testing.T, addr string) driver.Store
	witness   driver.Store // defaults to a store of the same kind
	oneCommit bool
}

func newFleet(t *testing.T, s seat, w world) *fleet {
	t.Helper()
	f := &fleet{server: s.server, world: w, witness: s.witness, oneCommit: s.oneCommit}
	if f.witness == nil {
		f.witness = s.open(t, s.addr)
	}
	for _, i := range []**instance{&f.a, &f.b} {
		p := proxyTo(t, s.addr)
		*i = newInstance(t, p, s.open(t, p.Addr()), w, s.oneCommit)
	}
	return f
}

func newInstance(t *testing.T, p *Proxy, s driver.Store, w world, oneCommit bool) *instance {
	t.Helper()
	policy := semel.Policy{Lease: lease, SettleWait: lease, OneCommit: oneCommit}
	i := &instance{proxy: p, store: s, guard: newGuard(t, s, semel.Options{Policy: policy, RequestLife: lease})}
	next := w.handler(i)
	i.hold = i.guard.Wrap(next)
	policy.OnLost = semel.Rerun
	i.rerun = i.guard.Route(policy).Wrap(next)
	return i
}

// newGuard returns a guard that is done with everything before the test ends.
func newGuard(t *testing.T, s driver.Store, o semel.Options) *semel.Guard {
	t.Helper()
	o.MaxAttempts = -1
	g, err := semel.New(s, semel.SingleTenant, semel.Hold, o)
	must(t, err)
	t.Cleanup(func() { drain(t, g) })
	return g
}

func drain(t *testing.T, g *semel.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	must(t, g.Drain(ctx))
}

// key returns a key that no other fleet uses.
func (f *fleet) key(about string) string { return fmt.Sprintf("%s-%d", about, keys.Add(1)) }

var keys atomic.Int64

// load returns the record as the storage has it.
func (f *fleet) load(key string) (driver.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return f.witness.Load(ctx, semel.Identify(nil, semel.KindHTTP, "single", key))
}

// await waits until the record is as wanted.
func (f *fleet) await(t *testing.T, key string, as func(driver.Record) bool) {
	t.Helper()
	if rec, err := f.awaitFor(key, long, as); err != nil || !as(rec) {
		t.Errorf("%s: waited in vain: %v, fence %d, %v", key, rec.State, rec.Fence, err)
	}
}

// awaitFor is await for a limited time. It returns the record as it was last seen.
func (f *fleet) awaitFor(key string, limit time.Duration, as func(driver.Record) bool) (rec driver.Record, err error) {
	for until := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		if rec, err = f.load(key); err == nil && as(rec) || time.Now().After(until) {
			return rec, err
		}
	}
}

// A reading is what a client takes an answer for.
type reading string

const (
	success reading = "success"
	later   reading = "later"   // ask again: in progress, pending, unavailable
	unknown reading = "unknown" // an operator has to decide, or its owner comes back
	odd     reading = "odd"
)

// ask sends one request to a handler of an instance.
func ask(h http.Handler, key string) (reading, string) {
	r := httptest.NewRequest(http.MethodPost, "/effects", strings.NewReader(`{"about":"`+key+`"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body := w.Body.String()
	if w.Code == http.StatusCreated {
		return success, body
	}
	var p semel.Problem
	switch err := json.Unmarshal([]byte(body), &p); {
	case err != nil && w.Code == http.StatusServiceUnavailable: // of the ledger
		return later, body
	case err == nil && p.Code == refusal.OutcomeUnknown:
		return unknown, body
	case err == nil && p.Retryable:
		return later, body
	}
	return odd, fmt.Sprintf("%d %s", w.Code, body)
}

// pursue asks until there is a success, each handler in turn, and less and less often, so that a machine that is too
// slow for the lease gets over it. A key for which there is no success is stuck.
func pursue(t *testing.T, key string, handlers ...http.Handler) string {
	t.Helper()
	var got reading
	var body string
	pause := 10 * time.Millisecond
	for i, until := 0, time.Now().Add(long); time.Now().Before(until); i++ {
		switch got, body = ask(handlers[i%len(handlers)], key); got {
		case success:
			return body
		case odd:
			t.Errorf("%s: an answer that nobody should get: %s", key, body)
			return body
		}
		time.Sleep(pause)
		pause = min(pause*3/2, 500*time.Millisecond)
	}
	t.Errorf("%s is stuck: %s: %s", key, got, body)
	return body
}

// settled brings an operation to its end, and checks that it has had one effect, and that both instances say so.
func (f *fleet) settled(t *testing.T, key string) {
	t.Helper()
	answers := map[string]bool{}
	for _, handlers := range [][]http.Handler{{f.a.hold, f.b.hold}, {f.b.hold}, {f.a.hold}} {
		answers[pursue(t, key, handlers...)] = true
	}
	f.judge(t, key, answers)
}

// judge checks that an operation has had one effect, and that it is what clients were told of.
func (f *fleet) judge(t *testing.T, key string, answers map[string]bool) {
	t.Helper()
	var effects []string
	for until := time.Now().Add(long); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if effects, err = f.world.effects(key); err == nil {
			break
		}
		if time.Now().After(until) {
			t.Errorf("%s: %v", key, err)
			return
		}
	}
	if len(effects) != 1 || len(answers) != 1 || !answers[effects[0]] {
		t.Errorf("%s: effects %q, answers %v", key, effects, answers)
	}
}

// bustle has other clients ask for other operations, through both instances, until it is told to stop. Each brings all
// its operations to their ends.
func (f *fleet) bustle(t *testing.T) (stop func()) {
	t.Helper()
	ending := make(chan struct{})
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for {
				select {
				case <-ending:
					return
				default:
					f.settled(t, f.key("bustle"))
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	return func() {
		close(ending)
		clients.Wait()
	}
}
