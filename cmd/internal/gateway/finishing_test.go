package gateway

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

func TestR33_R52_AStoredRequestComesBackWithItsScheme(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") != "https" { // as SECURE_SSL_REDIRECT, force_ssl do
			http.Redirect(w, r, "https://"+r.Host+r.URL.Path, http.StatusMovedPermanently)
			return
		}
		if n.Add(1) == 1 {
			time.Sleep(100 * time.Millisecond)
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
