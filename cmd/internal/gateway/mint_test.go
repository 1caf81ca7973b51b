package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func TestR76_AKeyIsMintedFromFields(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL, Route{Match: "POST /orders/{id}/confirm", Unkeyed: UnkeyedMint, Mint: Mint{
		Fields: []string{"method", "path", "/order/id", "header:X-Client", "query:version"},
	}})
	confirm := func(path, body, client string) answer {
		return ask(t, "POST", g.url+path, body, "Content-Type", "application/json", "X-Client", client)
	}
	first := confirm("/orders/7/confirm?version=1", `{"order":{"id":7},"amount":5}`, "c1")
	first.wants(t, 201, "")
	key := first.header.Get("Idempotency-Key")
	if !strings.HasPrefix(key, "minted-") || first.replayed() {
		t.Errorf("the answer tells the key %q, replayed %t", key, first.replayed())
	}
	if got := u.requests()[0].Header.Get("Idempotency-Key"); got != key {
		t.Errorf("the upstream got the key %q, the client %q", got, key)
	}
	again := confirm("/orders/7/confirm?version=1", `{"amount":5, "order":{"id":7}}`, "c1")
	again.wants(t, 201, "")
	if !again.replayed() || again.header.Get("Idempotency-Key") != key {
		t.Errorf("the repeat got the key %q, replayed %t", again.header.Get("Idempotency-Key"), again.replayed())
	}
	confirm("/orders/7/confirm?version=1", `{"order":{"id":7},"amount":6}`, "c1").wants(t, 422, refusal.KeyReused)

	for reason, a := range map[string]answer{
		"another path":   confirm("/orders/8/confirm?version=1", `{"order":{"id":7},"amount":5}`, "c1"),
		"another id":     confirm("/orders/7/confirm?version=1", `{"order":{"id":8},"amount":5}`, "c1"),
		"a text, not 7":  confirm("/orders/7/confirm?version=1", `{"order":{"id":"7"},"amount":5}`, "c1"),
		"another client": confirm("/orders/7/confirm?version=1", `{"order":{"id":7},"amount":5}`, "c2"),
		"another query":  confirm("/orders/7/confirm?version=2", `{"order":{"id":7},"amount":5}`, "c1"),
	} {
		a.wants(t, 201, "")
		if a.replayed() || a.header.Get("Idempotency-Key") == key {
			t.Errorf("%s: replayed %t under the key %q", reason, a.replayed(), a.header.Get("Idempotency-Key"))
		}
	}
	// A client that has learnt the key may send it.
	told := ask(t, "POST", g.url+"/orders/7/confirm?version=1", `{"order":{"id":7},"amount":5}`,
		"Content-Type", "application/json", "X-Client", "c1", "Idempotency-Key", key)
	told.wants(t, 201, "")
	if !told.replayed() {
		t.Error("a request with the key that was told is no replay")
	}
}

func TestR76_AFieldThatIsMissingRefusesTheRequest(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := routed(t, u.URL,
		Route{Match: "POST /body", Unkeyed: UnkeyedMint, Mint: Mint{Fields: []string{"/order/id"}}},
		Route{Match: "POST /rest", Unkeyed: UnkeyedMint, Mint: Mint{Fields: []string{"header:X-Client", "query:version"}}},
	)
	for _, c := range []struct{ target, body, client, says string }{
		{"/body", `{}`, "", "/order/id is missing in the body"},
		{"/body", `{"order":7}`, "", "/order/id is missing in the body"},
		{"/body", `{"order":{"id":null}}`, "", "/order/id is missing in the body"},
		{"/body", `{"order":{"id":""}}`, "", "/order/id is missing in the body"},
		{"/body", ``, "", "/order/id: the body is not valid JSON"},
		{"/body", `{"order":{"id":7}`, "", "/order/id: the body is not valid JSON"},
		{"/body", `order=7`, "", "/order/id: the body is not valid JSON"},
		{"/body", `{"order":{"id":{}}}`, "", "/order/id: not a string, number, boolean or null"},
		{"/body", `{"order":{"id":7,"id":8}}`, "", "/order/id: two names in one object are the same, or differ in case only"},
		{"/body", `{"order":{"id":7},"order":{"id":8}}`, "", "/order/id: two names in one object are the same, or differ in case only"},
		{"/rest?version=1", ``, "", "header:X-Client is missing"},
		{"/rest", ``, "c1", "query:version is missing"},
		{"/rest?version=", ``, "c1", "query:version is missing"},
	} {
		var header []string
		if c.client != "" {
			header = []string{"X-Client", c.client}
		}
		a := ask(t, "POST", g.url+c.target, c.body, header...)
		a.wants(t, 400, refusal.KeyInvalid)
		if !strings.Contains(a.body, c.says) {
			t.Errorf("%s %s: %s does not say %q", c.target, c.body, a.body, c.says)
		}
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("executed %d times", n)
	}
}

