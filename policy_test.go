package semel_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// Each wrong field of a policy, and what its error says: where, and what.
var wrongPolicies = []struct {
	p    semel.Policy
	want string
}{
	{semel.Policy{OnLost: 2}, "policy: OnLost is lost-policy(2), want Hold or Rerun"},
	{semel.Policy{OnError: 3}, "policy: OnError is 3, want ErrorDefault, KeepErrors or ReleaseErrors"},
	{semel.Policy{Methods: []string{"post"}}, `policy: Methods: "post" is not an upper-case method name`},
	{semel.Policy{Methods: []string{""}}, `policy: Methods: "" is not an upper-case method name`},
	{semel.Policy{Methods: []string{"PO ST"}}, `policy: Methods: "PO ST" is not an upper-case method name`},
	{semel.Policy{Methods: []string{"POST", "GET"}}, "policy: Methods: GET is a safe method and can't be protected"},
	{semel.Policy{Methods: []string{"HEAD"}}, "policy: Methods: HEAD is a safe method"},
	{semel.Policy{Methods: []string{"OPTIONS"}}, "policy: Methods: OPTIONS is a safe method"},
	{semel.Policy{Methods: []string{"TRACE"}}, "policy: Methods: TRACE is a safe method"},
	{semel.Policy{KeyHeaders: []string{"Idempotency Key"}}, `policy: KeyHeaders: "Idempotency Key" is not a header name`},
	{semel.Policy{KeyHeaders: []string{""}}, `policy: KeyHeaders: "" is not a header name`},
	{semel.Policy{KeyField: "idempotency_key"}, `policy: KeyField: JSON Pointer "idempotency_key" does not begin with /`},
	{semel.Policy{KeyField: "/a~2"}, "policy: KeyField: JSON Pointer"},
	{semel.Policy{KeyFormat: semel.KeyFormat{MaxLength: 256}}, "policy: KeyFormat: MaxLength is 256, want 1 to 255"},
	{semel.Policy{KeyFormat: semel.KeyFormat{MaxLength: -1}}, "policy: KeyFormat: MaxLength is -1"},
	{semel.Policy{KeyFormat: semel.KeyFormat{UUID: 9}}, "policy: KeyFormat: unknown UUID rule 9"},
	{semel.Policy{KeyFormat: semel.KeyFormat{UUID: semel.UUIDv4, MaxLength: 20}}, "policy: KeyFormat: MaxLength is 20, but a UUID has 36 characters"},
	{semel.Policy{Fingerprint: semel.FingerprintPolicy{Exclude: []string{"a"}}}, "policy: Fingerprint: "},
	{semel.Policy{Fingerprint: semel.FingerprintPolicy{Exact: true, NullIsAbsent: true}}, "policy: Fingerprint: "},
	{semel.Policy{Lease: -1}, "policy: Lease is negative: -1ns"},
	{semel.Policy{Lease: 2 * time.Millisecond}, "policy: Lease is 2ms, want at least 3ms"},
	{semel.Policy{MaxRun: -time.Second}, "policy: MaxRun is negative: -1s"},
	{semel.Policy{Patience: -time.Second}, "policy: Patience is negative: -1s"},
	{semel.Policy{SettleWait: -time.Second}, "policy: SettleWait is negative: -1s"},
	{semel.Policy{Retention: -time.Second}, "policy: Retention is negative: -1s"},
	{semel.Policy{Retention: time.Minute}, "policy: Retention is 1m0s, want at least MaxRun + Lease, which is 15m0s + 30s"},
	{semel.Policy{MaxRun: semel.Forever, Retention: semel.Forever}, "policy: Retention is"},
	{semel.Policy{MaxRun: 48 * time.Hour}, "policy: Retention is 24h0m0s, want at least MaxRun + Lease"},
	{semel.Policy{MinRetention: -1}, "policy: MinRetention is negative: -1ns"},
	{semel.Policy{MinRetention: time.Minute}, "policy: MinRetention is 1m0s, want at least MaxRun + Lease, which is 15m0s + 30s"},
	{semel.Policy{MinRetention: 25 * time.Hour}, "policy: MinRetention is 25h0m0s, want at most Retention, which is 24h0m0s"},
	{semel.Policy{MaxRetention: -1}, "policy: MaxRetention is negative: -1ns"},
	{semel.Policy{MaxRetention: time.Hour}, "policy: MaxRetention is 1h0m0s, want at least Retention, which is 24h0m0s"},
	{semel.Policy{Credentials: []string{"a b"}}, `policy: Credentials: "a b" is not a header name, nor cookie:NAME`},
	{semel.Policy{Credentials: []string{"cookie:"}}, `policy: Credentials: "" is not the name of a cookie`},
	{semel.Policy{NoStore: true, RespondAsync: true, OnLost: semel.Rerun}, "policy: NoStore does not go with RespondAsync"},
	{semel.Policy{Wait: -time.Second}, "policy: Wait is negative: -1s"},
	{semel.Policy{MaxWait: -time.Second}, "policy: MaxWait is negative: -1s"},
	{semel.Policy{Wait: 2 * time.Second, MaxWait: time.Second}, "policy: MaxWait is 1s, want at least Wait, which is 2s"},
	{semel.Policy{MaxWaiters: -1}, "policy: MaxWaiters is negative: -1"},
	{semel.Policy{MaxRequestBody: -1}, "policy: MaxRequestBody is negative: -1"},
	{semel.Policy{MaxRequestBody: math.MaxInt64}, "policy: MaxRequestBody is 9223372036854775807, want at most 1099511627776"},
	{semel.Policy{SpoolRequestAbove: -1}, "policy: SpoolRequestAbove is negative: -1"},
	{semel.Policy{SpoolRequestAbove: math.MaxInt64}, "policy: SpoolRequestAbove is 9223372036854775807, want at most"},
	{semel.Policy{MaxResponseBody: -1}, "policy: MaxResponseBody is negative: -1"},
	{semel.Policy{MaxResponseBody: math.MaxInt64}, "policy: MaxResponseBody is 9223372036854775807, want at most"},
	{semel.Policy{StoreHeaders: []string{"Location", "a:b"}}, `policy: StoreHeaders: "a:b" is not a header name`},
}

