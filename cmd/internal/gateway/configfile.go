package gateway

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// LoadFile reads a configuration from a YAML file, whose settings bear the names of the fields that they set. Where
// they are missing the documented defaults count. It reports everything that is wrong, with line and column; only after
// a mistake in the YAML itself it can't see what follows. Store and secrets are left to be opened.
func LoadFile(name string) (Config, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return parseConfig(name, content)
}

func parseConfig(name string, content []byte) (Config, error) {
	c := Config{File: name, Listen: DefaultListen, Admin: DefaultAdmin, StoreAddress: DefaultStore}
	f, document := parseYAML(name, content)
	if document == nil {
		return Config{}, f.err()
	}
	f.read("", "the file", document, mapping(topSettings(&c)))
	if f.failed[""] && len(f.places) == 1 { // that of the file itself
		return Config{}, f.err()
	}
	c.complete()
	for _, fault := range c.check() {
		if !f.failed[fault.at] { // else what was checked is not what was meant
			f.fail(f.element(f.place(fault.at), fault.text), "%s", fault.text)
		}
	}
	if err := f.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func topSettings(c *Config) map[string]setting {
	return map[string]setting{
		"listen": stringSetting(&c.Listen),
		"admin":  stringSetting(&c.Admin),
		"tls": mapping(map[string]setting{
			"cert":      stringSetting(&c.TLS.Cert),
			"key":       stringSetting(&c.TLS.Key),
			"client_ca": stringSetting(&c.TLS.ClientCA),
		}),
		"upstream": parsed(&c.Upstream, "an address such as http://127.0.0.1:9000", trimmed("upstream", ParseUpstream)),
		"upstream_tls": mapping(map[string]setting{
			"ca":          stringSetting(&c.UpstreamTLS.CA),
			"cert":        stringSetting(&c.UpstreamTLS.Cert),
			"key":         stringSetting(&c.UpstreamTLS.Key),
			"server_name": stringSetting(&c.UpstreamTLS.ServerName),
		}),
		"upstream_idle":   notZero(&c.UpstreamIdle, durationSetting(&c.UpstreamIdle), leaveOut),
		"idle_timeout":    notZero(&c.IdleTimeout, durationSetting(&c.IdleTimeout), leaveOut),
		"tunnel_idle":     notZero(&c.TunnelIdle, durationSetting(&c.TunnelIdle), leaveOut),
		"max_connections": notZero(&c.MaxConnections, intSetting(&c.MaxConnections), leaveOut),
		"memory": mapping(map[string]setting{
			"gc_percent": notZero(&c.Memory.GCPercent, intSetting(&c.Memory.GCPercent), leaveOut),
			"limit":      notZero(&c.Memory.Limit, sizeSetting(&c.Memory.Limit), leaveOut),
		}),
		"store":               stringSetting(&c.StoreAddress),
		"cache":               stringSetting(&c.CacheAddress),
		"ready_without_store": choice(&c.ReadyWithoutStore, readinessNames),
		"breaker": mapping(map[string]setting{
			"failures": notZero(&c.Breaker.Failures, intSetting(&c.Breaker.Failures), leaveOut),
			"open":     notZero(&c.Breaker.Open, durationSetting(&c.Breaker.Open), leaveOut),
		}),
		"identity_secret_file":   stringSetting(&c.IdentitySecretFile),
		"derivation_secret_file": stringSetting(&c.DerivationSecretFile),
		"encryption_keys_file":   stringSetting(&c.EncryptionKeysFile),
		"encryption":             choice(&c.Plain, plainNames),
		"scope":                  parsed(&c.Scope, "header:NAME, jwt, mtls or single", trimmed("scope", ParseScope)),
		"jwt": mapping(map[string]setting{
			"keys":       stringSetting(&c.JWT.Keys),
			"algorithms": listOf(&c.JWT.Algorithms, stringSetting),
			"issuer":     stringSetting(&c.JWT.Issuer),
			"audience":   stringSetting(&c.JWT.Audience),
			"claims":     listOf(&c.JWT.Claims, stringSetting),
			"leeway":     notZero(&c.JWT.Leeway, durationSetting(&c.JWT.Leeway), leaveOut),
		}),
		"mtls": mapping(map[string]setting{"principal": stringSetting(&c.MTLS.Principal)}),
		"trusted_proxies": listOf(&c.TrustedProxies, func(to *netip.Prefix) setting {
			return parsed(to, "a network such as 10.0.0.0/8", parseNetwork)
		}),
		"hosts":              listOf(&c.Hosts, stringSetting),
		"underscores":        choice(&c.KeepUnderscores, map[string]bool{"drop": false, "keep": true}),
		"method_override":    choice(&c.PassOverrides, refuseOrPass),
		"ambiguous_targets":  choice(&c.PassAmbiguous, refuseOrPass),
		"match_case":         matchCaseSetting(&c.MatchCase),
		"operations":         stringSetting(&c.Operations),
		"correlation_header": stringSetting(&c.CorrelationHeader),
		"cors": mapping(map[string]setting{
			"origins":          listOf(&c.CORS.Origins, stringSetting),
			"credentials":      boolSetting(&c.CORS.Credentials),
			"methods":          listOf(&c.CORS.Methods, stringSetting),
			"request_headers":  listOf(&c.CORS.RequestHeaders, stringSetting),
			"response_headers": listOf(&c.CORS.ResponseHeaders, stringSetting),
			"max_age":          durationSetting(&c.CORS.MaxAge),
		}),
		"replay_markers": listOf(&c.ReplayMarkers, stringSetting),
		"header_names":   namesSetting(&c.HeaderNames),
		"caps": mapping(map[string]setting{
			"max_attempts":    capSetting(&c.Caps.MaxAttempts),
			"max_keys":        capSetting(&c.Caps.MaxKeys),
			"max_owed":        notZero(&c.Caps.MaxOwed, intSetting(&c.Caps.MaxOwed), leaveOut),
			"max_waiting":     notZero(&c.Caps.MaxWaiting, intSetting(&c.Caps.MaxWaiting), leaveOut),
			"max_body_memory": notZero(&c.Caps.MaxBodyMemory, sizeSetting(&c.Caps.MaxBodyMemory), leaveOut),
			"max_temp_space":  notZero(&c.Caps.MaxTempSpace, sizeSetting(&c.Caps.MaxTempSpace), leaveOut),
			"principal_share": shareSetting(&c.Caps.PrincipalShare),
		}),
		"request_life":     notZero(&c.RequestLife, durationSetting(&c.RequestLife), leaveOut),
		"sweep_interval":   notZero(&c.SweepInterval, durationSetting(&c.SweepInterval), leaveOut),
		"temp_dir":         stringSetting(&c.TempDir),
		"shutdown_timeout": notZero(&c.ShutdownTimeout, durationSetting(&c.ShutdownTimeout), leaveOut),
		"problems": mapping(map[string]setting{
			"base":          stringSetting(&c.ProblemBase),
			"documentation": stringSetting(&c.Documentation),
		}),
		"instance": stringSetting(&c.Instance),
		"default":  mapping(routeSettings(&c.Default)),
		"routes": listOf(&c.Routes, func(r *Route) setting {
			settings := routeSettings(r)
			settings["match"] = stringSetting(&r.Match)
			return mapping(settings)
		}),
	}
}

// trimmed is parse without the setting's name in its errors, where it stands already.
func trimmed[T *url.URL | Scope](name string, parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parse(s)
		if err != nil {
			err = fmt.Errorf("%s", strings.TrimLeft(strings.TrimPrefix(err.Error(), name), ": "))
		}
		return v, err
	}
}

