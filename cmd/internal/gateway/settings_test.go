package gateway

import (
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// Where each field of the library's options stands in the file; or, in parentheses, why it does not.
var inFile = map[string]string{
	"Options.Policy":            "default",
	"Options.IdentitySecret":    "identity_secret_file",
	"Options.DerivationSecret":  "derivation_secret_file",
	"Options.Observer":          "(the gateway's own log and metrics)",
	"Options.Problems":          "problems",
	"Options.ReplayMarkers":     "replay_markers",
	"Options.HeaderNames":       "header_names",
	"Options.CorrelationHeader": "correlation_header",
	"Options.Codec":             "(a function)",
	"Options.Encryption":        "encryption_keys_file",
	"Options.StepCodec":         "(no handler with steps runs in the gateway)",
	"Options.MaxStepResult":     "(no handler with steps runs in the gateway)",
	"Options.Operations":        "operations",
	"Options.Breaker":           "breaker",
	"Options.MaxAttempts":       "caps",
	"Options.MaxKeys":           "caps",
	"Options.MaxOwed":           "caps",
	"Options.MaxWaiting":        "caps",
	"Options.MaxBodyMemory":     "caps",
	"Options.MaxTempSpace":      "caps",
	"Options.PrincipalShare":    "caps",
	"Options.RequestLife":       "request_life",
	"Options.SweepInterval":     "sweep_interval",
	"Options.TempDir":           "temp_dir",

	"Policy.OnLost":            "on_lost",
	"Policy.OnError":           "on_error",
	"Policy.EmptyOK":           "(the proxy writes an answer)",
	"Policy.KeepOnlySuccess":   "keep_only_success",
	"Policy.Decide":            "keep_if",
	"Policy.Methods":           "methods",
	"Policy.KeyHeaders":        "key_headers",
	"Policy.KeyField":          "key_field",
	"Policy.KeyOptional":       "unkeyed",
	"Policy.Mint":              "mint",
	"Policy.KeyFormat":         "key_format",
	"Policy.PerOperation":      "per_operation",
	"Policy.Fingerprint":       "exclude",
	"Policy.Operation":         "(the route's pattern)",
	"Policy.Lease":             "lease",
	"Policy.MaxRun":            "deadline",
	"Policy.Patience":          "client_timeout",
	"Policy.SettleWait":        "settle_wait",
	"Policy.Retention":         "retention",
	"Policy.MinRetention":      "min_retention",
	"Policy.MaxRetention":      "max_retention",
	"Policy.Tombstone":         "tombstone",
	"Policy.Wait":              "wait",
	"Policy.MaxWait":           "max_wait",
	"Policy.MaxWaiters":        "max_waiters",
	"Policy.MaxRequestBody":    "max_request_body",
	"Policy.SpoolRequestAbove": "spool_request_above",
	"Policy.MaxResponseBody":   "max_response_body",
	"Policy.NoStore":           "no_store",
	"Policy.CompressAbove":     "compress_above",
	"Policy.OneCommit":         "(the service's effects are not in the store's database)",
	"Policy.RespondAsync":      "respond_async",
	"Policy.Complete":          "complete",
	"Policy.SealHeaders":       "seal_headers",
	"Policy.Redact":            "redact",
	"Policy.Problems":          "problems",
	"Policy.Stream":            "stream",
	"Policy.StoreHeaders":      "store_headers",
	"Policy.Credentials":       "credentials",
	"Policy.AuthorizeReplay":   "authorize",
	"Policy.FailOpen":          "fail_open",
	"Policy.ObserveOnly":       "observe",

	"KeyFormat.Strict":    "strict_quoting",
	"KeyFormat.UUID":      "key_format",
	"KeyFormat.MaxLength": "key_max_length",
	"KeyFormat.Check":     "key_pattern",

	"FingerprintPolicy.Exact":        "byte_exact",
	"FingerprintPolicy.Exclude":      "exclude",
	"FingerprintPolicy.ExcludeNames": "exclude_names",
	"FingerprintPolicy.NullIsAbsent": "absent_equals_null",
	"FingerprintPolicy.Headers":      "fingerprint_headers",
	"FingerprintPolicy.Host":         "compare_host",

	"ProblemOptions.Base":          "problems",
	"ProblemOptions.Status":        "problems",
	"ProblemOptions.Documentation": "problems",
	"ProblemOptions.Write":         "problems",
}

func TestField21_WhatGoHasIsInTheFile(t *testing.T) {
	t.Parallel()
	settings := topSettings(&Config{})
	maps.Copy(settings, routeSettings(&Route{}))
	seen := map[string]bool{}
	for _, options := range []any{semel.Options{}, semel.Policy{}, semel.KeyFormat{}, semel.FingerprintPolicy{}, semel.ProblemOptions{}} {
		of := reflect.TypeOf(options)
		for i := range of.NumField() {
			name := of.Name() + "." + of.Field(i).Name
			seen[name] = true
			at, known := inFile[name]
			if _, is := settings[at]; !known || !is && at[0] != '(' {
				t.Errorf("%s has no setting in the file; is said to be %q", name, at)
			}
		}
	}
	for name := range inFile {
		if !seen[name] {
			t.Errorf("%s is no option any more", name)
		}
	}
}

func TestField21_TheNearestNameIsSuggested(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(routeSettings(&Route{})))
	for wrote, want := range map[string]string{
		"retantion": "retention", "retension": "retention", "Retention": "retention", "on-lost": "on_lost", "onlost": "on_lost",
		"deadlin": "deadline", "stremas": "stream", "key_header": "key_headers", "max_response_bdoy": "max_response_body",
		"colour": "", "x": "", "": "",
	} {
		if got := nearest(wrote, names); got != want {
			t.Errorf("%q is taken for %q, want %q", wrote, got, want)
		}
	}
	for content, want := range map[string]string{
		minimal + "routes:\n  - match: POST /a\n    retantion: 3d\n": `unknown setting "retantion"; did you mean "retention"?`,
		minimal + "retention: 3d\n":                                  `unknown setting "retention"; retention belongs below default, or to a route`,
		minimal + "retantion: 3d\n":                                  `unknown setting "retantion"; retention belongs below default, or to a route`,
		minimal + "colour: red\n":                                    `unknown setting "colour"; there are admin, `,
		minimal + "caps: {max_key: 1}\n":                             `unknown setting "max_key"; did you mean "max_keys"?`,
	} {
		if _, err := load(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}

func TestField21_DaysAndWeeksAreTimes(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for in, want := range map[string]time.Duration{
		"3d": 3 * day, "1w": 7 * day, "2w3d": 17 * day, "1d12h30m": 36*time.Hour + 30*time.Minute, "0d": 0, "90s": 90 * time.Second,
		"1.5h": 90 * time.Minute, "-1s": -time.Second, "1w1ns": 7*day + 1, "0": 0, "106751d": 106751 * day,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "d", "3", "3D", "1.5d", "-3d", "1d-1h", "1d+1h", "1d2w", "3y", "1d1", "106752d", "106751d24h", "99999999999999999999d", "1 d"} {
		if got, err := ParseDuration(bad); err == nil || !strings.Contains(err.Error(), "3d") {
			t.Errorf("%q is %v, %v; want an error that says how times are written", bad, got, err)
		}
	}
	for in, want := range map[string]time.Duration{"3600": time.Hour, "2d": 2 * day, "forever": semel.Forever, "99999999999999999": 9223372036 * time.Second} {
		if got, err := parseRetention(in); err != nil || got != want {
			t.Errorf("%q is kept for %v, %v; want %v", in, got, err, want)
		}
	}
}

func TestField21_AZeroThatWouldMeanTheDefaultIsRefused(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"default: {max_response_body: 0}":                               "max_response_body: 0 is none; to store no answer say no_store: true",
		"default: {max_request_body: 0KiB}":                             "max_request_body: 0 is none; leave it out for the default",
		"default: {spool_request_above: 0}":                             "spool_request_above: 0 is none; say 1",
		"default: {max_waiters: 0}":                                     "max_waiters: 0 is none; without waiters say wait: 0s",
		"default: {key_max_length: 0}":                                  "key_max_length: 0 is none",
		"default: {lease: 0s}":                                          "lease: 0 is none",
		"default: {deadline: 0s}":                                       "deadline: 0 is none",
		"default: {settle_wait: 0s}":                                    "settle_wait: 0 is none",
		"default: {retention: 0d}":                                      "retention: 0 is none",
		"default: {max_retention: 0s}":                                  "max_retention: 0 is none",
		"breaker: {failures: 0}":                                        "failures: 0 is none",
		"breaker: {open: 0s}":                                           "open: 0 is none",
		"upstream_idle: 0s":                                             "upstream_idle: 0 is none",
		"shutdown_timeout: 0s":                                          "shutdown_timeout: 0 is none",
		"request_life: 0s":                                              "request_life: 0 is none",
		"caps: {max_attempts: 0}":                                       `max_attempts: "0" is not a whole number from 1 on, or none`,
		"caps: {max_owed: 0}":                                           "max_owed: 0 is none",
		"caps: {max_waiting: -1}":                                       "caps.max_waiting is negative: -1",
		"caps: {principal_share: 0}":                                    `principal_share: "0" is no part above 0 and at most 1`,
		"caps: {principal_share: 1.5}":                                  `principal_share: "1.5" is no part`,
		"request_life: -1s":                                             "request_life is negative: -1s",
		"request_life: 61s":                                             "request_life is 1m1s, at most 1m0s",
		"temp_dir: /nowhere/at/all":                                     "temp_dir: stat /nowhere/at/all",
		"replay_markers: [a b]":                                         `replay_markers: "a b" is not a header name`,
		"header_names: {X: Y}":                                          `header_names: "X" is none of Idempotency-Expires, Idempotency-Retryable, Idempotency-Status`,
		"default: {key_pattern: \"[\"}":                                 `key_pattern: "[" is no regular expression`,
		"default: {min_retention: 1s}":                                  "min_retention is 1s, want at least deadline + lease",
		"default: {max_retention: 1h}":                                  "max_retention is 1h0m0s, want at least retention, which is 24h0m0s",
		"scope: \"header:X-Tenant,X User\"":                             `scope: "X User" is not a header name`,
		"default: {keep_if: {pointer: /a}}":                             "keep_if: want one of equals: VALUE, exists: true and absent: true",
		"default: {keep_if: {exists: true}}":                            "keep_if: pointer is missing",
		"default: {keep_if: {pointer: /a, equals: 1, exists: true}}":    "keep_if: want one of",
		"default: {keep_if: {pointer: /a, absent: true, exists: true}}": "keep_if: want one of",
		"operations: /o\nencryption_keys_file: k\ndefault: {no_store: true, respond_async: true, on_lost: rerun}": "no_store does not go with respond_async",
	} {
		content := "upstream: http://127.0.0.1:9000\n" + line + "\n"
		if !strings.HasPrefix(line, "scope:") {
			content += "scope: single\n"
		}
		if _, err := load(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	if _, err := load(t, minimal+"default: {wait: 0s, client_timeout: 0s, tombstone: 0s}\n"); err != nil {
		t.Errorf("where 0 means what it says: %v", err)
	}
}

// configured starts a gateway in front of u as a file says, for one route.
func configured(t *testing.T, u *upstream, lines string) *running {
	t.Helper()
	c, err := load(t, "upstream: "+u.URL+"\n"+lines)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, u.URL, func(to *Config) {
		c.Listen, c.Admin, c.Store, c.Log, c.Instance, c.StoreAddress = to.Listen, to.Admin, memstore.New(), to.Log, to.Instance, ""
		*to = c
	})
}

func TestField21_R60_CapsAreSettings(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := configured(t, u, "scope: header:X-Account\ncaps: {max_attempts: 2, max_keys: 3}\n")
	send := func(key string) answer {
		return ask(t, "POST", g.url+"/a", "", "X-Account", "acme", "Idempotency-Key", key)
	}
	for range 2 {
		if a := send("k"); a.status != http.StatusCreated {
			t.Errorf("within the limit: %d %s", a.status, a.body)
		}
	}
	if a := send("k"); a.status != http.StatusTooManyRequests || !strings.Contains(a.body, string(refusal.TooManyAttempts)) {
		t.Errorf("third attempt: %d %s", a.status, a.body)
	}
	send("l")
	send("m")
	if a := send("n"); a.status != http.StatusTooManyRequests || !strings.Contains(a.body, string(refusal.TooManyKeys)) {
		t.Errorf("fourth key: %d %s", a.status, a.body)
	}
}

func TestField21_R6_AKeyMustMatchThePatternOfItsRoute(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := configured(t, u, "scope: single\ndefault: {key_pattern: \"ORD-[0-9]+|O[0-9]\", key_max_length: 8}\n")
	for key, want := range map[string]int{
		"ORD-17": 201, "O1": 201, `"ORD-18"`: 201, "ORD-": 400, "xORD-17": 400, "ORD-17x": 400, "O12": 400, "ORD-12345": 400,
	} {
		if a := ask(t, "POST", g.url+"/a", "", "Idempotency-Key", key); a.status != want {
			t.Errorf("%s: %d %s, want %d", key, a.status, a.body, want)
		}
	}
	if a := ask(t, "POST", g.url+"/a", "", "Idempotency-Key", "secret-1"); !strings.Contains(a.body, "does not match ORD-[0-9]+|O[0-9]") || strings.Contains(a.body, "secret") {
		t.Errorf("the refusal is %s", a.body)
	}
}

func TestField21_NoAnswerOfARouteWithNoStoreIsGivenTwice(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := configured(t, u, "scope: single\nroutes: [{match: POST /api-keys, no_store: true}]\n")
	if got := repeated(t, g, u, "/api-keys"); got != goneFor {
		t.Errorf("a repeat %s", got)
	}
	if n := len(u.requests()); n != 1 {
		t.Errorf("executed %d times, want once", n)
	}
}

func TestField21_R10_TwoScopeHeadersAreOnePrincipal(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := configured(t, u, "scope: header:X-Tenant, X-User\n")
	send := func(header ...string) answer {
		return ask(t, "POST", g.url+"/a", "", append(header, "Idempotency-Key", "k")...)
	}
	for _, who := range [][]string{{"X-Tenant", "a", "X-User", "b"}, {"X-Tenant", "b", "X-User", "a"}, {"X-Tenant", "a", "X-User", "c"}} {
		if a := send(who...); a.status != http.StatusCreated || a.replayed() {
			t.Errorf("%v: %d, replayed %t", who, a.status, a.replayed())
		}
		if a := send(who...); !a.replayed() {
			t.Errorf("%v again: %d %s", who, a.status, a.body)
		}
	}
	for _, half := range [][]string{{"X-Tenant", "a"}, {"X-User", "b"}, {}} {
		if a := send(half...); a.status != http.StatusBadRequest {
			t.Errorf("%v: %d, want 400", half, a.status)
		}
	}
	seen := u.requests()
	if len(seen) != 3 || seen[0].Header.Get("X-Tenant") != "a" || seen[0].Header.Get("X-User") != "b" {
		t.Errorf("the service was asked %d times, first for %v", len(seen), seen[0].Header)
	}
}

func TestField21_APrincipalOfSeveralHeadersIsTakenApart(t *testing.T) {
	t.Parallel()
	two := Scope{header: "x-tenant,X-User", set: true}
	if got, err := two.values("4:acme3:ann"); err != nil || !slices.Equal(got, []string{"acme", "ann"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := two.values("3:1:x1:2"); err != nil || !slices.Equal(got, []string{"1:x", "2"}) {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"acme", "4:acme", "4:acme3:ann1:x", "9:acme", "-1:x1:y", "4:acme3:annx", ""} {
		if got, err := two.values(bad); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
	if got, err := (Scope{header: "X-Account", set: true}).values("4:acme3:ann"); err != nil || !slices.Equal(got, []string{"4:acme3:ann"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestField21_R53_TheUpstreamSaysHowLongItsAnswerIsKept(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]time.Duration{
		"7200": 2 * time.Hour, "2h": 2 * time.Hour, "2d": 48 * time.Hour, "60": time.Hour, "forever": 72 * time.Hour,
		"0": 24 * time.Hour, "-5": 24 * time.Hour, "soon": 24 * time.Hour, "": 24 * time.Hour,
	} {
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotency-Retention", said)
			w.WriteHeader(http.StatusCreated)
		})
		g := configured(t, u, "scope: single\ndefault: {min_retention: 1h, max_retention: 3d}\n")
		before := time.Now().Add(-time.Second)
		a := ask(t, "POST", g.url+"/a", "", "Idempotency-Key", "k")
		again := ask(t, "POST", g.url+"/a", "", "Idempotency-Key", "k")
		until, err := http.ParseTime(a.header.Get("Idempotency-Expires"))
		if early, late := before.Add(want), time.Now().Add(want); err != nil || until.Before(early.Truncate(time.Second)) || until.After(late) || !again.replayed() {
			t.Errorf("%q: kept until %v, %v; want between %v and %v", said, until, err, early, late)
		}
		for _, h := range []http.Header{a.header, again.header, ask(t, "POST", g.url+"/a", "").header} {
			if h["Idempotency-Retention"] != nil {
				t.Errorf("%q: a client is shown %v", said, h)
			}
		}
		misunderstood := want == 24*time.Hour
		if got := strings.Contains(g.log.String(), "upstream named no time"); got != misunderstood {
			t.Errorf("%q: warned %t, want %t", said, got, misunderstood)
		}
	}
}

func TestField21_R44_ARouteKeepsWhatHasAMemberOrHasNone(t *testing.T) {
	t.Parallel()
	exists, absent := &Condition{Pointer: "/charge/id", Exists: true}, &Condition{Pointer: "/error", Absent: true}
	for _, c := range []struct {
		condition *Condition
		body      string
		want      semel.Verdict
	}{
		{exists, `{"charge":{"id":"ch_1"}}`, semel.VerdictKeep},
		{exists, `{"charge":{"id":{}}}`, semel.VerdictKeep},
		{exists, `{"charge":{"id":[]}}`, semel.VerdictKeep},
		{exists, `{"charge":{"id":false}}`, semel.VerdictKeep},
		{exists, `{"charge":{"id":""}}`, semel.VerdictKeep},
		{exists, `{"charge":{"id":null}}`, semel.VerdictRelease},
		{exists, `{"charge":{}}`, semel.VerdictRelease},
		{exists, `{"charge":null}`, semel.VerdictRelease},
		{exists, `[]`, semel.VerdictRelease},
		{exists, `{"charge":{"id":1,"ID":2}}`, semel.VerdictLost},
		{exists, `{"charge":`, semel.VerdictLost},
		{exists, ``, semel.VerdictLost},
		{absent, `{}`, semel.VerdictKeep},
		{absent, `{"error":null}`, semel.VerdictKeep},
		{absent, `{"error":"declined"}`, semel.VerdictRelease},
		{absent, `{"error":{"code":1}}`, semel.VerdictRelease},
		{absent, `{"error":false}`, semel.VerdictRelease},
		{absent, `{"error":1,"error":1}`, semel.VerdictLost},
		{absent, `not JSON`, semel.VerdictLost},
	} {
		if got := c.condition.verdict([]byte(c.body)); got != c.want {
			t.Errorf("%+v of %s: %d, want %d", *c.condition, c.body, got, c.want)
		}
	}
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"error":"try again"}`)
	})
	g := configured(t, u, "scope: single\ndefault: {keep_if: {pointer: /error, absent: true}}\n")
	if got := repeated(t, g, u, "/a"); got != runsAgain {
		t.Errorf("a repeat %s", got)
	}
}

func TestField21_WhatWouldMakeRepeatsRunIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines string
		want  []string
	}{
		{"scope: header:Authorization\n", []string{`the scope is a credential`}},
		{"scope: header:X-Tenant,X-Access-Token\n", []string{`"header":"X-Access-Token"`}},
		{"scope: header:X-Account\n", nil},
		{"scope: single\ndefault: {unkeyed: mint, mint: {fields: [/order_id]}}\n", []string{`repeats without a key are compared by their whole bodies`}},
		{"scope: single\ndefault: {unkeyed: mint, mint: {fields: [/order_id]}, exclude: []}\n", nil},
		{"scope: single\ndefault: {unkeyed: mint, mint: {fields: [/order_id, path]}, exclude: [/sent_at]}\n", nil},
		{
			"scope: single\ndefault: {unkeyed: mint, mint: {fields: [/meta/sent_at, \"header:X-Request-Id\", \"query:ts\", /id]}, exclude: []}\n",
			[]string{`"field":"/meta/sent_at"`, `"field":"header:X-Request-Id"`, `"field":"query:ts"`},
		},
		{"scope: single\ncorrelation_header: X-Call\ndefault: {unkeyed: mint, mint: {fields: [\"header:x-call\"]}, exclude: []}\n", []string{`"field":"header:x-call"`}},
	} {
		log := configured(t, newUpstream(t, created), c.lines).log.String()
		for _, want := range c.want {
			if !strings.Contains(log, want) {
				t.Errorf("%s: no warning %s in\n%s", c.lines, want, log)
			}
		}
		n := strings.Count(log, "the scope is a credential") + strings.Count(log, "compared by their whole bodies") + strings.Count(log, "keys are minted from what differs")
		if n != len(c.want) {
			t.Errorf("%s: %d warnings, want %d:\n%s", c.lines, n, len(c.want), log)
		}
	}
}
