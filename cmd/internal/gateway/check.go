package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/memstore"
)

// A fault is something that is wrong with a configuration.
type fault struct {
	at   string // the setting, by its path in the file: "listen", "default.lease", "routes[1].mint.window"
	text string // what is wrong, beginning with the setting's name
}

// Validate returns everything that is wrong with the configuration, save for what has to be opened.
func (c Config) Validate() error {
	c.complete()
	var errs []error
	for _, f := range c.check() {
		errs = append(errs, c.describe(f))
	}
	return errors.Join(errs...)
}

// check returns everything that is wrong with the configuration, its defaults filled in. It opens nothing but the
// certificate.
func (c *Config) check() (faults []fault) {
	fail := func(at, format string, a ...any) { faults = append(faults, fault{at, fmt.Sprintf(format, a...)}) }
	for _, a := range []struct{ name, address string }{{"listen", c.Listen}, {"admin", c.Admin}} {
		if !hostPort(a.address) {
			fail(a.name, "%s address %q is not host:port", a.name, a.address)
		}
	}
	if c.Upstream == nil {
		fail("upstream", "no upstream")
	}
	if !c.Scope.set {
		fail("scope", "no scope: want header:NAME, jwt, mtls, or single if there is only one principal")
	}
	c.JWT.check(c.Scope, fail)
	c.MTLS.check(c.Scope, c.TLS, fail)
	switch {
	case c.TrustedProxies != nil && len(c.TrustedProxies) == 0:
		fail("trusted_proxies", "trusted_proxies: the list is empty; leave it out")
	case c.TrustedProxies == nil && c.Scope.header != "" && hostPort(c.Listen):
		fail("scope", "scope: whose %s counts must be said, in trusted_proxies (--trust-proxy): the networks of the proxies in front; only for a listen address on loopback, which %s is not, that is this machine",
			c.Scope.header, c.Listen)
	}
	for _, host := range c.Hosts {
		if !listedHost(host) {
			fail("hosts", "hosts: %q is not a name without a port, such as api.example.com or *.example.com, nor * for all", host)
		}
	}
	c.checkNames("scope", c.Scope.headers(), fail)
	c.checkNames("correlation_header", []string{c.CorrelationHeader}, fail)
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"upstream_idle", c.UpstreamIdle}, {"idle_timeout", c.IdleTimeout}, {"tunnel_idle", c.TunnelIdle}, {"shutdown_timeout", c.ShutdownTimeout}, {"breaker.open", c.Breaker.Open}} {
		if d.value < 0 {
			fail(d.name, "%s is negative: %v", d.name, d.value)
		}
	}
	if c.Memory.GCPercent < 0 {
		fail("memory.gc_percent", "memory.gc_percent is negative: %d", c.Memory.GCPercent)
	}
	if c.StoreAddress != "" {
		if err := stores.Check(c.StoreAddress); err != nil {
			fail("store", "%v", err)
		}
		if err := stores.CheckCache(c.CacheAddress, c.StoreAddress); err != nil {
			fail("cache", "%v", err)
		}
	}
	c.CORS.check(fail)
	if c.Plain != PlainByKeys && c.Encryption == nil && c.EncryptionKeysFile == "" {
		fail("encryption", "encryption: there are no keys: name their file in encryption_keys_file")
	}
	if c.MaxConnections < 0 {
		fail("max_connections", "max_connections is negative: %d", c.MaxConnections)
	}
	if c.Breaker.Failures < 0 {
		fail("breaker.failures", "breaker.failures is negative: %d", c.Breaker.Failures)
	}
	if _, err := c.TLS.load(); err != nil {
		fail("tls", "tls: %v", err)
	}
	if c.UpstreamTLS != (UpstreamTLS{}) {
		_, errCA := c.UpstreamTLS.config(nil)
		_, errClient := c.UpstreamTLS.client()
		if err := errors.Join(errCA, errClient); err != nil {
			fail("upstream_tls", "upstream_tls: %v", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else if c.Upstream != nil && c.Upstream.Scheme != "https" {
			fail("upstream_tls", "upstream_tls: the upstream, %s, is not https", c.Upstream)
		}
	}
	// What the library says of what all routes share, it says of a guard that is thrown away.
	scope := semel.SingleTenant
	if c.Scope.set {
		scope = c.Scope.guard(c.TrustedProxies, newVerifier(c.JWT, nil), nil)
	}
	options := c.options()
	options.Observer = event.Log(slog.New(slog.DiscardHandler), "")
	_, err := semel.New(memstore.New(), scope, semel.Hold, options)
	for _, text := range settingErrors(err) {
		fail(settingOf(text), "%s", text)
	}

	faults = append(faults, c.Default.check(c, "default")...)
	patterns := newPatterns(c.matchCase())
	for i := range c.Routes {
		r, at := &c.Routes[i], "routes["+strconv.Itoa(i)+"]"
		if r.Match == "" {
			fail(at, "match is missing: a route needs a pattern such as POST /payments/{id}")
		} else if err := patterns.add(r.Match); err != nil {
			fail(at+".match", "match: %v", err)
		} else if c.asksAbout(patternPath(r.Match)) {
			fail(at+".match", "match: %s is below operations, %s, where the gateway answers itself", r.Match, c.Operations)
		}
		faults = append(faults, r.check(c, at)...)
	}
	return faults
}

// check returns everything that is wrong with a route, whose path in the file is at.
func (r *Route) check(c *Config, at string) (faults []fault) {
	fail := func(setting, format string, a ...any) {
		faults = append(faults, fault{at + "." + setting, fmt.Sprintf(format, a...)})
	}
	for _, text := range settingErrors(r.policy(c).Validate()) {
		setting := settingOf(text)
		switch {
		case setting == "problems.base", setting == "problems.documentation" && r.Problems.Documentation == "":
			// That of all routes, which is looked at there.
		default:
			fail(setting, "%s", text)
		}
	}
	if slices.Contains(r.keyHeaders(), http.CanonicalHeaderKey(c.CorrelationHeader)) {
		// The id that is made where there is none would be taken for a key: every attempt another operation.
		fail("key_headers", "key_headers: %s carries the correlation id", c.CorrelationHeader)
	}
	for _, l := range []struct {
		name string
		list []string
	}{{"methods", r.Policy.Methods}, {"key_headers", r.Policy.KeyHeaders}} {
		if l.list != nil && len(l.list) == 0 {
			fail(l.name, "%s: the list is empty; leave it out", l.name)
		}
	}
	c.checkNames("key_headers", r.Policy.KeyHeaders, fail)
	c.checkNames("fingerprint_headers", r.Policy.Fingerprint.Headers, fail)
	c.checkNames("seal_headers", r.Policy.SealHeaders, fail)
	for i, field := range r.Mint.Fields {
		if name, ok := strings.CutPrefix(field, headerField); ok {
			c.checkNames("mint.fields["+strconv.Itoa(i)+"]", []string{name}, fail)
		}
	}
	r.checkMethods(fail)
	r.checkMint(fail)
	r.checkFinishing(c, fail)
	r.checkCondition(fail)
	r.checkReplay(c, fail)
	checkStatuses("release_on", r.ReleaseOn, 300, fail)
	for _, code := range slices.Sorted(maps.Keys(r.Problems.Statuses)) {
		if status := r.Problems.Statuses[code]; ownCodes[code] && (status < 400 || status > 599) {
			fail("problems.statuses."+string(code), "problems.statuses: %d for %s is not an error status", status, code)
		}
	}
	if r.Reconcile != "" && c.Upstream != nil {
		if _, err := newQuestion(c.Upstream, r.Reconcile); err != nil {
			fail("reconcile", "%v", err)
		}
	}
	return faults
}

// checkNames refuses a header that a setting names and that is dropped for its name.
func (c *Config) checkNames(setting string, names []string, fail func(string, string, ...any)) {
	for _, name := range names {
		if !c.KeepUnderscores && isToken(name) && !plainName(name) {
			plain, _, _ := strings.Cut(setting, "[")
			fail(setting, "%s: %s is dropped from requests for its name; say underscores: keep if it is meant", plain, name)
		}
	}
}

func (r *Route) checkCondition(fail func(string, string, ...any)) {
	k := r.KeepIf
	if k == nil {
		return
	}
	if k.Pointer == "" {
		fail("keep_if", "keep_if: pointer is missing")
	} else if _, err := parsePointer(k.Pointer); err != nil {
		fail("keep_if.pointer", "keep_if: %v", err)
	}
	said := 0
	for _, has := range []bool{k.Equals != "", k.Exists, k.Absent} {
		if has {
			said++
		}
	}
	if said != 1 {
		fail("keep_if", "keep_if: want one of equals: VALUE, exists: true and absent: true")
	}
	if k.Equals != "" {
		if _, err := scalarAt([]byte(k.Equals), nil); err != nil {
			fail("keep_if.equals", "keep_if: equals is %q, want a string, number, boolean or null", k.Equals)
		}
	}
	checkStatuses("keep_if.status", k.Statuses, 200, fail)
	if r.Policy.Stream {
		fail("keep_if", "keep_if does not go with stream: an answer has left before its body is whole")
	}
}

func checkStatuses(setting string, statuses []int, least int, fail func(string, string, ...any)) {
	for i, s := range statuses {
		if s < least || s > 599 {
			fail(setting+"["+strconv.Itoa(i)+"]", "%s: %d is no status from %d to 599", setting, s, least)
		}
	}
}

// checkMethods refuses a route that would protect nothing, which can't be what its writer meant.
func (r *Route) checkMethods(fail func(string, string, ...any)) {
	method, _, found := strings.Cut(r.Match, " ")
	switch {
	case !found || slices.Contains(r.methods(), method):
	case safe(method):
		fail("match", "match: %s is a safe method, which is never protected: leave the route out", method)
	case len(r.Policy.Methods) == 0 && r.Unkeyed != UnkeyedPass:
		fail("unkeyed", "unkeyed: without a key a %s passes where methods does not name it: add methods: [%s]", method, method)
	case len(r.Policy.Methods) == 0:
	default:
		fail("methods", "methods: the route is for %s, which is not among them", method)
	}
}

func (r *Route) checkMint(fail func(string, string, ...any)) {
	m := &r.Mint
	if r.Unkeyed != UnkeyedMint {
		if len(m.Fields) > 0 || m.Window != 0 {
			fail("mint", "mint is only for unkeyed: mint")
		}
		return
	}
	if len(m.Fields) == 0 {
		fail("mint", "mint.fields: unkeyed: mint needs the fields that tell operations apart")
	}
	for i, f := range m.Fields {
		if err := checkField(f); err != nil {
			fail("mint.fields["+strconv.Itoa(i)+"]", "mint.fields: %v", err)
		}
	}
	deadline, lease := r.Policy.MaxRun, r.Policy.Lease
	if deadline == 0 {
		deadline = defaults.MaxRun
	}
	if lease == 0 {
		lease = driver.DefaultLease
	}
	switch {
	case m.Window < 0:
		fail("mint.window", "mint.window is negative: %v", m.Window)
	case m.Window == 0:
	case r.Policy.KeyField != "":
		fail("mint.window", "mint.window does not go with key_field: whether a request carries a key must show in its headers")
	case m.Window-lease < deadline:
		fail("mint.window", "mint.window is %v, want at least deadline + lease, which is %v + %v: a record must outlive any run that may still settle it",
			m.Window, deadline, lease)
	}
}

// settingErrors returns what the library says is wrong, one text for each error, in the words of the configuration.
func settingErrors(err error) (texts []string) {
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "semel: new guard: ")
		for _, where := range []string{"policy: ", "options: ", "Fingerprint: "} {
			line = strings.TrimPrefix(line, where)
		}
		if strings.Contains(line, " can't be stored with a request: ") {
			line = "SealHeaders: " + line
		}
		words, quoted, _ := strings.Cut(line, `"`)
		if line != words {
			quoted = `"` + quoted
		}
		texts = append(texts, settingNames.Replace(words)+quoted)
	}
	return texts
}

