package semel_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

var firstSecret, anotherSecret = []byte("a secret of some store"), []byte("the secret of another")

// unlooked makes a guard that has not looked at the store's check value.
func unlooked(t *testing.T, s driver.Store, secret []byte, p semel.Policy) (*semel.Guard, *events) {
	t.Helper()
	seen := &events{}
	g, err := semel.New(s, semel.ScopeFunc(headerScope), p.OnLost, semel.Options{
		Policy: p, IdentitySecret: secret, Observer: seen, Operations: operationsPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g, seen
}

// An identity secret that is added, taken away or changed later would make every key new. So nothing runs, wherever
// operations are asked for, nor does FailOpen open.
func TestField12_R15_AnotherSecretRefusesEveryKeyedRequest(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][2][]byte{
		"added": {nil, firstSecret}, "removed": {firstSecret, nil}, "changed": {firstSecret, anotherSecret},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			var l ledger
			pay := http.HandlerFunc(l.pay)
			before, _ := unlooked(t, s, secrets[0], semel.Policy{})
			checkRun(t, answer(before.Wrap(pay), post("k", `{}`)))
			checkReplay(t, answer(before.Wrap(pay), post("k", `{}`)))

			after, seen := unlooked(t, s, secrets[1], semel.Policy{FailOpen: true, Operation: "pay"})
			for range 2 {
				w := answer(after.Wrap(pay), post("k", `{}`))
				wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
			}
			fn := func(context.Context) (int, error) { return l.add(), nil }
			if _, err := semel.Do(t.Context(), after, semel.Key{Scope: "s", Value: "k"}, semel.Bytes("r"), fn); !errors.Is(err, identity.ErrOtherSecret) {
				t.Errorf("Do: %v, want ErrOtherSecret", err)
			}
			for _, about := range []*http.Request{about("", "Idempotency-Key", "k"), about("/" + semel.Identify(secrets[0], semel.KindHTTP, "alice", "k").String())} {
				wantProblem(t, answer(after.Operations(), about), http.StatusServiceUnavailable, refusal.StoreUnavailable)
			}
			if l.count() != 1 || seen.count(event.OtherSecret) == 0 || seen.count(event.StoreError) > 0 {
				t.Errorf("%d effects, want 1; told %d times", l.count(), seen.count(event.OtherSecret))
			}
			if rec, err := s.Load(t.Context(), semel.Identify(secrets[1], semel.KindHTTP, "alice", "k")); err != nil || rec.State != driver.Absent {
				t.Errorf("under the other secret the record is %v, %v", rec.State, err)
			}

			// What observes is in nobody's way, and claims nothing either.
			observing, watched := unlooked(t, s, secrets[1], semel.Policy{ObserveOnly: true})
			checkRun(t, answer(observing.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", `{}`)))
			if r := watched.results(); len(r) != 1 || r[0] != event.Refused {
				t.Errorf("observed %v, want what is refused", r)
			}
			// Without a key there is nothing to be sure of.
			open, _ := unlooked(t, s, secrets[1], semel.Policy{KeyOptional: true})
			checkRun(t, answer(open.Wrap(http.HandlerFunc((&ledger{}).pay)), post("", `{}`)))
		})
	}
}

// In one-commit mode, which claims in a transaction, it is the same.
func TestField12_R15_AnotherSecretRefusesInOneCommitMode(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	if err := identity.Check(t.Context(), s, firstSecret); err != nil {
		t.Fatal(err)
	}
	g, _ := unlooked(t, s, nil, semel.Policy{OneCommit: true})
	var l ledger
	wantProblem(t, answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`)), http.StatusServiceUnavailable, refusal.StoreUnavailable)
	if l.count() != 0 {
		t.Errorf("%d effects, want none", l.count())
	}
}

// Requests that come together share one look, which costs one Load where the check value is there. What a store says
// that fails is not remembered; that the secret is the right one is.
func TestField12_R15_OneLookAProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		if err := identity.Check(t.Context(), mem, firstSecret); err != nil {
			t.Fatal(err)
		}
		var loads atomic.Int64
		var down atomic.Bool
		down.Store(true)
		s := &faulty{Store: mem, load: func(ctx context.Context, id driver.ID) (driver.Record, error) {
			loads.Add(1)
			time.Sleep(time.Millisecond)
			if down.Load() {
				return driver.Record{}, errDown
			}
			return mem.Load(ctx, id)
		}}
		g, seen := unlooked(t, s, firstSecret, semel.Policy{})
		other := g.Route(semel.Policy{Operation: "other"})
		h, sibling := g.Wrap(http.HandlerFunc((&ledger{}).pay)), other.Wrap(http.HandlerFunc((&ledger{}).pay))
		wave := func(status int) {
			t.Helper()
			var all []*served
			for _, key := range []string{"a", "b", "c"} {
				all = append(all, serve(h, post(key, `{}`)), serve(sibling, post("other-"+key, `{}`)))
			}
			for _, one := range all {
				if w := one.answer(); w.Code != status {
					t.Errorf("answered %d %s, want %d", w.Code, w.Body, status)
				}
			}
		}
		wave(http.StatusServiceUnavailable)
		if n := seen.count(event.StoreError); n != 1 {
			t.Errorf("told %d times that the store fails, want once for all", n)
		}
		down.Store(false)
		loads.Store(0)
		wave(http.StatusCreated)
		wave(http.StatusCreated)
		if loads.Load() != 1 {
			t.Errorf("%d loads, want 1", loads.Load())
		}
		drained(t, g)
	})
}

// A client that hangs up during the look that it has begun does not spoil it for others; nor does a store that throws.
func TestField12_ALookOutlastsItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		throws := true
		s := &faulty{Store: mem, load: func(ctx context.Context, id driver.ID) (driver.Record, error) {
			if throws {
				throws = false
				panic(errThrown)
			}
			time.Sleep(time.Second)
			return mem.Load(ctx, id)
		}}
		g, _ := unlooked(t, s, nil, semel.Policy{})
		h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
		ctx, hangUp := context.WithCancel(t.Context())
		gone := serve(h, post("gone", `{}`).WithContext(ctx))
		waits := serve(h, post("k", `{}`))
		time.Sleep(time.Second / 2)
		hangUp()
		gone.answer()
		checkRun(t, waits.answer())
		drained(t, g)
	})
}
