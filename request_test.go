package semel_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// codeOf returns the code of a problem, "" if the answer is none.
func codeOf(w *httptest.ResponseRecorder) refusal.Code {
	if w.Header().Get("Content-Type") != "application/problem+json" {
		return ""
	}
	_, rest, _ := strings.Cut(w.Body.String(), `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return refusal.Code(code)
}

// checkProblem checks that an answer is a given problem.
func checkProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code refusal.Code) {
	t.Helper()
	if w.Code != status || codeOf(w) != code {
		t.Errorf("answered %d %s %q, want %d %s", w.Code, codeOf(w), w.Body, status, code)
	}
	if got := w.Header().Get("Idempotent-Replayed"); got != "" {
		t.Errorf("a problem is marked as a replay: %q", got)
	}
}

// checkRun checks that an answer is a first one, and checkReplay that it is a repeat's.
func checkRun(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("answered %d %q, replayed=%q; want a first 201", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
}

func checkReplay(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("answered %d %q, replayed=%q; want a replayed 201", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
}

func checkEffects(t *testing.T, l *ledger, want int) {
	t.Helper()
	if got := l.count(); got != want {
		t.Errorf("%d effects, want %d", got, want)
	}
}

// checkRecords checks how many records a memory store holds.
func checkRecords(t *testing.T, s *memstore.Store, want int) {
	t.Helper()
	if got := s.Len(); got != want {
		t.Errorf("%d records are stored, want %d", got, want)
	}
}

// payHandler returns a handler that pays into a ledger under the policy, its store and its events.
func payHandler(t *testing.T, p semel.Policy) (http.Handler, *ledger, *memstore.Store, *events) {
	t.Helper()
	s, l := memstore.New(), &ledger{}
	g, seen := newGuard(t, s, p)
	return g.Wrap(http.HandlerFunc(l.pay)), l, s, seen
}

func TestR1_R5_QuotedAndBareFormsAreOneKey(t *testing.T) {
	t.Parallel()
	h, l, s, _ := payHandler(t, semel.Policy{})
	checkRun(t, answer(h, post(`"abc-123"`, `{}`)))
	for _, same := range []string{`abc-123`, ` "abc-123" `, "\tabc-123", `"abc-123";v=1;w`, `"abc-123"; sent="x"`} {
		w := answer(h, post(same, `{}`))
		checkReplay(t, w)
		if got := w.Header().Get("Idempotency-Key"); got != same {
			t.Errorf("%q is echoed as %q", same, got)
		}
	}
	checkRun(t, answer(h, post(`ABC-123`, `{}`))) // case-sensitive
	checkEffects(t, l, 2)
	checkRecords(t, s, 2)
}

func TestR1_R2_R3_R62_AMalformedKeyIsRefusedAndNeverTakenForNone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ value, rule string }{
		{``, "empty"},
		{`""`, "empty"},
		{"  ", "empty"},
		{`"abc`, "quote is not closed"},
		{`"a\bc"`, "backslash may only stand before"},
		{`"a\"c"`, "is not allowed"}, // the escape is legal, the decoded key is not
		{`"abc"x`, "only parameters may follow"},
		{`"abc", "abc"`, "only parameters may follow"},
		{`a,b`, "is not allowed"},
		{`a b`, "is not allowed"},
		{"a\x00b", "byte 0x00"},
		{"a\rb", "byte 0x0d"},
		{"a\nb", "byte 0x0a"},
		{"\"a\x7fb\"", "byte 0x7f"},
		{"\"a\xffb\"", "byte 0xff"},
		{"clé", "byte 0xc3"},
		{strings.Repeat("k", 256), "longer than 255 characters"},
	} {
		for _, optional := range []bool{false, true} {
			h, l, s, seen := payHandler(t, semel.Policy{KeyOptional: optional})
			r := post("", `{}`)
			r.Header["Idempotency-Key"] = []string{tc.value}
			w := answer(h, r)
			checkProblem(t, w, http.StatusBadRequest, refusal.KeyInvalid)
			if !strings.Contains(w.Body.String(), tc.rule) {
				t.Errorf("%q: the problem does not name the rule %q: %s", tc.value, tc.rule, w.Body)
			}
			checkEffects(t, l, 0)
			checkRecords(t, s, 0)
			if got := seen.results(); !slices.Equal(got, []event.Result{event.Refused}) {
				t.Errorf("%q: decided %v, want refused", tc.value, got)
			}
		}
	}
}

func TestR62_KeysThatMeanSomethingElsewhereAreInert(t *testing.T) {
	t.Parallel()
	h, l, s, _ := payHandler(t, semel.Policy{})
	keys := []string{`'--`, `'OR'1'='1`, `"'"`, `../../etc/passwd`, `%00`, `%0d%0aX:1`, `${jndi:ldap://x}`, `{{7*7}}`, `*`, `$0`, `<script>`}
	for _, k := range keys {
		checkRun(t, answer(h, post(k, `{}`)))
		checkReplay(t, answer(h, post(k, `{}`)))
	}
	checkEffects(t, l, len(keys))
	checkRecords(t, s, len(keys))
	checkProblem(t, answer(h, post(`'; DROP TABLE records`, `{}`)), 400, refusal.KeyInvalid)
}

func TestR4_TwoFieldLinesAreRefused(t *testing.T) {
	t.Parallel()
	for _, lines := range [][]string{{"k", "k"}, {"k", "other"}, {"k", ""}, {"", "k"}} {
		h, l, s, _ := payHandler(t, semel.Policy{})
		r := post("", `{}`)
		r.Header["Idempotency-Key"] = lines
		checkProblem(t, answer(h, r), 400, refusal.KeyInvalid)
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
	}
}

