package gateway

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

func TestR33_R52_AStoredRequestComesBackWithItsScheme(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	told := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") != "https" { // as SECURE_SSL_REDIRECT, force_ssl do
			http.Redirect(w, r, "https://"+r.Host+r.URL.Path, http.StatusMovedPermanently)
			return
		}
		if n.Add(1) == 1 {
			<-told
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(201)
	})
	g := asking(t, up.URL)
	first := ask(t, "POST", g.url+"/payments", `{"amount":1}`, "Idempotency-Key", "k", "Content-Type", "application/json",
		"X-Account", "acme", "X-Forwarded-Proto", "https", "Prefer", "respond-async")
	if first.status != 202 {
		t.Fatalf("answered %d %s", first.status, first.body)
	}
	close(told)
	location := g.url + first.header.Get("Location")
	var o operation
	eventually(t, "the end", func() bool {
		o = ask(t, "GET", location, "", "X-Account", "acme").operation(t)
		return o.State != "running"
	})
	if o.State != "succeeded" || n.Load() != 2 {
		t.Errorf("%+v after %d runs", o, n.Load())
	}
}

func TestR52_R76_AMintedKeyKeepsItsWindowWithoutItsClient(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(201)
	})
	g := start(t, up.URL, func(c *Config) {
		c.Scope, c.Encryption, c.Operations, c.looksEvery = Scope{header: "X-Account", set: true}, newKeyring(t), "/operations", 20*time.Millisecond
		c.Routes = []Route{{
			Match: "POST /payments", Unkeyed: UnkeyedMint, Mint: Mint{Fields: []string{"/id"}, Window: 100 * time.Hour},
			Policy: semel.Policy{OnLost: semel.Rerun, Complete: true, Retention: 2 * time.Hour},
		}}
	})
	first := ask(t, "POST", g.url+"/payments", `{"id":"o1"}`, "Content-Type", "application/json", "X-Account", "acme")
	key := first.header.Get("Idempotency-Key")
	eventually(t, "the end", func() bool {
		return ask(t, "GET", g.url+"/operations", "", "Idempotency-Key", key, "X-Account", "acme").operation(t).State == "succeeded"
	})
	again := ask(t, "POST", g.url+"/payments", `{"id":"o1"}`, "Content-Type", "application/json", "X-Account", "acme")
	exp, err := http.ParseTime(again.header.Get("Idempotency-Expires"))
	if err != nil || !again.replayed() || time.Until(exp) < 90*time.Hour {
		t.Errorf("a minted key with a window of 100 h is remembered for %v; replayed %v, %v", time.Until(exp), again.replayed(), err)
	}
}

func TestField21_R52_WhatIsFinishedWithoutItsClientHasAllItsScopeHeaders(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(201)
	})
	g := start(t, up.URL, func(c *Config) {
		c.Scope, c.Encryption, c.Operations, c.looksEvery = Scope{header: "X-Tenant,X-User", set: true}, newKeyring(t), "/operations", 20*time.Millisecond
		c.Routes = []Route{{Match: "POST /payments", Policy: semel.Policy{OnLost: semel.Rerun, Complete: true}}}
	})
	who := []string{"X-Tenant", "acme", "X-User", "1:ann", "Idempotency-Key", "k"}
	ask(t, "POST", g.url+"/payments", `{}`, append(who, "Content-Type", "application/json")...)
	eventually(t, "the end", func() bool {
		return ask(t, "GET", g.url+"/operations", "", who...).operation(t).State == "succeeded"
	})
	seen := up.requests()
	last := seen[len(seen)-1].Header
	if len(seen) != 2 || last.Get("X-Tenant") != "acme" || last.Get("X-User") != "1:ann" {
		t.Errorf("the service was asked %d times, last for %v", len(seen), last)
	}
}

func TestOperationsThatNobodyFinishesAreToldAtTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int // of the upstream
		left   bool
	}{{503, true}, {201, false}} {
		var n atomic.Int32
		told := make(chan struct{})
		up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			<-told
			w.WriteHeader(c.status)
		})
		store := &listing{Store: memstore.New()}
		shared := func(finishes bool) func(*Config) {
			return func(cfg *Config) {
				cfg.Store, cfg.Scope, cfg.Encryption, cfg.Operations = store, Scope{header: "X-Account", set: true}, newKeyring(t), "/operations"
				cfg.Routes = []Route{{Match: "POST /payments", Policy: semel.Policy{OnLost: semel.Rerun, RespondAsync: finishes, MaxWait: time.Minute}}}
			}
		}
		first := start(t, up.URL, shared(true))
		a := ask(t, "POST", first.url+"/payments", `{"amount":1}`, "Idempotency-Key", "k", "Content-Type", "application/json",
			"X-Account", "acme", "Prefer", "respond-async")
		if a.status != 202 {
			t.Fatalf("answered %d %s", a.status, a.body)
		}
		close(told)
		eventually(t, "the run", func() bool { return n.Load() > 0 })
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		store.ended.Store(0)
		second := start(t, up.URL, shared(false))
		eventually(t, "the listing", func() bool { return store.ended.Load() > 0 })
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(second.log.String(), `"msg":"operations are left that nobody finishes`); told != c.left {
			t.Errorf("upstream answers %d: told is %t\n%s", c.status, told, second.log)
		}
	}
}

// A listing store counts the listings of stored requests that have ended.
type listing struct {
	*memstore.Store
	ended atomic.Int32
}

func (l *listing) List(ctx context.Context, q driver.Query, f func(driver.ID, driver.Record) bool) error {
	if q.Sealed {
		defer l.ended.Add(1)
	}
	return l.Store.List(ctx, q, f)
}
