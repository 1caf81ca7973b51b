package gateway

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// load reads a configuration from the text of a file.
func load(t *testing.T, content string) (Config, error) {
	t.Helper()
	return LoadFile(writeFile(t, "gateway.yaml", content))
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// full is testdata/full.yaml, with a certificate that exists.
func full(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := newCertificate(t)
	return strings.NewReplacer("cert: cert.pem", "cert: "+files.Cert, "key: key.pem", "key: "+files.Key,
		"ca: internal-ca.pem", "ca: "+files.Cert, "cert: client.pem", "cert: "+files.Cert, "key: client.key", "key: "+files.Key).Replace(string(content))
}

func TestR73_AFileWithEverySettingIsRead(t *testing.T) {
	t.Parallel()
	c, err := load(t, full(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:8443" || c.Admin != "127.0.0.1:8081" || c.Upstream.String() != "https://127.0.0.1:9000/api" ||
		c.StoreAddress != "postgres://semel@127.0.0.1/payments?schema=semel" || c.CacheAddress != "redis://127.0.0.1" ||
		c.Breaker != (Breaker{Failures: 5, Open: time.Second}) || c.EncryptionKeysFile != "encryption.keys" || c.IdentitySecretFile != "identity.secret" || c.DerivationSecretFile != "derivation.secret" ||
		c.Scope.String() != "header:X-Account" || len(c.TrustedProxies) != 3 || c.CorrelationHeader != "X-Request-Ref" ||
		!slices.Equal(c.ReplayMarkers, []string{"Idempotent-Replayed", "X-Replayed"}) || c.HeaderNames["Idempotency-Status"] != "X-Protection" || c.HeaderNames["Idempotency-Retryable"] != "-" ||
		c.Caps != (Caps{MaxAttempts: 100, MaxKeys: -1, MaxOwed: 10000, MaxWaiting: 10000, MaxBodyMemory: 256 << 20, MaxTempSpace: 2 << 30, PrincipalShare: 0.1}) ||
		c.RequestLife != 30*time.Second || c.SweepInterval != time.Minute || c.TempDir != "/tmp" || c.Operations != "/operations" ||
		c.ShutdownTimeout != 40*time.Second || c.ProblemBase != "https://api.example.com/problems/" ||
		c.Documentation != "https://api.example.com/docs/idempotency" || c.Instance != "gateway-1" || c.UpstreamIdle != time.Second ||
		c.IdleTimeout != time.Minute || c.TunnelIdle != 10*time.Minute || c.MaxConnections != 4096 || c.Memory != (Memory{300, 1 << 30}) || c.Plain != PlainRefused ||
		c.ReadyWithoutStore != ReadyIfAnyFailsOpen || !reflect.DeepEqual(c.CORS, CORS{
		Origins: []string{"https://shop.example.com", "https://*.partner.example"}, Credentials: true, Methods: []string{"GET", "POST"},
		RequestHeaders: []string{"Authorization"}, ResponseHeaders: []string{"X-Payment-State"}, MaxAge: time.Hour,
	}) {
		t.Errorf("the settings of all routes are %+v", c)
	}
	want := []Route{
		{
			Match: "POST /payments", Unkeyed: UnkeyedRefuse, ReleaseOn: []int{503, 409}, Reconcile: "/internal/operations/{operation}",
			Authorize:  "/internal/may-see",
			KeyPattern: longest("[0-9a-f-]+"),
			Policy: semel.Policy{
				OnLost: semel.Hold, OnError: semel.KeepErrors, KeyHeaders: []string{"Idempotency-Key", "X-Idempotency-Key"},
				KeyFormat: semel.KeyFormat{UUID: semel.UUIDv4, MaxLength: 36},
				Fingerprint: semel.FingerprintPolicy{
					Exclude: []string{"/meta/sent_at", "/items/*/seen"}, NullIsAbsent: true, Headers: []string{"X-Api-Version"}, Host: true,
				},
				Lease: 30 * time.Second, MaxRun: 2 * time.Minute, Patience: 10 * time.Second, SettleWait: 5 * time.Second,
				Retention: 72 * time.Hour, MinRetention: 24 * time.Hour, MaxRetention: 13 * 7 * 24 * time.Hour, Tombstone: 720 * time.Hour, Wait: 2 * time.Second, MaxWait: 30 * time.Second, MaxWaiters: 16,
				MaxRequestBody: 64 << 10, MaxResponseBody: 1 << 20, CompressAbove: 8 << 10,
				StoreHeaders: []string{"Content-Type", "Location"}, Credentials: []string{"Authorization", "cookie:session"},
			},
			Problems: Problems{
				Statuses: map[refusal.Code]int{refusal.KeyReused: 409, "UPSTREAM_UNAVAILABLE": 502}, Simple: true,
				Documentation: "https://api.example.com/docs/payments",
			},
		},
		{
			Match: "POST /orders/{id}/confirm", Unkeyed: UnkeyedMint,
			Mint:   Mint{Fields: []string{"method", "path", "/order_id", "header:X-Client", "query:version"}, Window: 10 * time.Minute},
			KeepIf: &Condition{Pointer: "/status", Equals: `"COMPLETED"`, Statuses: []int{200, 201}},
			Policy: semel.Policy{MaxRun: time.Minute, Fingerprint: semel.FingerprintPolicy{Exclude: []string{"/sent_at"}}},
		},
		{Match: "POST /api-keys", KeepIf: &Condition{Pointer: "/id", Exists: true}, Policy: semel.Policy{NoStore: true}},
		{
			Match: "PUT /accounts/{id}",
			Policy: semel.Policy{
				Methods: []string{"PUT"}, OnLost: semel.Rerun, OnError: semel.ReleaseErrors, KeyField: "/request_id", PerOperation: true,
				Fingerprint: semel.FingerprintPolicy{ExcludeNames: []string{"trace_id"}}, Retention: semel.Forever, CompressAbove: -1,
				RespondAsync: true, Complete: true, SealHeaders: []string{"X-Region"}, Redact: []string{"/card/code"},
			},
		},
		{
			Match: "POST /uploads/", Unkeyed: UnkeyedMintRandom,
			Policy: semel.Policy{
				Fingerprint: semel.FingerprintPolicy{Exact: true}, MaxRequestBody: 100 << 20, SpoolRequestAbove: 1 << 20,
			},
		},
		{Match: "POST /reports", ReplayTo: ReplayToAnyone, Policy: semel.Policy{Stream: true, FailOpen: true}},
		{Match: "shop.example.com/", Policy: semel.Policy{ObserveOnly: true, Methods: []string{"POST", "PATCH", "PUT", "DELETE"}}},
	}
	for i, r := range c.Routes {
		if !reflect.DeepEqual(r, want[i]) {
			t.Errorf("route %d is\n%+v, want\n%+v", i, r, want[i])
		}
	}
	if len(c.Routes) != len(want) {
		t.Errorf("%d routes, want %d", len(c.Routes), len(want))
	}
}

func longest(pattern string) *regexp.Regexp {
	p := regexp.MustCompile(pattern)
	p.Longest()
	return p
}

func TestTheRoutesOfAFileArePrinted(t *testing.T) {
	t.Parallel()
	c, err := load(t, full(t))
	if err != nil {
		t.Fatal(err)
	}
	c.Store, c.Encryption = memstore.New(), newKeyring(t)
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := g.PrintRoutes(&printed); err != nil {
		t.Fatal(err)
	}
	want := `
ROUTE                      PROTECTS                 WITHOUT KEY  LOST   LEASE  DEADLINE  RETENTION  SPECIAL
default                    POST,PATCH,others keyed  pass         hold   30s    15m       24h
POST /payments             POST                     refuse       hold   30s    2m        72h        reconcile, authorize
POST /orders/{id}/confirm  POST                     mint         hold   30s    1m        24h        keep_if
POST /api-keys             POST                     pass         hold   30s    15m       24h        no_store, keep_if
PUT /accounts/{id}         PUT                      pass         rerun  30s    15m       forever    respond_async, complete
POST /uploads/             POST                     mint-random  hold   30s    15m       24h
POST /reports              POST                     pass         hold   30s    15m       24h        fails open, streams, replays to anyone
shop.example.com/          POST,PATCH,PUT,DELETE    pass         hold   30s    15m       24h        observes only
`
	if got := regexp.MustCompile(` +\n`).ReplaceAllString("\n"+printed.String(), "\n"); got != want {
		t.Errorf("printed is%s\nwant%s", got, want)
	}
}

func TestAnEmptyListIsNotTheSameAsNone(t *testing.T) {
	t.Parallel()
	c, err := load(t, minimal+"default: {store_headers: []}\n")
	if err != nil || c.Default.Policy.StoreHeaders == nil || len(c.Default.Policy.StoreHeaders) != 0 {
		t.Errorf("%v, %#v: want that no header is stored", err, c.Default.Policy.StoreHeaders)
	}
}

// The sample file is what users copy from: a setting that is not in it is one that nobody finds.
func TestTheSampleFileUsesEverySetting(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Concat(slices.Collect(maps.Keys(topSettings(&Config{}))), slices.Collect(maps.Keys(routeSettings(&Route{}))))
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^[ #-]*` + name + `:`).Match(content) {
			t.Errorf("%s is not used", name)
		}
	}
}

const minimal = "upstream: http://127.0.0.1:9000\nscope: single\n"

func TestAMinimalFileHasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != DefaultListen || c.Admin != DefaultAdmin || c.StoreAddress != DefaultStore || c.ShutdownTimeout != DefaultShutdownTimeout ||
		c.Default.Unkeyed != UnkeyedPass || c.Default.Policy.OnLost != semel.Hold || len(c.Routes) != 0 {
		t.Errorf("configuration is %+v", c)
	}
}

func TestR73_EveryMistakeInAFileHasItsPlace(t *testing.T) {
	t.Parallel()
	route := func(lines string) string { return minimal + "routes:\n  - match: POST /a\n" + lines }
	sealing := func(lines string) string {
		return minimal + "operations: /o\nencryption_keys_file: k\nroutes:\n  - match: POST /a\n    on_lost: rerun\n" + lines
	}
	for _, c := range []struct {
		name, content string
		want          []string // place and a part of the text
	}{
		// The YAML itself.
		{"empty", "", []string{"1:1: the file is empty"}},
		{"comments only", "# nothing\n", []string{"1:1: the file is empty"}},
		{"not a mapping", "- a\n", []string{"1:1: the file: want settings"}},
		{"nothing in it", "{}", []string{"1:1: no upstream", "1:1: no scope"}},
		{"unclosed quote", minimal + "listen: \"x\n", []string{"3:9: could not find end character"}},
		{"bad indentation", minimal + "problems:\n  base: x\n base: y\n", []string{"5:2:"}},
		{"tab", minimal + "problems:\n\tbase: x\n", []string{"4:1: found character"}},
		{"duplicate key", minimal + "listen: a:1\nlisten: b:1\n", []string{`4:1: mapping key "listen" already defined at [3:1]`}},
		{"duplicate in a route", route("    lease: 1s\n    lease: 2s\n"), []string{`6:5: mapping key "lease" already defined`}},
		{"two documents", minimal + "---\nlisten: a:1\n", []string{"4:1: the file has a second document"}},
		{"no such anchor", minimal + "listen: *there\n", []string{"3:9: "}},
		{"an anchor in itself", minimal + "default: &a\n  <<: *a\n", []string{"4:7: the anchor leads to itself"}},
		{"a list of anchors with itself", minimal + "default: &a\n  <<: [*a, *a]\n", []string{"4:8: the anchor leads to itself", "4:12: the anchor leads to itself"}},
		{"a merged text", minimal + "default: {<<: x}\n", []string{"3:15: << takes settings over from an anchor of such"}},
		{"an alias of itself", minimal + "listen: &a *a\n", []string{"3:"}},
		{"a tag", minimal + "listen: !!str 8080\n", []string{"3:9: tags are not used here"}},

		// Names and types.
		{"unknown setting", minimal + "lissen: a:1\n", []string{`3:1: unknown setting "lissen"; did you mean "listen"?`}},
		{"unknown in a route", route("    leese: 30s\n"), []string{`5:5: unknown setting "leese"; did you mean "lease"?`}},
		{"match in the default", minimal + "default:\n  match: /\n", []string{`4:3: unknown setting "match"`}},
		{"several at once", "lissen: a:1\nupstream: ftp://x\nscope: none\n", []string{
			`1:1: unknown setting "lissen"`, `2:11: upstream: "ftp://x": want http:// or https://`, `3:8: scope: "none": want header:NAME`,
		}},
		{"no value", minimal + "listen:\n", []string{"3:9: listen has no value"}},
		{"number for text", minimal + "listen: 8080\n", []string{"3:9: listen: want a text"}},
		{"text for bool", route("    stream: maybe\n"), []string{"5:13: stream: want true or false"}},
		{"YAML 1.1 bool", route("    stream: yes\n"), []string{"5:13: stream: want true or false"}},
		{"text for number", route("    max_waiters: many\n"), []string{`5:18: max_waiters: "many" is not a whole number`}},
		{"number for duration", route("    lease: 30\n"), []string{`5:12: lease: "30" is not a time such as 500ms, 30s, 24h or 3d`}},
		{"years", route("    retention: 3y\n"), []string{`5:16: retention: "3y" is not a time such as 500ms, 30s, 24h or 3d, or forever`}},
		{"list for duration", route("    lease: [30s]\n"), []string{"5:12: lease: want a time"}},
		{"size", route("    max_request_body: 1MB\n"), []string{`5:23: max_request_body: "1MB" is not a size in bytes such as 1024, 64KiB or 1MiB`}},
		{"negative size", route("    max_response_body: -1\n"), []string{`5:24: max_response_body: "-1" is not a size`}},
		{"huge size", route("    max_request_body: 9999999999GiB\n"), []string{`5:23: max_request_body: "9999999999GiB" is not a size`}},
		{"scalar for list", route("    methods: POST\n"), []string{"5:14: methods: want a list"}},
		{"number in a list", route("    key_headers: [7]\n"), []string{"5:19: key_headers[0]: want a text"}},
		{"scalar for settings", route("    mint: /id\n"), []string{"5:11: routes[0].mint: want settings"}},
		{"list for routes", minimal + "routes: {}\n", []string{"3:9: routes: want a list"}},
		{"choice", route("    on_lost: retry\n"), []string{`5:14: on_lost: "retry" is none of hold, rerun`}},
		{"unkeyed", route("    unkeyed: drop\n"), []string{`5:14: unkeyed: "drop" is none of mint, mint-random, pass, refuse`}},
		{"envelope", route("    problems: {envelope: xml}\n"), []string{`5:26: envelope: "xml" is none of problem, simple`}},
		{"status", route("    problems: {statuses: {IDEMPOTENCY_KEY_REUSED: conflict}}\n"), []string{`5:51: IDEMPOTENCY_KEY_REUSED: "conflict" is not a whole number`}},
		{"proxies", minimal + "trusted_proxies:\n  - 10.0.0.0/8\n  - proxy.internal\n", []string{`5:5: trusted_proxies[1]: trusted proxy "proxy.internal" is neither`}},

		// What the values mean.
		{"nothing but a listen", "listen: 127.0.0.1:1\n", []string{"1:1: no upstream", "1:1: no scope"}},
		{"listen", minimal + "listen: \"8080\"\nadmin: here\n", []string{`3:9: listen address "8080" is not host:port`, `4:8: admin address "here"`}},
		{"store", minimal + "store: mysql://u:secret@host\n", []string{`3:8: store "mysql://u:xxxxx@host": unknown kind`}},
		{"negative shutdown", minimal + "shutdown_timeout: -1s\nupstream_idle: -2s\n", []string{"3:19: shutdown_timeout is negative: -1s", "4:16: upstream_idle is negative"}},
		{"certificate", minimal + "tls: {cert: nowhere.pem, key: nowhere.pem}\n", []string{"3:6: tls: load certificate: open nowhere.pem"}},
		{"half a certificate", minimal + "tls: {cert: a.pem}\n", []string{"3:6: tls: there is a certificate but no key"}},
		{"scope header", "upstream: http://x\nscope: header:X Y\n", []string{`2:8: scope: "X Y" is not a header name`}},
		{"correlation header", minimal + "correlation_header: X Y\n", []string{`3:21: correlation_header: "X Y" is not a header name`}},
		{"problem base", minimal + "problems: {base: /problems/}\n", []string{`3:18: problems.base "/problems/" is not the beginning of an absolute URI`}},
		{"documentation", minimal + "problems: {documentation: \"a b\"}\n", []string{`3:27: problems.documentation "a b" is not a URI`}},
		{"negative lease", route("    lease: -1s\n"), []string{"5:12: lease is negative: -1s"}},
		{"negative in the default", minimal + "default: {wait: -1s}\n", []string{"3:17: wait is negative: -1s"}},
		{"short lease", route("    lease: 1ms\n"), []string{"5:12: lease is 1ms, want at least 3ms"}},
		{"short retention", route("    deadline: 1h\n    retention: 10m\n"), []string{"6:16: retention is 10m0s, want at least deadline + lease, which is 1h0m0s + 30s"}},
		{"long deadline", route("    deadline: 48h\n"), []string{"5:5: retention is 24h0m0s, want at least deadline + lease"}},
		{"wait bounds", route("    wait: 5s\n    max_wait: 1s\n"), []string{"6:15: max_wait is 1s, want at least wait, which is 5s"}},
		{"all of several", route("    lease: -1s\n    exclude: [/a, b]\n    release_on: [200, 503]\n"), []string{
			"5:12: lease is negative", `6:19: exclude: JSON Pointer "b" does not begin with /`, "7:18: release_on: 200 is no status from 300 to 599",
		}},
		{"method", route("    methods: [POST, post]\n"), []string{`5:21: methods: "post" is not an upper-case method name`}},
		{"safe method", route("    methods: [POST, GET]\n"), []string{"5:21: methods: GET is a safe method"}},
		{"another method", route("    methods: [PATCH]\n"), []string{"5:14: methods: the route is for POST, which is not among them"}},
		{"opt-in", minimal + "routes:\n  - match: PUT /a\n    unkeyed: refuse\n", []string{"5:14: unkeyed: without a key a PUT passes where methods does not name it: add methods: [PUT]"}},
		{"safe route", minimal + "routes:\n  - match: GET /a\n", []string{"4:12: match: GET is a safe method, which is never protected: leave the route out"}},
		{"no methods", route("    methods: []\n    key_headers: []\n"), []string{"5:14: methods: the list is empty; leave it out", "6:18: key_headers: the list is empty; leave it out"}},
		{"no proxies", minimal + "trusted_proxies: []\n", []string{"3:18: trusted_proxies: the list is empty; leave it out"}},
		{"key header", route("    key_headers: [Idempotency Key]\n"), []string{`5:19: key_headers: "Idempotency Key" is not a header name`}},
		{"key header that correlates", route("    key_headers: [X-Correlation-Id]\n"), []string{"5:19: key_headers: X-Correlation-Id carries the correlation id"}},
		{"key field", route("    key_field: id\n"), []string{`5:16: key_field: JSON Pointer "id" does not begin with /`}},
		{"key length", route("    key_max_length: 300\n"), []string{"5:21: key_max_length is 300, want 1 to 255"}},
		{"short uuid", route("    key_format: uuid\n    key_max_length: 20\n"), []string{"6:21: key_max_length is 20, but a UUID has 36 characters"}},
		{"pointer", route("    exclude:\n      - /a~2\n"), []string{`6:9: exclude: JSON Pointer "/a~2": ~ must be followed by 0 or 1`}},
		{"redacts nothing", route("    redact: [/a]\n"), []string{"5:13: redact without respond_async or complete: no request is stored"}},
		{"whole body", route("    exclude: [\"\"]\n"), []string{"5:14: exclude: an empty JSON Pointer stands for the whole body"}},
		{"excluded name", route("    exclude_names: [\"\"]\n"), []string{`5:21: exclude_names "" is empty or not UTF-8`}},
		{"exact", route("    byte_exact: true\n    exclude: [/a]\n"), []string{"5:17: byte_exact: every byte is compared, which can't go with exclude"}},
		{"compared header", route("    fingerprint_headers: [A, Content-Length]\n"), []string{"5:30: fingerprint_headers: Content-Length frames the message"}},
		{"stored header", route("    store_headers: [\"a b\"]\n"), []string{`5:21: store_headers: "a b" is not a header name`}},
		{"unknown code", route("    problems: {statuses: {KEY_REUSED: 409}}\n"), []string{`5:27: problems.statuses: unknown code "KEY_REUSED"`}},
		{"no error status", route("    problems: {statuses: {IDEMPOTENCY_KEY_REUSED: 200}}\n"), []string{"5:27: problems.statuses: 200 for IDEMPOTENCY_KEY_REUSED is not an error status"}},
		{"own code", route("    problems: {statuses: {UPSTREAM_BROKEN: 200}}\n"), []string{"5:44: problems.statuses: 200 for UPSTREAM_BROKEN is not an error status"}},
		{"mint without fields", route("    unkeyed: mint\n"), []string{"4:5: mint.fields: unkeyed: mint needs the fields that tell operations apart"}},
		{"mint without unkeyed", route("    mint: {fields: [path]}\n"), []string{"5:11: mint is only for unkeyed: mint"}},
		{"minted field", route("    unkeyed: mint\n    mint: {fields: [path, order_id]}\n"), []string{`6:27: mint.fields: "order_id" is none of a JSON Pointer`}},
		{"minted header", route("    unkeyed: mint\n    mint: {fields: [\"header:a b\"]}\n"), []string{`6:21: mint.fields: "a b" is not a header name`}},
		{"window", route("    unkeyed: mint\n    mint: {fields: [path], window: 10m}\n"), []string{"6:36: mint.window is 10m0s, want at least deadline + lease, which is 15m0s + 30s"}},
		{"window and key field", route("    unkeyed: mint\n    key_field: /id\n    mint: {fields: [path], window: 1h}\n"), []string{"7:36: mint.window does not go with key_field"}},
		{"condition", route("    keep_if: {pointer: status, equals: 1}\n"), []string{`5:24: keep_if: JSON Pointer "status" does not begin with /`}},
		{"half a condition", route("    keep_if: {pointer: /status}\n"), []string{"5:14: keep_if: want one of equals: VALUE, exists: true and absent: true"}},
		{"condition with a list", route("    keep_if: {pointer: /status, equals: [a]}\n"), []string{"5:41: equals: want a text, a number, true or false"}},
		{"condition's status", route("    keep_if: {pointer: /status, equals: a, status: [99]}\n"), []string{"5:53: keep_if.status: 99 is no status from 200 to 599"}},
		{"condition on a stream", route("    keep_if: {pointer: /status, equals: a}\n    stream: true\n"), []string{"5:14: keep_if does not go with stream"}},
		{"no pattern", minimal + "routes:\n  - unkeyed: refuse\n", []string{"4:5: match is missing"}},
		{"bad pattern", minimal + "routes:\n  - match: POST\n", []string{`4:12: match: parsing "POST": at offset 0: host/path missing /`}},
		{"bad wildcard", minimal + "routes:\n  - match: POST /{a}/{a}\n", []string{`4:12: match: parsing "POST /{a}/{a}"`}},
		{"pattern twice", minimal + "routes:\n  - match: POST /a\n  - match: POST /a\n", []string{`5:12: match: pattern "POST /a" conflicts with pattern "POST /a"`}},
		{"conflict", minimal + "routes:\n  - match: POST /a/{x}\n  - match: POST /{x}/b\n", []string{`5:12: match: pattern "POST /{x}/b" conflicts with pattern "POST /a/{x}"`}},
		{"reconcile", route("    reconcile: /operations\n"), []string{`5:16: reconcile "/operations": {operation} must stand`}},
		{"operations", minimal + "operations: operations/\n", []string{`3:13: operations "operations/" is not a path such as /operations`}},
		{"a route below operations", minimal + "operations: /op\nroutes:\n  - match: POST /op/{id}\n", []string{
			"5:12: match: POST /op/{id} is below operations, /op, where the gateway answers itself",
		}},
		{"async without what it needs", route("    respond_async: true\n"), []string{
			"5:20: respond_async and complete do not go with on_lost: hold, the default: they need on_lost: rerun", "5:20: respond_async stores requests, encrypted: encryption_keys_file is missing",
			"5:20: respond_async: operations is missing",
		}},
		{"async that streams", sealing("    respond_async: true\n    stream: true\n"), []string{"8:20: respond_async does not go with stream"}},
		{"redacted pointer", sealing("    complete: true\n    redact: [/a, b]\n"), []string{
			`9:18: redact: JSON Pointer "b" does not begin with /`,
		}},
		{"complete that fails open", sealing("    complete: true\n    fail_open: true\n"), []string{"8:5: respond_async and complete do not go with fail_open"}},
		{"complete that observes", sealing("    complete: true\n    observe: true\n"), []string{"8:5: respond_async and complete do not go with observe"}},
		{"complete without keys", route("    complete: true\n    on_lost: rerun\n"), []string{"5:15: complete stores requests, encrypted: encryption_keys_file is missing"}},
		{"seal_headers alone", route("    seal_headers: [X-Region]\n"), []string{"5:19: seal_headers without respond_async or complete"}},
		{"sealed credentials", minimal + "encryption_keys_file: k\nroutes:\n  - match: POST /a\n    on_lost: rerun\n    complete: true\n    seal_headers: [X-Region, Authorization]\n", []string{
			"8:30: seal_headers: Authorization can't be stored with a request: it carries credentials",
		}},
		{"merged", minimal + "default: &d\n  lease: -1s\nroutes:\n  - <<: *d\n    match: POST /a\n", []string{"4:10: lease is negative"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.content)
			if err == nil {
				t.Fatal("no error")
			}
			lines := errorLines(err)
			for i, want := range c.want {
				place := "gateway.yaml:" + want
				if i >= len(lines) || !strings.Contains(lines[i], place) {
					t.Errorf("error %d is not %q:\n%v", i, place, err)
				}
			}
			if len(lines) != len(c.want) {
				t.Errorf("%d errors, want %d:\n%v", len(lines), len(c.want), err)
			}
			if strings.Contains(err.Error(), ".go:") {
				t.Errorf("the error names the program's source:\n%v", err)
			}
		})
	}
}