var (
	lostPolicies  = map[string]semel.LostPolicy{"hold": semel.Hold, "rerun": semel.Rerun}
	errorPolicies = map[string]semel.ErrorPolicy{"keep": semel.KeepErrors, "release": semel.ReleaseErrors}
	keyFormats    = map[string]semel.UUIDRule{"any": semel.AnyKey, "uuid": semel.UUIDAny, "uuid4": semel.UUIDv4}
	envelopes     = map[string]bool{"problem": false, "simple": true}
	refuseOrPass  = map[string]bool{"refuse": false, "pass": true}
)

// routeSettings are the settings of a policy.
func routeSettings(r *Route) map[string]setting {
	p, fp := &r.Policy, &r.Policy.Fingerprint
	return map[string]setting{
		"on_lost":           choice(&p.OnLost, lostPolicies),
		"on_error":          choice(&p.OnError, errorPolicies),
		"keep_only_success": boolSetting(&p.KeepOnlySuccess),
		"keep_if":           keepIf(r),
		"release_on":        listOf(&r.ReleaseOn, intSetting),

		"methods":        listOf(&p.Methods, stringSetting),
		"key_headers":    listOf(&p.KeyHeaders, stringSetting),
		"key_field":      stringSetting(&p.KeyField),
		"key_format":     choice(&p.KeyFormat.UUID, keyFormats),
		"key_max_length": notZero(&p.KeyFormat.MaxLength, intSetting(&p.KeyFormat.MaxLength), leaveOut),
		"key_pattern":    patternSetting(&r.KeyPattern),
		"strict_quoting": boolSetting(&p.KeyFormat.Strict),
		"per_operation":  boolSetting(&p.PerOperation),
		"unkeyed":        choice(&r.Unkeyed, unkeyedNames),
		"mint": mapping(map[string]setting{
			"fields": listOf(&r.Mint.Fields, stringSetting),
			"window": notZero(&r.Mint.Window, durationSetting(&r.Mint.Window), "leave it out for the route's retention"),
		}),

		"exclude":             listOf(&fp.Exclude, stringSetting),
		"exclude_names":       listOf(&fp.ExcludeNames, stringSetting),
		"byte_exact":          boolSetting(&fp.Exact),
		"absent_equals_null":  boolSetting(&fp.NullIsAbsent),
		"fingerprint_headers": listOf(&fp.Headers, stringSetting),
		"compare_host":        boolSetting(&fp.Host),

		"lease":          notZero(&p.Lease, durationSetting(&p.Lease), leaveOut),
		"deadline":       notZero(&p.MaxRun, durationSetting(&p.MaxRun), leaveOut),
		"client_timeout": durationSetting(&p.Patience),
		"settle_wait":    notZero(&p.SettleWait, durationSetting(&p.SettleWait), leaveOut),
		"retention":      notZero(&p.Retention, retentionSetting(&p.Retention), leaveOut),
		"min_retention":  notZero(&p.MinRetention, retentionSetting(&p.MinRetention), leaveOut),
		"max_retention":  notZero(&p.MaxRetention, retentionSetting(&p.MaxRetention), leaveOut),
		"tombstone":      retentionSetting(&p.Tombstone),
		"wait":           durationSetting(&p.Wait),
		"max_wait":       durationSetting(&p.MaxWait),
		"max_waiters":    notZero(&p.MaxWaiters, intSetting(&p.MaxWaiters), "without waiters say wait: 0s"),

		"max_request_body":    notZero(&p.MaxRequestBody, sizeSetting(&p.MaxRequestBody), leaveOut),
		"spool_request_above": notZero(&p.SpoolRequestAbove, sizeSetting(&p.SpoolRequestAbove), "say 1 to keep each body in a file"),
		"max_response_body":   notZero(&p.MaxResponseBody, sizeSetting(&p.MaxResponseBody), "to store no answer say no_store: true"),
		"no_store":            boolSetting(&p.NoStore),
		"compress_above":      compressSetting(&p.CompressAbove),
		"stream":              boolSetting(&p.Stream),
		"store_headers":       listOf(&p.StoreHeaders, stringSetting),

		"respond_async": boolSetting(&p.RespondAsync),
		"complete":      boolSetting(&p.Complete),
		"seal_headers":  listOf(&p.SealHeaders, stringSetting),
		"redact":        listOf(&p.Redact, stringSetting),

		"fail_open": boolSetting(&p.FailOpen),
		"observe":   boolSetting(&p.ObserveOnly),
		"problems": mapping(map[string]setting{
			"statuses":      statusesSetting(&r.Problems.Statuses),
			"envelope":      choice(&r.Problems.Simple, envelopes),
			"documentation": stringSetting(&r.Problems.Documentation),
		}),
		"reconcile":   stringSetting(&r.Reconcile),
		"credentials": listOf(&p.Credentials, stringSetting),
		"authorize":   stringSetting(&r.Authorize),
		"replay_to":   choice(&r.ReplayTo, replayNames),
	}
}