func TestAWrongPolicySaysWhereAndWhat(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	for _, tc := range wrongPolicies {
		err := tc.p.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: Validate returns %v", tc.want, err)
		}
		if n := strings.Count(err.Error(), "policy: "); n != 1 {
			t.Errorf("%q: %d faults are reported, want 1: %v", tc.want, n, err)
		}
		o := semel.Options{Policy: tc.p}
		if made, err := semel.New(memstore.New(), semel.SingleTenant, tc.p.OnLost, o); made != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: New returns %v", tc.want, err)
		}
		if got := thrownBy(func() { g.Route(tc.p) }); !strings.Contains(got, tc.want) {
			t.Errorf("%q: Route panics with %q", tc.want, got)
		}
	}
}

// thrownBy returns the text that f panics with, "" if it doesn't.
func thrownBy(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text, _ = v.(string)
		}
	}()
	f()
	return ""
}

func TestAllFaultsOfAPolicyAreReportedTogether(t *testing.T) {
	t.Parallel()
	p := semel.Policy{
		OnLost: 7, OnError: 7, Methods: []string{"GET", "x y"}, KeyHeaders: []string{"a b"}, KeyField: "x",
		KeyFormat: semel.KeyFormat{MaxLength: -1}, Fingerprint: semel.FingerprintPolicy{Exclude: []string{"x"}},
		Lease: -1, MaxRun: -1, Patience: -1, SettleWait: -1, Retention: -1, Wait: -1, MaxWait: -1, MaxWaiters: -1,
		MaxRequestBody: -1, SpoolRequestAbove: -1, MaxResponseBody: -1, StoreHeaders: []string{""},
	}
	err := p.Validate()
	if err == nil {
		t.Fatal("a wrong policy is accepted")
	}
	for _, field := range []string{
		"OnLost", "OnError", "Methods: GET", `Methods: "x y"`, "KeyHeaders", "KeyField", "KeyFormat", "Fingerprint", "Lease", "MaxRun",
		"Patience", "SettleWait", "Retention", "Wait", "MaxWait", "MaxWaiters", "MaxRequestBody", "SpoolRequestAbove",
		"MaxResponseBody", "StoreHeaders",
	} {
		if !strings.Contains(err.Error(), "policy: "+field) {
			t.Errorf("%s is not reported in\n%v", field, err)
		}
	}
}

