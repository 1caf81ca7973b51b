package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func newKeyring(t *testing.T) *keyring.Ring {
	t.Helper()
	k, err := keyring.New(keyring.Key{ID: "k1", Key: bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// asking is a gateway of several principals, whose operations can be asked about, and are finished without their
// clients.
func asking(t *testing.T, upstream string) *running {
	t.Helper()
	return start(t, upstream, func(c *Config) {
		c.Scope, c.Encryption, c.Operations, c.looksEvery = Scope{header: "X-Account", set: true}, newKeyring(t), "/operations", 20*time.Millisecond
		c.Routes = []Route{
			{Match: "POST /payments", Policy: semel.Policy{OnLost: semel.Rerun, RespondAsync: true, MaxWait: time.Minute}},
			{Match: "POST /refunds", Policy: semel.Policy{KeyHeaders: []string{"X-Refund-Key"}}},
		}
	})
}

type operation struct {
	State  string
	Result struct {
		Status         int
		Location, Href string
	}
}

func (a answer) operation(t *testing.T) (o operation) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &o); err != nil || a.status != 200 && a.status != 202 {
		t.Fatalf("answered %d %s, want a status (%v)", a.status, a.body, err)
	}
	return o
}

func TestR33_TheGatewayAnswers202AndTellsWhatBecame(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-release
		}
		created(w, r)
	})
	g := asking(t, u.URL)
	send := func(header ...string) answer {
		t.Helper()
		return ask(t, "POST", g.url+"/payments", `{"amount":1}`, append([]string{
			"Idempotency-Key", "k", "Content-Type", "application/json", "X-Account", "acme",
		}, header...)...)
	}
	first := send("Prefer", `return=minimal, respond-async; x="a,b"`, "Prefer", "wait=0")
	if o := first.operation(t); first.status != 202 || o.State != "running" || !strings.HasPrefix(first.header.Get("Location"), "/operations/") {
		t.Fatalf("answered %d %v %s", first.status, first.header, first.body)
	}
	if applied := first.header.Get("Preference-Applied"); applied != "respond-async, wait=0" {
		t.Errorf("Preference-Applied: %q", applied)
	}
	location := g.url + first.header.Get("Location")
	if again := send("Prefer", "respond-async"); again.status != 202 || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("a repeat: %d %v", again.status, again.header)
	}
	busy := send()
	busy.wants(t, 409, refusal.InProgress)
	if link := busy.header.Get("Link"); link != "<"+first.header.Get("Location")+`>; rel="status"` {
		t.Errorf("Link: %s", link)
	}
	if o := ask(t, "GET", location, "", "X-Account", "acme").operation(t); o.State != "running" {
		t.Errorf("while it runs: %+v", o)
	}
	for _, other := range []string{location, location + "/result"} {
		ask(t, "GET", other, "", "X-Account", "mallory").wants(t, 404, refusal.OperationNotFound)
	}
	ask(t, "GET", location, "").wants(t, 400, refusal.ScopeInvalid)
	if a := ask(t, "POST", location, "", "X-Account", "acme"); a.status != 405 {
		t.Errorf("POST: %d", a.status)
	}
	close(release)
	eventually(t, "the end of the operation", func() bool {
		return ask(t, "GET", g.url+"/operations", "", "Idempotency-Key", "k", "X-Account", "acme").operation(t).State == "succeeded"
	})
	o := ask(t, "GET", location, "", "X-Account", "acme").operation(t)
	if o.Result.Status != 201 || o.Result.Location != "/payments/1" {
		t.Errorf("in the end: %+v", o)
	}
	result := ask(t, "GET", g.url+o.Result.Href, "", "X-Account", "acme")
	if result.status != 201 || !result.replayed() || result.body != `{"id":1}` {
		t.Errorf("the result: %+v", result)
	}
	if a := send("Prefer", "respond-async"); a.status != 201 || !a.replayed() {
		t.Errorf("a repeat in the end: %d", a.status)
	}
	seen := u.requests()
	if len(seen) != 1 || !reflect.DeepEqual(seen[0].Header["Prefer"], []string{"return=minimal"}) {
		t.Errorf("the service saw %d requests, Prefer %q", len(seen), seen[0].Header["Prefer"])
	}

	// The keys of other routes are found too, and so are other paths of the service.
	ask(t, "POST", g.url+"/refunds", `{}`, "X-Refund-Key", "r", "X-Account", "acme").wants(t, 201, "")
	if o := ask(t, "GET", g.url+"/operations", "", "X-Refund-Key", "r", "X-Account", "acme").operation(t); o.State != "succeeded" {
		t.Errorf("by the key of another route: %+v", o)
	}
	ask(t, "GET", g.url+"/operationsmanual", "", "X-Account", "acme").wants(t, 201, "")
	ask(t, "POST", g.url+"/other", `{}`, "Prefer", "respond-async", "Idempotency-Key", "o", "X-Account", "acme").wants(t, 201, "")
	if seen := u.requests(); seen[len(seen)-1].Header.Get("Prefer") != "respond-async" {
		t.Error("a preference was withheld from the service on a route that does not meet it")
	}
}