func TestR6_TheRoutesFormatIsAppliedAndItsRuleNamed(t *testing.T) {
	t.Parallel()
	const v1, v4 = "c232ab00-9414-11ec-b3c8-9e6bdeced846", "919108f7-52d1-4320-9bac-f847db4148a8"
	for _, tc := range []struct {
		format semel.KeyFormat
		key    string
		broken string // "" if the key is accepted
	}{
		{semel.KeyFormat{Strict: true}, `"k"`, ""},
		{semel.KeyFormat{Strict: true}, `k`, "not in quotes"},
		{semel.KeyFormat{UUID: semel.UUIDAny}, v1, ""},
		{semel.KeyFormat{UUID: semel.UUIDAny}, "k", "not a UUID"},
		{semel.KeyFormat{UUID: semel.UUIDv4}, v4, ""},
		{semel.KeyFormat{UUID: semel.UUIDv4}, v1, "not a UUID of version 4"},
		{semel.KeyFormat{MaxLength: 2}, "kk", ""},
		{semel.KeyFormat{MaxLength: 2}, "kkk", "longer than 2 characters"},
		{semel.KeyFormat{Check: func(string) error { return errors.New("must begin with pay_") }}, "k", "must begin with pay_"},
	} {
		h, _, _, _ := payHandler(t, semel.Policy{KeyFormat: tc.format})
		w := answer(h, post(tc.key, `{}`))
		if tc.broken == "" {
			checkRun(t, w)
			continue
		}
		checkProblem(t, w, 400, refusal.KeyInvalid)
		if !strings.Contains(w.Body.String(), `"detail":"Idempotency-Key: `+tc.broken) {
			t.Errorf("%q: the detail does not begin with header and rule: %s", tc.key, w.Body)
		}
	}
}

func TestR7_ARequiredKeyThatIsMissingIsAskedFor(t *testing.T) {
	t.Parallel()
	s, l := memstore.New(), &ledger{}
	g, _ := newGuardWith(t, s, semel.Options{Problems: semel.ProblemOptions{Documentation: "https://api.example.com/idempotency"}})
	w := answer(g.Wrap(http.HandlerFunc(l.pay)), post("", `{}`))
	checkProblem(t, w, 400, refusal.KeyMissing)
	if got, want := w.Header().Get("Link"), `<https://api.example.com/idempotency>; rel="describedby"`; got != want {
		t.Errorf("Link is %q, want %q", got, want)
	}
	checkEffects(t, l, 0)
	checkRecords(t, s, 0)

	other := answer(g.Wrap(http.HandlerFunc(l.pay)), post("a b", `{}`))
	if got := other.Header().Get("Link"); got != "" {
		t.Errorf("another problem has the Link %q", got)
	}
}

func TestR7_WithoutAnOptionalKeyEachRequestRuns(t *testing.T) {
	t.Parallel()
	h, l, s, seen := payHandler(t, semel.Policy{KeyOptional: true})
	for range 3 {
		w := answer(h, post("", `{}`))
		checkRun(t, w)
		for _, name := range []string{"Idempotency-Key", "Cache-Control", "Idempotency-Expires"} {
			if got, has := w.Header()[name]; has {
				t.Errorf("an unkeyed answer has %s: %q", name, got)
			}
		}
	}
	checkEffects(t, l, 3)
	checkRecords(t, s, 0)
	want := []event.Result{event.Unkeyed, event.Unkeyed, event.Unkeyed}
	if got := seen.results(); !slices.Equal(got, want) {
		t.Errorf("decided %v, want %v", got, want)
	}
}

func TestR8_SafeMethodsAndThoseThatARouteDoesNotNameIgnoreTheHeader(t *testing.T) {
	t.Parallel()
	optIn := []string{"POST", "PUT", "DELETE"}
	for _, tc := range []struct {
		method  string
		methods []string
		guarded bool
	}{
		{"GET", nil, false},
		{"HEAD", nil, false},
		{"OPTIONS", nil, false},
		{"TRACE", nil, false},
		{"POST", nil, true},
		{"PATCH", nil, true},
		{"PUT", optIn, true},
		{"DELETE", optIn, true},
		{"PATCH", optIn, false},
		{"GET", optIn, false},
	} {
		h, l, s, _ := payHandler(t, semel.Policy{Methods: tc.methods})
		send := func(key string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(tc.method, "/payments/7", strings.NewReader(`{}`))
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			return answer(h, r)
		}
		if !tc.guarded {
			checkRun(t, send("k"))
			checkRun(t, send("k"))
			checkRun(t, send("malformed key"))
			checkRun(t, send(""))
			checkEffects(t, l, 4)
			checkRecords(t, s, 0)
			continue
		}
		checkRun(t, send("k"))
		checkReplay(t, send("k"))
		checkProblem(t, send(""), 400, refusal.KeyMissing)
		checkEffects(t, l, 1)
	}
}