func TestPoliciesAtTheirLimitsAreAccepted(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]semel.Policy{
		"zero":               {},
		"least retention":    {Retention: defaults.MaxRun + driver.DefaultLease},
		"kept forever":       {Retention: semel.Forever},
		"the shortest lease": {Lease: 3 * time.Millisecond},
		"the largest bodies": {MaxRequestBody: 1 << 40, MaxResponseBody: 1 << 40, SpoolRequestAbove: 1},
		"no compression":     {CompressAbove: -1},
		"nothing stored":     {StoreHeaders: []string{}},
		"a key at the root":  {KeyField: "/a~0b~1c"},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestR11_NewReportsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	missing := t.TempDir() + "/missing"
	g, err := semel.New(nil, semel.Scope{}, 9, semel.Options{
		IdentitySecret: []byte("short"), DerivationSecret: []byte("fifteen bytes.."),
		Problems: semel.ProblemOptions{
			Base: "problems/", Documentation: "https://x/> ; rel=\"evil",
			Status: map[refusal.Code]int{"NO_SUCH_CODE": 400, refusal.KeyReused: 200, refusal.InProgress: 600},
		},
		ReplayMarkers: []string{"a b"}, CorrelationHeader: "c d", RequestLife: -1, SweepInterval: -1, TempDir: missing,
		Policy: semel.Policy{Wait: -1},
	})
	if g != nil || err == nil {
		t.Fatal("a guard was made of nonsense")
	}
	for _, want := range []string{
		"semel: new guard: ", "store is nil", "scope is zero", "policy: OnLost is lost-policy(9)",
		"options: IdentitySecret has 5 bytes, want at least 16", "options: DerivationSecret has 15 bytes, want at least 16",
		`options: Problems.Base "problems/" is not the beginning of an absolute URI`, "options: Problems.Documentation",
		`options: Problems.Status: unknown code "NO_SUCH_CODE"`,
		"options: Problems.Status: 200 for IDEMPOTENCY_KEY_REUSED is not an error status",
		"options: Problems.Status: 600 for IDEMPOTENCY_IN_PROGRESS is not an error status",
		`options: ReplayMarkers: "a b" is not a header name`, `options: CorrelationHeader: "c d" is not a header name`,
		"options: RequestLife is negative", "options: SweepInterval is negative", "options: TempDir: ", "policy: Wait is negative",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported in\n%v", want, err)
		}
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		if strings.Contains(line, "short") || strings.Contains(line, "fifteen") {
			t.Errorf("a secret is shown: %s", line)
		}
	}
}

// redisstore keeps a key for as long as a late request of a guard may come.
func TestARequestOfTheStoreIsUnderWayForAMinuteAtMost(t *testing.T) {
	t.Parallel()
	for life, want := range map[time.Duration]string{
		time.Minute: "", time.Minute + 1: "options: RequestLife is 1m0.000000001s, at most 1m0s",
	} {
		_, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{RequestLife: life})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", life, err, want)
		}
	}
}

// An id that the guard makes itself must never be taken for a key: each attempt would be another operation.
func TestTheCorrelationHeaderCanNotCarryTheKey(t *testing.T) {
	t.Parallel()
	const want = "policy: KeyHeaders: X-Request-Id carries the correlation id"
	p := semel.Policy{KeyHeaders: []string{"Idempotency-Key", "x-request-id"}}
	_, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Policy: p, CorrelationHeader: "X-Request-ID"})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("New returns %v, want %q", err, want)
	}
	g, _ := newGuardWith(t, nil, semel.Options{CorrelationHeader: "X-Request-ID"})
	if got := thrownBy(func() { g.Route(p) }); !strings.Contains(got, want) {
		t.Errorf("Route panics with %q, want %q", got, want)
	}
	g, _ = newGuardWith(t, nil, semel.Options{CorrelationHeader: "-"})
	g.Route(p)
}

// A stored body is known by its codec's name: without one it would be replayed as it is stored.
func TestR38_ACodecWithoutANameIsRefused(t *testing.T) {
	t.Parallel()
	_, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{Codec: nameless{}})
	if err == nil || !strings.Contains(err.Error(), "Codec has no name") {
		t.Errorf("New returned %v", err)
	}
}

type nameless struct{ semel.Codec }

func (nameless) Name() string { return "" }

// Who reads a guard's policy sees what holds, and may pass it on.
func TestField02_AGuardTellsItsPolicy(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{OnLost: semel.Rerun, Patience: time.Second})
	p := g.Route(g.Policy()).Policy()
	if p.OnLost != semel.Rerun || p.Patience != time.Second || p.MaxRun != defaults.MaxRun || p.OnError != semel.ReleaseErrors {
		t.Errorf("the policy is told as %+v", p)
	}
	if other := g.Route(semel.Policy{}).Policy(); other.Patience != 0 || other.OnLost != semel.Hold {
		t.Errorf("that of a route is told as %+v", other)
	}
}