// The service loses its first answer, after the client was told 202. The gateway runs the operation again by itself,
// for the same principal, without the client's credentials.
func TestR33_R52_TheGatewayFinishesWhatItHasPromised(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	var once sync.Once
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		lost := false
		once.Do(func() { lost = true })
		if lost {
			<-told
			panic(http.ErrAbortHandler)
		}
		created(w, r)
	})
	g := asking(t, u.URL)
	first := ask(t, "POST", g.url+"/payments", `{"amount":1}`, "Idempotency-Key", "k", "Content-Type", "application/json",
		"X-Account", "acme", "Authorization", "Bearer secret", "Prefer", "respond-async", "X-Correlation-Id", "c-1")
	if first.status != 202 {
		t.Fatalf("answered %d %s", first.status, first.body)
	}
	close(told)
	location := g.url + first.header.Get("Location")
	eventually(t, "the end of the operation", func() bool {
		o := ask(t, "GET", location, "", "X-Account", "acme").operation(t)
		if o.State != "running" && o.State != "succeeded" {
			t.Fatalf("it is %s", o.State)
		}
		return o.State == "succeeded"
	})
	seen := u.requests()
	if len(seen) != 2 {
		t.Fatalf("%d requests", len(seen))
	}
	for i, r := range seen {
		h := r.Header
		if h.Get("X-Account") != "acme" || h.Get("Idempotency-Key") != "k" || h.Get("X-Correlation-Id") != "c-1" ||
			h.Get("Idempotency-Attempt") != fmt.Sprint(i+1) || h.Get("Idempotency-Operation") == "" || h.Get("Content-Type") != "application/json" {
			t.Errorf("request %d has %v", i+1, h)
		}
		if withheld := h.Get("Authorization") == ""; withheld != (i == 1) {
			t.Errorf("request %d: credentials withheld: %v", i+1, withheld)
		}
	}
	if err := g.stop(); err != nil {
		t.Errorf("drain: %v", err)
	}
}

func TestR33_WhatTheGatewayCantPromiseIsRefused(t *testing.T) {
	t.Parallel()
	target, err := ParseUpstream("http://127.0.0.1:9000")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no keys", func(c *Config) { c.EncryptionKeysFile = "empty" }, "there are no encryption keys"},
		{"a store that can't be searched", func(c *Config) { c.Encryption, c.Store = newKeyring(t), struct{ driver.Store }{c.Store} }, "can't be searched"},
	} {
		cfg := Config{
			Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: target, Store: memstore.New(), Scope: Scope{set: true}, Operations: "/operations",
			Default: Route{Policy: semel.Policy{OnLost: semel.Rerun, RespondAsync: true}},
		}
		c.change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestR33_PreferencesThatTheGatewayMeetsStayWithIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sent, want []string }{
		{nil, nil},
		{[]string{"respond-async"}, nil},
		{[]string{"wait=10", "Respond-Async, WAIT = 3"}, nil},
		{[]string{`return=minimal, respond-async;x=",", handling=lenient;y`}, []string{"return=minimal, handling=lenient;y"}},
		{[]string{`foo="a, respond-async, \", wait"`}, []string{`foo="a, respond-async, \", wait"`}},
		{[]string{"return=minimal", ",respond-async,,", "a=b"}, []string{"return=minimal", "a=b"}},
	} {
		h := http.Header{}
		if c.sent != nil {
			h["Prefer"] = c.sent
		}
		if withoutTaken(h); !reflect.DeepEqual(h["Prefer"], c.want) {
			t.Errorf("%q: left %q, want %q", c.sent, h["Prefer"], c.want)
		}
	}
}

func TestR33_AChangeOfOperationsNeedsARestart(t *testing.T) {
	t.Parallel()
	was := Config{Operations: "/operations", Routes: []Route{{Policy: semel.Policy{RespondAsync: true}}}}
	err := unchanged(&was, &Config{Operations: "/op"})
	if err == nil || !strings.Contains(err.Error(), "operations: a change from /operations to /op needs a restart") ||
		!strings.Contains(err.Error(), "respond_async or complete on any route: a change from true to false needs a restart") {
		t.Errorf("%v", err)
	}
}

// What the log has of an operation, what its service is told, where it is asked about, and what operators' commands
// take, is one id.
func TestField14_OneIdFromTheLogToTheService(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := asking(t, u.URL)
	ask(t, "POST", g.url+"/other", "", "Idempotency-Key", "k", "X-Account", "acme").wants(t, 201, "")
	id := u.requests()[0].Header.Get("Idempotency-Operation")
	if _, err := driver.ParseID(id); err != nil {
		t.Fatalf("the service was told %q: %v", id, err)
	}
	if a := ask(t, "GET", g.url+"/operations/"+id, "", "X-Account", "acme"); a.status != 200 || !strings.Contains(a.body, id) {
		t.Errorf("asked about: %d %s", a.status, a.body)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(g.log.String(), `"result":"executed","digest":"`+id+`"`) {
		t.Errorf("the log does not name %s:\n%s", id, g.log)
	}
}