func TestAMistakeIsShownInItsLine(t *testing.T) {
	t.Parallel()
	_, err := load(t, minimal+"routes:\n  - match: POST /a\n    leese: 30s\n")
	_, shown, _ := strings.Cut(err.Error(), "\n")
	if want := "     5 |     leese: 30s\n       |     ^"; shown != want {
		t.Errorf("shown is\n%s\nwant\n%s", shown, want)
	}
}

func TestAttack09_AMistakeInAnAddressShowsNoPassword(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"store: postgres//u:hunter2@db/x", `store: "postgres:u:hunter2@db/x"`, "store: host=db password=hunter2", "store: postgres://u:hunter2@db/x?sslmode=what",
		"store: postgres://u:hunter2@db/x?password=hunter2&notify=what", "cache: rediss//u:hunter2@cache",
	} {
		_, err := load(t, minimal+line+"\n")
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", line, err)
		}
	}
	_, err := load(t, "scope: single\nupstream: http://u:hunter2@127.0.0.1:9000\n")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("upstream: %v", err)
	}
}

func TestAFileThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := LoadFile(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "read configuration: open") {
		t.Errorf("error is %v", err)
	}
}

func TestAnAnchorCarriesSettingsIntoSeveralRoutes(t *testing.T) {
	t.Parallel()
	c, err := load(t, minimal+`
routes:
  - &payments
    match: POST /payments
    unkeyed: refuse
    release_on: &codes [409]
  - <<: *payments
    match: POST /refunds
    unkeyed: pass
  - match: POST /orders
    release_on: *codes
  - <<: [&wait {wait: 1s}, *payments]
    match: POST /both
`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Route{
		{Match: "POST /payments", Unkeyed: UnkeyedRefuse, ReleaseOn: []int{409}},
		{Match: "POST /refunds", Unkeyed: UnkeyedPass, ReleaseOn: []int{409}},
		{Match: "POST /orders", ReleaseOn: []int{409}},
		{Match: "POST /both", Unkeyed: UnkeyedRefuse, ReleaseOn: []int{409}, Policy: semel.Policy{Wait: time.Second}},
	} {
		if !reflect.DeepEqual(c.Routes[i], want) {
			t.Errorf("route %d is %+v, want %+v", i, c.Routes[i], want)
		}
	}
}

func TestASizeIsAWholeNumberAndAUnit(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"0": 0, "1024": 1024, "1B": 1, "64KiB": 64 << 10, "1 MiB": 1 << 20, "2GiB": 2 << 30} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "MiB", "1.5MiB", "+1", "1mib", "1 k", "9223372036854775807GiB", "9223372036854775808"} {
		if got, err := parseSize(bad); err == nil {
			t.Errorf("%q is %d, want an error", bad, got)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	sample, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	for _, seed := range []string{
		minimal, "- a", "? [a]\n: b", "a: &a {<<: *a}", "routes: [{<<: [*x, *y]}]", "&a : b", "*a : b", "default: !!map {}", "---\n...\n---\n",
		"problems: {base: |\n  x\n}", "\"a\\u0000\": 1", "default: {keep_if: {equals: .inf}}", "a: 'b", "\xff", "listen: |+\n\n", "routes: [,]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := parseConfig("gateway.yaml", content)
		if err == nil {
			if c.Store = memstore.New(); c.TLS != (TLSFiles{}) {
				return
			}
			if _, err := New(c); err != nil {
				t.Errorf("the file is right, but a gateway can't be made from it: %v", err)
			}
			return
		}
		for _, line := range errorLines(err) {
			if !strings.HasPrefix(line, "gateway.yaml:") {
				t.Errorf("an error without a place: %q", line)
			}
		}
	})
}