func TestR76_AWindowIsHowLongMintedKeysAreRemembered(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	var passed atomic.Int64
	began := time.Now()
	store, err := memstore.Open(memstore.Options{Clock: func() time.Time { return began.Add(time.Duration(passed.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, u.URL, func(c *Config) {
		c.Store = store
		c.Routes = []Route{{
			Match: "POST /orders", Unkeyed: UnkeyedMint, Mint: Mint{Fields: []string{"/id"}, Window: 10 * time.Minute},
			Policy: semel.Policy{MaxRun: time.Minute},
		}}
	})
	order := func(header ...string) answer {
		return ask(t, "POST", g.url+"/orders", `{"id":1}`, append(header, "Content-Type", "application/json")...)
	}
	first := order()
	keyed := order("Idempotency-Key", "own")
	first.wants(t, 201, "")
	keyed.wants(t, 201, "")
	key := first.header.Get("Idempotency-Key")
	if a := order("Idempotency-Key", "own"); !a.replayed() {
		t.Error("a repeat of a request with a key of its client's is no replay")
	}
	passed.Store(int64(10*time.Minute - time.Second))
	if a := order(); !a.replayed() {
		t.Error("a repeat within the window is no replay")
	}
	passed.Store(int64(10*time.Minute + time.Second))
	next := order()
	next.wants(t, 201, "")
	if next.replayed() || next.header.Get("Idempotency-Key") != key {
		t.Errorf("after the window: replayed %t under the key %q, want a new run under %q", next.replayed(), next.header.Get("Idempotency-Key"), key)
	}
	if a := order("Idempotency-Key", "own"); !a.replayed() {
		t.Error("the window has cut the retention of a key of its client's")
	}
}

func TestR76_ARandomKeyIsOnlyForTracing(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) { c.Default.Unkeyed = UnkeyedMintRandom })
	a, b := ask(t, "POST", g.url+"/", "x"), ask(t, "POST", g.url+"/", "x")
	a.wants(t, 201, "")
	b.wants(t, 201, "")
	ka, kb := a.header.Get("Idempotency-Key"), b.header.Get("Idempotency-Key")
	if !strings.HasPrefix(ka, "minted-") || ka == kb || b.replayed() || len(u.requests()) != 2 {
		t.Errorf("keys %q and %q, replayed %t, executed %d times", ka, kb, b.replayed(), len(u.requests()))
	}
	if r := u.requests()[0]; r.Header.Get("Idempotency-Key") != ka || r.Header.Get("Idempotency-Operation") == "" {
		t.Errorf("the upstream got the key %q of operation %q", r.Header.Get("Idempotency-Key"), r.Header.Get("Idempotency-Operation"))
	}
	if c := ask(t, "POST", g.url+"/", "x", "Idempotency-Key", ka); !c.replayed() {
		t.Error("the client can't find out with its key what became of the request")
	}
}

func TestR76_TwoTenantsDoNotShareAMintedKey(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL, func(c *Config) {
		c.Scope = Scope{header: "X-Account", set: true}
		c.Default = Route{Unkeyed: UnkeyedMint, Mint: Mint{Fields: []string{"path"}}}
	})
	ask(t, "POST", g.url+"/a", "", "X-Account", "acme").wants(t, 201, "")
	if a := ask(t, "POST", g.url+"/a", "", "X-Account", "globex"); a.status != 201 || a.replayed() {
		t.Errorf("another tenant got %d, replayed %t", a.status, a.replayed())
	}
}

// without the secret nobody can tell by a key which order it stands for.
func TestMintedKeysAreDigestsUnderTheSecret(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/a", nil)
	mint := func(pattern, secret string, fields ...string) string {
		key, err := Mint{Fields: fields}.minter(pattern, []byte(secret))(r, []byte(`{"ab":"c","a":"bc"}`))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	keys := map[string]string{}
	for name, key := range map[string]string{
		"plain":           mint("POST /a", "", "path"),
		"secret":          mint("POST /a", "0123456789abcdef", "path"),
		"another secret":  mint("POST /a", "0123456789abcdeg", "path"),
		"another pattern": mint("POST /{x}", "", "path"),
		"another field":   mint("POST /a", "", "method"),
		"two fields":      mint("POST /a", "", "path", "method"),
		"ab c":            mint("POST /a", "", "/ab"),
		"a bc":            mint("POST /a", "", "/a"),
	} {
		if other, seen := keys[key]; seen {
			t.Errorf("%s and %s make the same key", name, other)
		}
		keys[key] = name
	}
	if a, b := mint("POST /a", "", "path"), mint("POST /a", "", "path"); a != b {
		t.Errorf("one request made %s and %s", a, b)
	}
}

func TestAMintedKeyIsTheSameAfterARestart(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	store := memstore.New()
	minted := func(c *Config) {
		c.Store, c.IdentitySecret = store, []byte("0123456789abcdef")
		c.Default = Route{Unkeyed: UnkeyedMint, Mint: Mint{Fields: []string{"path"}}}
	}
	first := start(t, u.URL, minted)
	ask(t, "POST", first.url+"/a", "").wants(t, 201, "")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, "POST", start(t, u.URL, minted).url+"/a", ""); a.status != http.StatusCreated || !a.replayed() {
		t.Errorf("after a restart: %d, replayed %t", a.status, a.replayed())
	}
}

func TestAPointerLeadsToAScalar(t *testing.T) {
	t.Parallel()
	const body = `{"a":{"b/c":[10,{"~":"x"},true,null]},"n":1.0,"big":9007199254740993,"":"empty","*":"star"}`
	for pointer, want := range map[string]string{
		"/a/b~1c/0": "n10", "/a/b~1c/1/~0": "sx", "/a/b~1c/2": "ltrue", "/a/b~1c/3": "lnull", "/n": "n1.0",
		"/big": "n9007199254740993", "/": "sempty", "/*": "sstar",
		"/a/b~1c/00": errNoMember.Error(), "/a/b~1c/4": errNoMember.Error(), "/a/b~1c/-": errNoMember.Error(), "/b": errNoMember.Error(),
		"/n/x": errNoMember.Error(), "/a": errNotScalar.Error(), "/A": errNoMember.Error(),
	} {
		tokens, err := parsePointer(pointer)
		if err != nil {
			t.Fatal(err)
		}
		v, err := scalarAt([]byte(body), tokens)
		got := string(v.kind) + v.text
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s is %q, want %q", pointer, got, want)
		}
	}
	for body, pointer := range map[string]string{
		`{"a":1,"a":2}`: "/a", `{"a":1,"A":2}`: "/a", `{"b":{},"B":{"a":1},"c":2}`: "/b/a", `{"a":{"k":1,"K":2}}`: "/a/k",
	} {
		tokens, err := parsePointer(pointer)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := scalarAt([]byte(body), tokens); !errors.Is(err, errTwice) {
			t.Errorf("%s in %s is %q, %v", pointer, body, v.text, err)
		}
	}
	for _, bad := range []string{"", "a", "/~", "/~2", "/a~"} {
		if _, err := parsePointer(bad); err == nil {
			t.Errorf("%q is a JSON Pointer", bad)
		}
	}
}