func TestR9_OtherAndSeveralHeaderNames(t *testing.T) {
	t.Parallel()
	names := []string{"Idempotency-Key", "x-idempotency-key", "PayPal-Request-Id"}
	for _, tc := range []struct {
		header []string // name, value pairs
		echo   string
		code   refusal.Code
		detail string
	}{
		{header: []string{"X-Idempotency-Key", "k"}, echo: "X-Idempotency-Key"},
		{header: []string{"PayPal-Request-Id", `"k"`}, echo: "PayPal-Request-Id"},
		{header: []string{"X-Idempotency-Key", "k", "PayPal-Request-Id", `"k"`}, echo: "X-Idempotency-Key"},
		{
			header: []string{"Idempotency-Key", "k", "X-Idempotency-Key", "other"}, code: refusal.KeyInvalid,
			detail: "Idempotency-Key and X-Idempotency-Key carry different keys",
		},
		{
			header: []string{"Idempotency-Key", "k", "PayPal-Request-Id", "a b"}, code: refusal.KeyInvalid,
			detail: "Paypal-Request-Id: character ' ' is not allowed",
		},
		{header: []string{"Idempotency-Key", "k", "PayPal-Request-Id", ""}, code: refusal.KeyInvalid, detail: "Paypal-Request-Id: empty"},
		{code: refusal.KeyMissing, detail: "send the header Idempotency-Key or X-Idempotency-Key or Paypal-Request-Id"},
	} {
		h, l, _, _ := payHandler(t, semel.Policy{KeyHeaders: names})
		w := answer(h, post("", `{}`, tc.header...))
		if tc.code != "" {
			checkProblem(t, w, 400, tc.code)
			if !strings.Contains(w.Body.String(), tc.detail) {
				t.Errorf("%q: no %q in %s", tc.header, tc.detail, w.Body)
			}
			checkEffects(t, l, 0)
			continue
		}
		checkRun(t, w)
		if w.Header().Get(tc.echo) == "" {
			t.Errorf("%q: no echo in %s: %v", tc.header, tc.echo, w.Header())
		}
		for _, name := range names {
			checkReplay(t, answer(h, post("", `{}`, name, "k"))) // wherever it comes from, it is the same key
		}
	}
	h, _, _, _ := payHandler(t, semel.Policy{KeyHeaders: []string{"PayPal-Request-Id"}})
	checkProblem(t, answer(h, post("k", `{}`)), 400, refusal.KeyMissing) // the default name is replaced
}

func TestR9_ABodyFieldCarriesTheKey(t *testing.T) {
	t.Parallel()
	p := semel.Policy{KeyField: "/meta/idempotency_key", KeyOptional: true}
	const body = `{"amount":5,"meta":{"idempotency_key":"k"}}`
	h, l, s, _ := payHandler(t, p)
	w := answer(h, post("", body))
	checkRun(t, w)
	if got := w.Header().Get("Idempotency-Key"); got != "k" {
		t.Errorf("the field's key is echoed as %q", got)
	}
	checkReplay(t, answer(h, post("", body)))
	checkReplay(t, answer(h, post(`"k"`, body))) // both, and they agree
	checkReplay(t, answer(h, post("", string(packed(body)), "Content-Encoding", "gzip")))
	checkEffects(t, l, 1)
	checkRecords(t, s, 1)

	for _, tc := range []struct{ key, body, detail string }{
		{"other", body, "Idempotency-Key and body field /meta/idempotency_key carry different keys"},
		{"", `{"meta":{"idempotency_key":"a b"}}`, "body field /meta/idempotency_key: character ' ' is not allowed"},
		{"", `{"meta":{"idempotency_key":""}}`, "empty"},
		{"", `{"meta":{"idempotency_key":"\u0000"}}`, "byte 0x00"},
		{"", `{"meta":{"idempotency_key":7}}`, "not a string"},
		{"", `{"meta":{"idempotency_key":"k","idempotency_key":"j"}}`, "the same, or differ in case only"},
		{"", `{"meta":{"idempotency_key":"k","Idempotency_Key":"j"}}`, "the same, or differ in case only"},
		{"", `{"Meta":{},"meta":{"idempotency_key":"k"}}`, "the same, or differ in case only"},
		{"", `{"meta":{"idempotency_key":"k"}`, "not valid JSON"},
		{"k", `not JSON`, "not valid JSON"},
		{"", `x`, "not valid JSON"},
	} {
		w := answer(h, post(tc.key, tc.body))
		checkProblem(t, w, 400, refusal.KeyInvalid)
		if !strings.Contains(w.Body.String(), tc.detail) {
			t.Errorf("%s: no %q in %s", tc.body, tc.detail, w.Body)
		}
	}
	checkEffects(t, l, 1)
	checkRun(t, answer(h, post("", `{"amount":5}`))) // no key anywhere: optional
	checkRun(t, answer(h, post("", ``)))
	checkEffects(t, l, 3)
}

// What the guard has read, the handler still gets whole: bytes as sent, length, and no more.
func TestR9_R63_TheHandlerGetsTheBodyAsItWasSent(t *testing.T) {
	t.Parallel()
	failing := &faulty{Store: memstore.New(), claim: func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
		return driver.Record{}, false, errors.New("down")
	}}
	const plain = `{"k":"key-1","n":1}`
	zipped := string(packed(plain))
	for name, tc := range map[string]struct {
		store driver.Store
		p     semel.Policy
		key   string
	}{
		"run":              {nil, semel.Policy{}, "key-1"},
		"run, spooled":     {nil, semel.Policy{SpoolRequestAbove: 4}, "key-1"},
		"run, field":       {nil, semel.Policy{KeyField: "/k"}, ""},
		"unkeyed, field":   {nil, semel.Policy{KeyField: "/absent", KeyOptional: true}, ""},
		"bypassed":         {failing, semel.Policy{FailOpen: true}, "key-1"},
		"bypassed, spool":  {failing, semel.Policy{FailOpen: true, SpoolRequestAbove: 4}, "key-1"},
		"with patience":    {nil, semel.Policy{Patience: defaults.MaxRun}, "key-1"},
		"shadowed":         {nil, semel.Policy{ObserveOnly: true}, "key-1"},
		"shadowed, reused": {nil, semel.Policy{ObserveOnly: true, KeyOptional: true}, ""},
	} {
		for _, sent := range []struct{ coding, body string }{{"", plain}, {"gzip", zipped}} {
			g, _ := newGuard(t, tc.store, tc.p)
			var got string
			var length int64
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Errorf("%s: read: %v", name, err)
				}
				got, length = string(b), r.ContentLength
			}))
			r := post(tc.key, sent.body)
			if sent.coding != "" {
				r.Header.Set("Content-Encoding", sent.coding)
			}
			if w := answer(h, r); w.Code != 200 {
				t.Errorf("%s: answered %d %s", name, w.Code, w.Body)
			}
			if got != sent.body || length != int64(len(sent.body)) {
				t.Errorf("%s %s: the handler got %q of length %d, want %q", name, sent.coding, got, length, sent.body)
			}
		}
	}
}