// settingNames are the configuration's words for the library's. Of two that begin alike the longer one comes first.
var settingNames = strings.NewReplacer(
	"every byte is compared under Exact, which", "byte_exact: every byte is compared, which",
	"redacted field", "redact", "excluded field", "exclude", "excluded name", "exclude_names", "compared header", "fingerprint_headers:",
	"ExcludeNames", "exclude_names", "Exclude", "exclude", "NullIsAbsent", "absent_equals_null", "field Host", "setting compare_host",
	"KeyFormat: MaxLength", "key_max_length", "KeyHeaders", "key_headers", "KeyField", "key_field",
	"MaxRequestBody", "max_request_body", "SpoolRequestAbove", "spool_request_above", "MaxResponseBody", "max_response_body",
	"MaxAttempts", "caps.max_attempts", "MaxKeys", "caps.max_keys", "MaxOwed", "caps.max_owed", "MaxWaiting", "caps.max_waiting",
	"MaxBodyMemory", "caps.max_body_memory", "MaxTempSpace", "caps.max_temp_space",
	"PrincipalShare", "caps.principal_share", "RequestLife", "request_life", "SweepInterval", "sweep_interval", "TempDir", "temp_dir",
	"ReplayMarkers", "replay_markers", "HeaderNames", "header_names", "NoStore", "no_store",
	"MinRetention", "min_retention", "MaxRetention", "max_retention",
	"MaxWaiters", "max_waiters", "MaxWait", "max_wait", "MaxRun", "deadline", "SettleWait", "settle_wait", "Wait", "wait",
	"Patience", "client_timeout", "go with RespondAsync", "go with respond_async", "Lease", "lease", "Retention", "retention", "Tombstone", "tombstone", "OnLost", "on_lost", "OnError", "on_error",
	"Credentials", "credentials", "Methods", "methods", "StoreHeaders", "store_headers", "CorrelationHeader", "correlation_header",
	"Problems.Status", "problems.statuses", "Problems.Base", "problems.base", "Problems.Documentation", "problems.documentation",
	"go with OnLost Hold", "go with on_lost: hold, the default: they need on_lost: rerun",
	"go with Stream", "go with stream", "go with Observe", "go with observe", "go with FailOpen", "go with fail_open",
	"RespondAsync", "respond_async", "SealHeaders", "seal_headers", "Redact", "redact", "Complete", "complete", "Operations", "operations",
	"IdentitySecret", "identity_secret_file", "DerivationSecret", "derivation_secret_file",
)

// settingOf returns the name of the setting with which a text begins.
func settingOf(text string) string {
	end := strings.IndexFunc(text, func(c rune) bool { return c != '_' && c != '.' && (c < 'a' || c > 'z') })
	if end < 0 {
		return text
	}
	return text[:end]
}

// describe says what is wrong in words for whoever has set flags or fields, and not a file.
func (c *Config) describe(f fault) error {
	setting := settingOf(f.text)
	text := strings.ReplaceAll(setting, "_", "-") + strings.TrimPrefix(f.text, setting)
	var i int
	if _, err := fmt.Sscanf(f.at, "routes[%d]", &i); err == nil {
		return fmt.Errorf("route %s: %s", c.Routes[i].Match, text)
	}
	return errors.New(text)
}