func keepIf(r *Route) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		r.KeepIf = &Condition{}
		read := mapping(map[string]setting{
			"pointer": stringSetting(&r.KeepIf.Pointer),
			"equals":  jsonSetting(&r.KeepIf.Equals),
			"exists":  boolSetting(&r.KeepIf.Exists),
			"absent":  boolSetting(&r.KeepIf.Absent),
			"status":  listOf(&r.KeepIf.Statuses, intSetting),
		})
		read(f, path, value)
	}
}

// jsonSetting takes a scalar as the JSON text that it stands for.
func jsonSetting(to *string) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		switch v := value.(type) {
		case *ast.StringNode:
			quoted, err := json.Marshal(v.Value)
			if err != nil {
				f.fail(value, "%s: %v", nameOf(path), err)
			}
			*to = string(quoted)
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			*to = value.GetToken().Value
		default:
			f.fail(value, "%s: want a text, a number, true or false", nameOf(path))
		}
	}
}

// matchCaseSetting is true or false, and nil where neither was said.
func matchCaseSetting(to **bool) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		*to = new(bool)
		boolSetting(*to)(f, path, value)
	}
}

// retentionSetting is a time, or "forever".
func retentionSetting(to *time.Duration) setting {
	return parsed(to, wantDuration+", or forever", parseKept)
}