// packed returns s as gzip.
func packed(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, s)
	w.Close()
	return b.Bytes()
}

func TestR24_ABodyOverTheLimitIsRefusedWithoutARecord(t *testing.T) {
	t.Parallel()
	const limit = 64
	exact := strings.Repeat("x", limit)
	bomb := string(packed(strings.Repeat("0", 1<<20)))
	for name, tc := range map[string]struct {
		change func(*http.Request)
		body   string
		ok     bool
		detail string
	}{
		"at the limit":             {nil, exact, true, ""},
		"one over":                 {nil, exact + "x", false, "more than 64 bytes"},
		"one over, no length":      {func(r *http.Request) { r.ContentLength = -1 }, exact + "x", false, "more than 64 bytes"},
		"length lies upwards":      {func(r *http.Request) { r.ContentLength = 1 << 40 }, "x", false, "more than 64 bytes"},
		"length lies downwards":    {func(r *http.Request) { r.ContentLength = 1 }, exact + "x", false, "more than 64 bytes"},
		"decoded":                  {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, string(packed(strings.Repeat("0", 4096))), false, "decoded"},
		"a limit set further up":   {func(r *http.Request) { r.Body = http.MaxBytesReader(nil, r.Body, 10) }, exact, false, "more than 10 bytes"},
		"spooled, over the limit":  {func(r *http.Request) { r.Header.Set("X-Spool", "1") }, exact + "x", false, "more than 64 bytes"},
		"spooled, at the limit":    {func(r *http.Request) { r.Header.Set("X-Spool", "1") }, exact, true, ""},
		"a bomb of 1 MiB in 1 KiB": {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, bomb, false, "more than 64 bytes"},
	} {
		r := post("k", tc.body)
		if tc.change != nil {
			tc.change(r)
		}
		p := semel.Policy{MaxRequestBody: limit}
		if r.Header.Get("X-Spool") != "" {
			p.SpoolRequestAbove = 8
		}
		h, l, s, _ := payHandler(t, p)
		w := answer(h, r)
		if tc.ok {
			checkRun(t, w)
			continue
		}
		checkProblem(t, w, http.StatusRequestEntityTooLarge, refusal.BodyTooLarge)
		if !strings.Contains(w.Body.String(), tc.detail) {
			t.Errorf("%s: no %q in %s", name, tc.detail, w.Body)
		}
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
	}
}

// TestCase37_ALargeBodyIsProtectedOrRefused: never let through unprotected.
func TestCase37_R24_ALargeBodyIsProtectedOrRefused(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 5<<20)
	h, l, _, _ := payHandler(t, semel.Policy{})
	checkProblem(t, answer(h, post("k", large)), 413, refusal.BodyTooLarge)
	checkEffects(t, l, 0)

	h, l, _, _ = payHandler(t, semel.Policy{MaxRequestBody: 8 << 20, SpoolRequestAbove: 1 << 20})
	checkRun(t, answer(h, post("k", large)))
	checkReplay(t, answer(h, post("k", large)))
	checkProblem(t, answer(h, post("k", large+"y")), 422, refusal.KeyReused)
	checkEffects(t, l, 1)
}

func TestR25_TheContentDigestIsCheckedAndNeverTrusted(t *testing.T) {
	t.Parallel()
	digest := func(body string) string {
		sum := sha256.Sum256([]byte(body))
		return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	}
	for _, tc := range []struct {
		field string
		code  refusal.Code
	}{
		{digest(`{}`), ""},
		{"unixsum=:AAA=:", ""}, // no known algorithm: nothing is checked
		{digest(`{"a":1}`), refusal.DigestMismatch},
		{digest(`{}`) + ", sha-512=:AAAA:", refusal.DigestMismatch},
		{"sha-256=nonsense", refusal.DigestMismatch},
		{"\x00", refusal.DigestMismatch},
	} {
		h, l, s, _ := payHandler(t, semel.Policy{})
		w := answer(h, post("k", `{}`, "Content-Digest", tc.field))
		if tc.code == "" {
			checkRun(t, w)
			continue
		}
		checkProblem(t, w, 400, tc.code)
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
	}
	// A digest that is right for its own body does not make another body the same request.
	h, l, _, _ := payHandler(t, semel.Policy{})
	checkRun(t, answer(h, post("k", `{"a":1}`, "Content-Digest", digest(`{"a":1}`))))
	checkProblem(t, answer(h, post("k", `{"a":2}`, "Content-Digest", digest(`{"a":2}`))), 422, refusal.KeyReused)
	checkReplay(t, answer(h, post("k", `{"a":1}`))) // and its absence does not make another one
	checkEffects(t, l, 1)
}

