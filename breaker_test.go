package semel_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// switchBreaker is a breaker that a test opens and closes.
type switchBreaker struct {
	mu    sync.Mutex
	open  bool
	heard []error
	asked int
}

var errBreakerOpen = errors.New("the breaker is open")

func (b *switchBreaker) Allow() (func(error), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.open {
		return nil, errBreakerOpen
	}
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.heard = append(b.heard, err)
	}, nil
}

func (b *switchBreaker) set(open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = open
}

// An open breaker refuses claims at once, without asking the store; what ends a run goes through it all the same.
func TestR64_ABreakerGuardsClaimsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &switchBreaker{}
		store := &faulty{Store: memstore.New()}
		var claims int
		store.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			claims++
			return store.Store.Claim(ctx, id, c)
		}
		g, seen := newGuardWith(t, store, semel.Options{Breaker: b, Policy: shortLease(semel.Hold)})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			b.set(true)
			time.Sleep(5 * time.Second) // renewed meanwhile
			w.WriteHeader(http.StatusCreated)
		}))
		if w := answer(h, post("k", `{}`)); w.Code != http.StatusCreated {
			t.Errorf("a run during which the breaker opens: answered %d", w.Code)
		}
		w := answer(h, post("other", `{}`))
		wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
		if w.Header().Get("Retry-After") == "" || claims != 1 {
			t.Errorf("Retry-After %q after %d claims, want 1", w.Header().Get("Retry-After"), claims)
		}
		open := g.Route(semel.Policy{FailOpen: true})
		if w := answer(open.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })), post("o", `{}`)); w.Code != http.StatusAccepted {
			t.Errorf("fail open: answered %d", w.Code)
		}
		b.set(false)
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "", true)
		drained(t, g)
		if n := seen.count(event.GaveUp); n != 0 {
			t.Errorf("%d claims were given up that were never sent", n)
		}
	})
}

// The breaker hears what says something about the store: not that it is full, and whether a client has gone or not.
func TestR64_WhatTheBreakerHears(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		heard bool
	}{
		"down":       {errStoreDown, true},
		"full":       {driver.ErrFull, false},
		"unreadable": {driver.ErrUnreadable, false},
		"works":      {nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &switchBreaker{}
			store := &faulty{Store: memstore.New()}
			store.claim = func(ctx context.Context, id driver.ID, cl driver.Claim) (driver.Record, bool, error) {
				if c.err != nil {
					return driver.Record{}, false, c.err
				}
				return store.Store.Claim(ctx, id, cl)
			}
			g, _ := newGuardWith(t, store, semel.Options{Breaker: b})
			answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`))
			if len(b.heard) == 0 {
				t.Errorf("%s: nothing was heard of %d requests", name, b.asked)
			}
			for _, err := range b.heard {
				if (err != nil) != c.heard {
					t.Errorf("%s: heard %v", name, err)
				}
			}
			store.claim = nil
			drained(t, g)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := &switchBreaker{}
		store := &faulty{Store: memstore.New()}
		ctx, cancel := context.WithCancel(t.Context())
		store.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			cancel()
			return driver.Record{}, false, errStoreDown
		}
		g, _ := newGuardWith(t, store, semel.Options{Breaker: b})
		answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`).WithContext(ctx))
		if len(b.heard) != 1 || !errors.Is(b.heard[0], errStoreDown) {
			t.Errorf("of a client that has gone the breaker heard %v", b.heard)
		}
		store.claim = nil
		drained(t, g)
	})
}