// patternSetting is a regular expression.
func patternSetting(to **regexp.Regexp) setting {
	return parsed(to, "a regular expression such as ORD-[0-9]+", func(s string) (*regexp.Regexp, error) {
		p, err := regexp.Compile(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no regular expression: %w", s, err)
		}
		p.Longest()
		return p, nil
	})
}

// compressSetting is a size, or "never".
func compressSetting(to *int) setting {
	return parsed(to, wantSize+", or never", func(s string) (int, error) {
		if s == "never" {
			return -1, nil
		}
		n, err := parseSize(s)
		switch {
		case err != nil:
			return 0, err
		case n == 0:
			return 1, nil // 0 is the library's word for its default
		}
		return int(n), nil
	})
}

// statusesSetting has codes for names.
func statusesSetting(to *map[refusal.Code]int) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		m, ok := value.(*ast.MappingNode)
		if !ok {
			f.fail(value, "%s: want one CODE: STATUS a line", nameOf(path))
			return
		}
		*to = map[refusal.Code]int{}
		for _, e := range f.entries(m) {
			code := e.Key.GetToken().Value
			var status int
			f.read(path+"."+code, code, e.Value, intSetting(&status))
			(*to)[refusal.Code(code)] = status
		}
	}
}

// element returns the item of a list that a text quotes, for a list; else the value itself.
func (f *yamlFile) element(n ast.Node, said string) ast.Node {
	switch v := n.(type) {
	case *ast.SequenceNode:
		for _, item := range v.Values {
			if s, ok := text(f.resolve(item)); ok && mentions(said, s) {
				return item
			}
		}
	case *ast.MappingNode:
		for _, e := range v.Values {
			if mentions(said, e.Key.GetToken().Value) {
				return e.Key
			}
		}
	}
	return n
}

// mentions reports whether a text names s, in quotes or as a word.
func mentions(text, s string) bool {
	return strings.Contains(text, fmt.Sprintf("%q", s)) || s != "" && strings.Contains(" "+text+" ", " "+s+" ")
}