func TestR58_EarlyDataIsRefusedOnKeyedRequests(t *testing.T) {
	t.Parallel()
	h, l, s, _ := payHandler(t, semel.Policy{KeyOptional: true})
	// RFC 8470, section 5.1: invalid and multiple instances count as 1.
	for _, lines := range [][]string{{"1"}, {"0"}, {""}, {" 1"}, {"1", "1"}, {"?1"}} {
		r := post("k", `{}`)
		r.Header["Early-Data"] = lines
		checkProblem(t, answer(h, r), http.StatusTooEarly, refusal.EarlyData)
	}
	checkEffects(t, l, 0)
	checkRecords(t, s, 0)
	checkRun(t, answer(h, post("", `{}`, "Early-Data", "1"))) // no key: not this guard's matter
	checkRun(t, answer(h, post("k", `{}`)))                   // the key was not spent
}

func TestABodyThatBreaksOffIsRefusedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	for _, spool := range []int64{0, 4} {
		h, l, s, seen := payHandler(t, semel.Policy{SpoolRequestAbove: spool})
		r := post("k", "")
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"amount":`), iotest.ErrReader(io.ErrUnexpectedEOF)))
		r.ContentLength = 20
		checkProblem(t, answer(h, r), 400, refusal.RequestUnreadable)
		checkEffects(t, l, 0)
		checkRecords(t, s, 0)
		if got := seen.count(event.StoreError); got != 0 {
			t.Errorf("%d store errors, want none", got)
		}
		checkRun(t, answer(h, post("k", `{"amount":5}`)))
	}
}

// A full disk is the server's failure: 503, so that the client tries again, and not a 4xx, which it takes for final.
func TestField06_ATemporaryFileThatFailsIsNotTheRequestsFault(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, l := memstore.New(), &ledger{}
	g, _ := newGuardWith(t, s, semel.Options{Policy: semel.Policy{SpoolRequestAbove: 4}, TempDir: dir})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	w := answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{"amount":5}`))
	checkProblem(t, w, 503, refusal.StoreUnavailable)
	if got := w.Header().Get("Retry-After"); got != "5" {
		t.Errorf("Retry-After is %q, want 5", got)
	}
	if strings.Contains(w.Body.String(), "gone") {
		t.Errorf("the problem shows a file's name: %s", w.Body)
	}
	checkEffects(t, l, 0)
	checkRecords(t, s, 0)
}

func TestR76a_TheCorrelationIdIsKeptOrMadeEchoedForwardedAndRecorded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		sent []string
		kept bool
	}{
		{[]string{"req-7"}, true},
		{[]string{strings.Repeat("r", 128)}, true},
		{nil, false},
		{[]string{""}, false},
		{[]string{"a", "b"}, false},
		{[]string{"a b"}, false},
		{[]string{"a\nb"}, false},
		{[]string{"é"}, false},
		{[]string{strings.Repeat("r", 129)}, false},
	} {
		s := memstore.New()
		g, seen := newGuard(t, s, semel.Policy{})
		var forwarded, op string
		h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			forwarded, op = r.Header.Get("X-Correlation-Id"), semel.FromContext(r.Context()).Correlation()
		}))
		r := post("k", `{}`)
		if tc.sent != nil {
			r.Header["X-Correlation-Id"] = tc.sent
		}
		before := maps.Clone(r.Header)
		w := answer(h, r)
		echoed := w.Header()["X-Correlation-Id"]
		if len(echoed) != 1 || echoed[0] == "" {
			t.Fatalf("%q: echoed as %q", tc.sent, echoed)
		}
		id := echoed[0]
		if tc.kept != slices.Contains(tc.sent, id) {
			t.Errorf("%q: became %q, kept should be %v", tc.sent, id, tc.kept)
		}
		rec := recordOfKey(t, s, "alice", "k")
		for where, got := range map[string]string{
			"the handler's header": forwarded, "the operation": op, "the record": rec.Correlation,
			"the event": seen.last().Correlation,
		} {
			if got != id {
				t.Errorf("%q: %s has %q, want %q", tc.sent, where, got, id)
			}
		}
		if !maps.EqualFunc(before, r.Header, slices.Equal) {
			t.Errorf("%q: the caller's request was changed: %v", tc.sent, r.Header)
		}
		again := answer(h, post("k", `{}`, "X-Correlation-Id", "second"))
		if got := again.Header()["X-Correlation-Id"]; !slices.Equal(got, []string{"second"}) {
			t.Errorf("a replay has the correlation id %q, want its own", got)
		}
	}
}

// Where there is no protection, there is still the id.
func TestR76a_UnprotectedRunsSeeTheCorrelationIdToo(t *testing.T) {
	t.Parallel()
	s := &faulty{Store: memstore.New(), claim: func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
		return driver.Record{}, false, errors.New("down")
	}}
	g, seen := newGuard(t, s, semel.Policy{KeyOptional: true, FailOpen: true})
	for _, key := range []string{"", "k"} {
		var forwarded string
		h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { forwarded = r.Header.Get("X-Correlation-Id") }))
		w := answer(h, post(key, `{}`))
		if got := w.Header().Get("X-Correlation-Id"); got == "" || forwarded != got || seen.last().Correlation != got {
			t.Errorf("key %q: echoed %q, forwarded %q, reported %q; want one id", key, got, forwarded, seen.last().Correlation)
		}
	}
}

func TestR76a_TheCorrelationHeaderHasAnotherNameOrNone(t *testing.T) {
	t.Parallel()
	g, seen := newGuardWith(t, nil, semel.Options{CorrelationHeader: "x-request-id"})
	h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := answer(h, post("k", `{}`, "X-Request-Id", "r1", "X-Correlation-Id", "c1"))
	if got := w.Header(); got.Get("X-Request-Id") != "r1" || got.Get("X-Correlation-Id") != "" || seen.last().Correlation != "r1" {
		t.Errorf("answered %v, event %q; want the id of X-Request-Id", got, seen.last().Correlation)
	}
	if w := answer(h, post("", `{}`, "X-Request-Id", "r2")); w.Header().Get("X-Request-Id") != "r2" {
		t.Errorf("a problem has the correlation id %q, want r2", w.Header().Get("X-Request-Id"))
	}

	g, seen = newGuardWith(t, nil, semel.Options{CorrelationHeader: "-"})
	w = answer(g.Wrap(h), post("k", `{}`, "X-Correlation-Id", "c1"))
	if got := w.Header()["X-Correlation-Id"]; got != nil || seen.last().Correlation != "" {
		t.Errorf("turned off, it answers %q and reports %q", got, seen.last().Correlation)
	}
}

// contextWith returns a request's context with a value.
func contextWith(r *http.Request, key, value any) context.Context {
	return context.WithValue(r.Context(), key, value)
}

var discardLog = log.New(io.Discard, "", 0)

// last returns the last event.
func (e *events) last() event.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == 0 {
		return event.Event{}
	}
	return e.list[len(e.list)-1]
}

// recordOfKey returns the record of an HTTP operation of a guard without an identity secret.
func recordOfKey(t testing.TB, s driver.Store, scope, key string) driver.Record {
	t.Helper()
	return recordOf(t, s, semel.Identify(nil, semel.KindHTTP, scope, key))
}

func recordOf(t testing.TB, s driver.Store, id driver.ID) driver.Record {
	t.Helper()
	rec, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return rec
}

// recordBytes returns a record as the bytes that stores keep.
func recordBytes(t testing.TB, rec driver.Record) []byte {
	t.Helper()
	b, err := rec.AppendBinary(nil)
	if err != nil {
		t.Fatalf("encode record: %v", err)
	}
	return b
}

func TestCase15_Case38_WhatTheHandlerChangesDoesNotMoveItsRecord(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 503} { // kept, and released
		s, l := memstore.New(), &ledger{}
		g, _ := newGuard(t, s, semel.Policy{})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l.add()
			r.Header.Set("Idempotency-Key", "another")
			r.Header.Set("X-Principal", "mallory")
			r.Header.Set("Content-Type", "text/plain")
			r.Method, r.URL.Path, r.URL.RawQuery = "PUT", "/elsewhere", "x=1"
			r.Body = io.NopCloser(strings.NewReader("another body"))
			w.WriteHeader(status)
		}))
		first := answer(h, post(`"the-key"`, `{"a":1}`))
		if got := first.Header().Get("Idempotency-Key"); got != `"the-key"` {
			t.Errorf("%d: echoed %q, want the key as it came", status, got)
		}
		rec := recordOfKey(t, s, "alice", "the-key") // the decoded key, not the header as it was sent
		if want := map[int]driver.State{201: driver.Done, 503: driver.Free}[status]; rec.State != want {
			t.Errorf("%d: the record under the first key is %v, want %v", status, rec.State, want)
		}
		checkRecords(t, s, 1)
		again := answer(h, post(`the-key`, `{"a":1}`))
		if status == 201 {
			checkReplay(t, again)
			checkEffects(t, l, 1)
		} else {
			checkEffects(t, l, 2)
		}
		checkRecords(t, s, 1)
	}
}

// TestR39_CacheControl: keyed answers are not cached unless somebody above says otherwise.
func TestR39_KeyedAnswersAreNotCached(t *testing.T) {
	t.Parallel()
	h, _, _, _ := payHandler(t, semel.Policy{})
	for range 2 {
		if got := answer(h, post("k", `{}`)).Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control is %q, want no-store", got)
		}
	}
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Control", "private")
	h.ServeHTTP(w, post("k", `{}`))
	if got := w.Header().Get("Cache-Control"); got != "private" {
		t.Errorf("Cache-Control is %q, want what was set", got)
	}
}

func TestR59_CORSHeadersAreThoseOfTheRoute(t *testing.T) {
	t.Parallel()
	g, _ := newGuardWith(t, nil, semel.Options{
		ReplayMarkers: []string{"x-replayed", "Idempotent-Replayed"}, CorrelationHeader: "x-request-id",
		Policy: semel.Policy{KeyHeaders: []string{"idempotency-key", "PayPal-Request-Id"}},
	})
	allow, expose := g.CORSHeaders()
	if want := []string{"Idempotency-Key", "Paypal-Request-Id", "X-Request-Id"}; !slices.Equal(allow, want) {
		t.Errorf("allow %q, want %q", allow, want)
	}
	for _, name := range []string{
		"X-Replayed", "Idempotent-Replayed", "Retry-After", "Location", "X-Request-Id", "Idempotency-Expires",
		"Idempotency-Code", "Idempotency-Key", "Paypal-Request-Id",
	} {
		if !slices.Contains(expose, name) {
			t.Errorf("expose %q lacks %s", expose, name)
		}
	}
	allow[0] = "Changed"
	if again, _ := g.CORSHeaders(); again[0] != "Idempotency-Key" {
		t.Error("what a caller does to the list changes the guard")
	}
	g, _ = newGuardWith(t, nil, semel.Options{CorrelationHeader: "-"})
	if allow, _ = g.CORSHeaders(); !slices.Equal(allow, []string{"Idempotency-Key"}) {
		t.Errorf("allow %q, want the key only", allow)
	}
	allow[0] = "Changed"
	if again, _ := g.CORSHeaders(); again[0] != "Idempotency-Key" {
		t.Error("what a caller does to the list changes the guard")
	}
}

func TestR28_AClientChoosesItsWaitWithinTheRoutesBound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		p       semel.Policy
		prefer  []string
		waits   time.Duration
		applied string
	}{
		{semel.Policy{}, nil, 0, ""},
		{semel.Policy{}, []string{"wait=5"}, 0, ""}, // the route does not wait
		{semel.Policy{Wait: time.Second}, nil, time.Second, ""},
		{semel.Policy{Wait: time.Second}, []string{"wait=5"}, time.Second, "wait=1"},
		{semel.Policy{MaxWait: 5 * time.Second}, nil, 0, ""},
		{semel.Policy{MaxWait: 5 * time.Second}, []string{"wait=3"}, 3 * time.Second, "wait=3"},
		{semel.Policy{MaxWait: 5 * time.Second}, []string{"wait=2147483647"}, 5 * time.Second, "wait=5"},
		{semel.Policy{Wait: time.Second, MaxWait: 5 * time.Second}, []string{"wait=0"}, 0, "wait=0"},
		{semel.Policy{Wait: time.Second, MaxWait: 5 * time.Second}, []string{"respond-async, WAIT = 3 ;x=1"}, 3 * time.Second, "wait=3"},
		{semel.Policy{Wait: time.Second, MaxWait: 5 * time.Second}, []string{"handling=lenient", "wait=3, wait=4"}, 3 * time.Second, "wait=3"},
		{semel.Policy{Wait: time.Second, MaxWait: 5 * time.Second}, []string{"wait=soon"}, time.Second, ""},
		{semel.Policy{Wait: time.Second, MaxWait: 5 * time.Second}, []string{"wait=-1"}, time.Second, ""},
		{semel.Policy{Wait: time.Second, MaxWait: 5 * time.Second}, []string{"wait"}, time.Second, ""},
		{semel.Policy{Wait: 4 * time.Second, Patience: 2 * time.Second}, nil, 2 * time.Second, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, l, _, _ := payHandler(t, tc.p)
			slow, _ := newGuard(t, nil, tc.p)
			held := slow.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(20 * time.Second)
				h.ServeHTTP(w, r)
			}))
			go answer(held, post("k", `{}`))
			synctest.Wait()
			r := post("k", `{}`)
			r.Header["Prefer"] = tc.prefer
			start := time.Now()
			w := answer(held, r)
			checkProblem(t, w, 409, refusal.InProgress)
			if got := time.Since(start); got != tc.waits || w.Header().Get("Preference-Applied") != tc.applied {
				t.Errorf("%q: waited %v, applied %q; want %v, %q", tc.prefer, got, w.Header().Get("Preference-Applied"), tc.waits, tc.applied)
			}
			if err := slow.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkEffects(t, l, 1)
		})
	}
}

func TestR60_AFullStoreRefusesNewKeysAndKeepsTheOld(t *testing.T) {
	t.Parallel()
	s, err := memstore.Open(memstore.Options{MaxRecords: 2, PrincipalShare: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{}
	g, _ := newGuard(t, s, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(l.pay))
	checkRun(t, answer(h, post("k1", `{}`)))
	checkRun(t, answer(h, post("k2", `{}`)))
	for range 3 {
		checkProblem(t, answer(h, post("k3", `{}`)), 503, refusal.StoreUnavailable)
	}
	checkReplay(t, answer(h, post("k1", `{}`)))
	checkReplay(t, answer(h, post("k2", `{}`)))
	checkEffects(t, l, 2)
	checkRecords(t, s, 2)
}

func TestR63_FailClosedByDefault(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]error{
		"down": errors.New("dial tcp 10.0.0.7:5432: password=hunter2 refused"),
		"full": fmt.Errorf("claim: %w", driver.ErrFull),
	} {
		l := &ledger{}
		s := &faulty{Store: memstore.New(), claim: func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, fail
		}}
		g, seen := newGuard(t, s, semel.Policy{})
		w := answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`))
		checkProblem(t, w, 503, refusal.StoreUnavailable)
		if got := w.Header().Get("Retry-After"); got != "5" {
			t.Errorf("%s: Retry-After is %q, want 5", name, got)
		}
		if strings.Contains(w.Body.String(), "hunter2") || strings.Contains(w.Body.String(), "10.0.0.7") {
			t.Errorf("%s: the problem shows the store's error: %s", name, w.Body)
		}
		checkEffects(t, l, 0)
		if got := seen.results(); !slices.Equal(got, []event.Result{event.Refused}) {
			t.Errorf("%s: decided %v, want refused", name, got)
		}
	}
}

func TestR63_FailOpenRunsMarkedLoggedAndCounted(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	s := &faulty{Store: memstore.New(), claim: func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
		return driver.Record{}, false, errors.New("down")
	}}
	g, seen := newGuard(t, s, semel.Policy{FailOpen: true})
	h := g.Wrap(http.HandlerFunc(l.pay))
	w := answer(h, post("k", `{}`))
	checkRun(t, w)
	if got := w.Header().Get("Idempotency-Status"); got != "bypassed" {
		t.Errorf("Idempotency-Status is %q, want bypassed", got)
	}
	if got := seen.results(); !slices.Equal(got, []event.Result{event.Bypassed}) {
		t.Errorf("decided %v, want bypassed", got)
	}
	if seen.count(event.StoreError) == 0 {
		t.Error("the store's failure was not reported")
	}
	checkEffects(t, l, 1)

	// Only the store's failure opens: a refusal stays one.
	s.set(func(f *faulty) { f.claim = nil })
	checkRun(t, answer(h, post("k2", `{}`)))
	for name, r := range map[string]*http.Request{
		"malformed": post("a b", `{}`), "missing": post("", `{}`), "reused": post("k2", `{"a":1}`),
		"early": post("k3", `{}`, "Early-Data", "1"),
	} {
		if w := answer(h, r); w.Code < 400 || w.Header().Get("Idempotency-Status") != "" {
			t.Errorf("%s: answered %d %q", name, w.Code, w.Header().Get("Idempotency-Status"))
		}
	}
	checkEffects(t, l, 2)
}

// A client that leaves while its key is claimed proves nothing about the store: nothing runs unprotected.
func TestR63_AClientThatLeavesDoesNotOpen(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	ctx, leave := context.WithCancel(t.Context())
	s := &faulty{Store: memstore.New(), claim: func(ctx context.Context, _ driver.ID, _ driver.Claim) (driver.Record, bool, error) {
		leave()
		<-ctx.Done()
		return driver.Record{}, false, ctx.Err()
	}}
	g, seen := newGuard(t, s, semel.Policy{FailOpen: true})
	answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`).WithContext(ctx))
	checkEffects(t, l, 0)
	if got := seen.results(); !slices.Equal(got, []event.Result{event.Refused}) {
		t.Errorf("decided %v, want refused", got)
	}
}

// R-41a: a record that is there but can't be read is no reason to open either.
func TestR41a_R63_AnUnreadableRecordDoesNotOpen(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	unreadable := fmt.Errorf("decode: %w", driver.ErrUnreadable)
	s := &faulty{
		Store: memstore.New(),
		claim: func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, unreadable
		},
		load: func(context.Context, driver.ID) (driver.Record, error) { return driver.Record{}, unreadable },
	}
	g, _ := newGuardWith(t, s, semel.Options{Policy: semel.Policy{FailOpen: true}, MaxKeys: 1})
	h := g.Wrap(http.HandlerFunc(l.pay))
	checkProblem(t, answer(h, post("k", `{}`)), 409, refusal.ReplayUnavailable)

	s.set(func(f *faulty) { f.claim = nil })
	checkRun(t, answer(h, post("fills", `{}`))) // now the principal has as many keys as it may
	s.set(func(f *faulty) {
		f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, unreadable
		}
	})
	checkProblem(t, answer(h, post("k", `{}`)), 409, refusal.ReplayUnavailable)
	checkEffects(t, l, 1)
}

// TestCase39_WhereALimiterStands shows the order that Handler documents: above the guard repeats spend the limit, below
// it they don't.
func TestCase39_BelowTheGuardARepeatSpendsNoLimitAndNoOneTimeToken(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	l := &ledger{}
	var spent ledger
	once := func(next http.Handler) http.Handler { // lets one request pass, ever
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if spent.add() > 1 {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	below := g.Wrap(once(http.HandlerFunc(l.pay)))
	checkRun(t, answer(below, post("k", `{}`)))
	for range 3 {
		checkReplay(t, answer(below, post("k", `{}`)))
	}
	if got := spent.count(); got != 1 {
		t.Errorf("below the guard the limiter saw %d requests, want 1", got)
	}
	// What the limiter refuses is released, not pinned to the key (case 18).
	if w := answer(below, post("k2", `{}`)); w.Code != 429 {
		t.Errorf("answered %d, want 429", w.Code)
	}
	spent = ledger{}
	checkRun(t, answer(below, post("k2", `{}`)))

	spent = ledger{}
	above := once(g.Wrap(http.HandlerFunc(l.pay)))
	checkRun(t, answer(above, post("k3", `{}`)))
	if w := answer(above, post("k3", `{}`)); w.Code != 429 {
		t.Errorf("above the guard the repeat is answered %d, want 429 of the limiter", w.Code)
	}
}

// A route without a pattern is named by method and path; the path is the client's choice, so it is escaped and cut.
func TestARouteIsNamedByPatternOrPolicyOrByABoundedPath(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}", h)
	mux.Handle("POST /named", g.Route(semel.Policy{Operation: "rename"}).Wrap(h))
	for _, tc := range []struct{ path, want string }{
		{"/accounts/7", "POST /accounts/{id}"},
		{"/named", "rename"},
	} {
		r := httptest.NewRequest("POST", tc.path, nil)
		r.Header.Set("Idempotency-Key", "k"+tc.path[1:2])
		answer(mux, r)
		if got := seen.last().Operation; got != tc.want {
			t.Errorf("%s is called %q, want %q", tc.path, got, tc.want)
		}
	}
	r := httptest.NewRequest("POST", "/a%00b%0a%ff/"+strings.Repeat("x", 9000), nil)
	r.Header.Set("Idempotency-Key", "k")
	answer(h, r)
	if got := seen.last().Operation; !strings.HasPrefix(got, "POST /a%00b%0a%ff/xxx") || len(got) > 210 {
		t.Errorf("a hostile path is called %.40q… of %d bytes", got, len(got))
	}
}

// A run without protection is one decision, however it ends.
func TestR63_ABypassThatPanicsIsCounted(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t, nil, semel.Policy{KeyOptional: true})
	h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	func() {
		defer func() {
			if thrown := recover(); thrown != http.ErrAbortHandler {
				t.Errorf("threw %v, want what the handler threw", thrown)
			}
		}()
		answer(h, post("", "{}"))
	}()
	if got := seen.results(); len(got) != 1 || got[0] != event.Unkeyed {
		t.Errorf("decisions %v, want one unkeyed", got)
	}
}
