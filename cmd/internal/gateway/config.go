package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/keyring"
)

// Config is what a gateway is made from. Zero fields mean the documented default; those without one must be set.
type Config struct {
	// File is what [Gateway.Reload] reads again; "" if the configuration comes from no file. See [LoadFile].
	File string

	// Listen is the address that clients connect to, Admin that of health, readiness and metrics. Both are host:port; port
	// 0 takes a free one.
	Listen, Admin string
	// TLS is the certificate that clients are shown. Defaults to none: clients speak HTTP without TLS.
	TLS TLSFiles
	// Upstream is the service behind the gateway; see [ParseUpstream].
	Upstream *url.URL
	// UpstreamTLS is for an upstream of https. Defaults to the machine's authorities and no certificate of the gateway's
	// own.
	UpstreamTLS UpstreamTLS
	// UpstreamIdle is how long a connection to the upstream is kept unused. It must be shorter than the upstream keeps it:
	// a request that is sent while the upstream closes the connection is lost. Defaults to 1 s.
	UpstreamIdle time.Duration

	// IdleTimeout is how long a client may take for the next part of a request's body, and for 16 KiB of an answer.
	// Defaults to 1 min.
	IdleTimeout time.Duration
	// TunnelIdle is how long a connection that was upgraded, such as a WebSocket, is kept though nothing passes either
	// way. Defaults to 10 min.
	TunnelIdle time.Duration
	// MaxConnections is how many connections clients may have at once. Defaults to 8192, and to a quarter of the files
	// that the process may have open, less 64, if that is less: so there are some left for the upstream, the store and
	// administration.
	MaxConnections int
	// Memory says how much memory the process may take before garbage is collected. A gateway that is part of a process
	// leaves that to it: see [Memory.Use].
	Memory Memory

	// Store keeps the records.
	Store driver.Store
	// CheckCache asks the cache in front of the store whether it works, for readiness. Defaults to none.
	CheckCache func(ctx context.Context) error
	// StoreAddress, CacheAddress and the names of files say where the store, its cache and the secrets come from, for
	// whoever opens them. The gateway itself only refuses to change them while it runs.
	StoreAddress, CacheAddress                                   string
	IdentitySecretFile, DerivationSecretFile, EncryptionKeysFile string
	// IdentitySecret, DerivationSecret and Encryption are those of [semel.Options].
	IdentitySecret, DerivationSecret []byte
	Encryption                       *keyring.Ring
	// Plain says whether stored answers that are not encrypted are replayed, where there are encryption keys. Defaults to
	// PlainByKeys.
	Plain Plain
	// ReadyWithoutStore says whether the gateway is ready while its store is down. Defaults to ReadyIfAllFailOpen.
	ReadyWithoutStore Readiness
	// Breaker says when the store counts as down, so that no request waits for it.
	Breaker Breaker
	// BreakerOpen reports whether a breaker within the store is open. Defaults to one breaker for the whole store.
	BreakerOpen func() bool

	// Scope says who asks; see [ParseScope].
	Scope Scope
	// JWT says how tokens are verified, with scope jwt only, and MTLS what certificates say, with scope mtls only.
	JWT  JWT
	MTLS MTLS
	// TrustedProxies are the networks whose scope header and X-Forwarded headers are believed. Defaults to [Loopback] if
	// Listen is on loopback. Elsewhere it defaults to none, and must be set with a scope header.
	TrustedProxies []netip.Prefix
	// Hosts are the names by which requests may come, without a port: "api.example.com", "*.example.com" for all below it,
	// or "*" for all. Those that routes are for are among them. Defaults to names and addresses of this machine for an
	// address on loopback, which others than its own pages must not reach, and elsewhere to all.
	Hosts []string
	// KeepUnderscores passes headers on whose names are of more than letters, digits and hyphens, such as X_Account,
	// unless a service might read them as one of the gateway's own. Defaults to dropping them, which is counted.
	KeepUnderscores bool
	// PassOverrides passes requests on that ask for another method than their own, by X-HTTP-Method-Override,
	// X-HTTP-Method, X-Method-Override or _method in the query; these headers then count in fingerprints. Defaults to
	// refusing them.
	PassOverrides bool
	// PassAmbiguous passes requests on whose paths services may read in several ways. Defaults to refusing them with 400
	// where it matters which path a request is for: where there are routes, or the default one refuses anything.
	PassAmbiguous bool
	// MatchCase says whether upper and lower case differ in the paths of routes. Defaults to true, with a warning where a
	// route refuses requests without a key, or makes their keys.
	MatchCase *bool
	// CorrelationHeader carries the correlation id of every request, with or without a key (R-76a). Defaults to
	// X-Correlation-Id.
	CorrelationHeader string
	// ProblemBase is put before a problem's short name to make its type, an absolute URI. Defaults to
	// "urn:semel:problem:".
	ProblemBase string
	// Documentation is the address of the API's page about idempotency, for routes that have none of their own. Defaults
	// to none.
	Documentation string

	// ReplayMarkers and HeaderNames are those of [semel.Options].
	ReplayMarkers []string
	HeaderNames   map[string]string
	// Caps bound what one key and one principal can take.
	Caps Caps
	// RequestLife, SweepInterval and TempDir are those of [semel.Options].
	RequestLife, SweepInterval time.Duration
	TempDir                    string

	// Operations is the path below which the gateway itself tells what became of operations, such as "/operations";
	// see [semel.Guard.Operations]. Answers that leave that open link to it. Defaults to none.
	Operations string

	// CORS lets pages of other origins read answers. Defaults to what the service allows.
	CORS CORS

	// Default treats the requests that no route names.
	Default Route
	// Routes are the others. The most specific pattern counts, whatever their order.
	Routes []Route

	// ShutdownTimeout bounds the drain. Defaults to RequestLife and 10 s, because a release that is owed is sent a second
	// time up to RequestLife after the first.
	ShutdownTimeout time.Duration

	// Observers are told every event, besides the log and the metrics.
	Observers []event.Observer
	// upstreamFailed is told each error of the upstream.
	upstreamFailed func(ctx context.Context, kind string)
	// headersDropped is told how many headers of a request were dropped for their names.
	headersDropped func(n int)
	// looksEvery is how often there is a look for operations to finish without their clients, and how long one rests
	// first. Defaults to those of [semel.CompleterOptions].
	looksEvery time.Duration
	// allowedFor is how long an answer to Route.Authorize counts. Defaults to 3 s.
	allowedFor time.Duration

	// Log gets one line a decision, and what operators must know. Defaults to no log.
	Log *slog.Logger
	// Instance names this process in the log. Defaults to the machine's name.
	Instance string
}

// Plain says what becomes of stored answers that are not encrypted.
type Plain uint8

const (
	// PlainByKeys refuses them if there are encryption keys.
	PlainByKeys Plain = iota
	// PlainRefused does so, and needs encryption keys.
	PlainRefused
	// PlainAllowed replays them, for the change-over to encryption.
	PlainAllowed
)

var plainNames = map[string]Plain{"required": PlainRefused, "allow-plain": PlainAllowed}

// ParsePlain reads "required" or "allow-plain", the names of the setting encryption; "" is PlainByKeys.
func ParsePlain(s string) (Plain, bool) {
	p, ok := plainNames[s]
	return p, ok || s == ""
}

// Breaker is the setting of the store's circuit breaker.
type Breaker struct {
	// Failures is how many claims in a row must fail to open it. Defaults to 5.
	Failures int
	// Open is how long it then refuses claims before it lets one try. Defaults to 1 s.
	Open time.Duration
}

// Options returns the settings of a breaker, which has no name yet.
func (b Breaker) Options() breaker.Options {
	return breaker.Options{Failures: b.Failures, Open: b.Open}
}

// Caps are the limits of [semel.Options] for keys and principals, by the names that they have there. Zero means
// the default, and less than zero, for the first two, no limit.
type Caps struct {
	MaxAttempts, MaxKeys, MaxOwed, MaxWaiting int
	MaxBodyMemory, MaxTempSpace               int64
	PrincipalShare                            float64
}

// Defaults of [Config].
const (
	DefaultListen            = "127.0.0.1:8080"
	DefaultAdmin             = "127.0.0.1:8081"
	DefaultStore             = "sqlite://semel.db"
	DefaultUpstreamIdle      = time.Second
	DefaultIdleTimeout       = time.Minute
	DefaultTunnelIdle        = 10 * time.Minute
	DefaultMaxConnections    = 8192
	DefaultShutdownTimeout   = defaults.RequestLife + shutdownMargin
	shutdownMargin           = 10 * time.Second
	defaultCorrelationHeader = "X-Correlation-Id"
	defaultProblemBase       = "urn:semel:problem:"
)

// complete fills in the defaults.
func (c *Config) complete() {
	c.UpstreamIdle = cmp.Or(c.UpstreamIdle, DefaultUpstreamIdle)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.TunnelIdle = cmp.Or(c.TunnelIdle, DefaultTunnelIdle)
	if c.MaxConnections == 0 {
		c.MaxConnections = min(DefaultMaxConnections, enough(descriptors()))
	}
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, cmp.Or(c.RequestLife, defaults.RequestLife)+shutdownMargin)
	c.CorrelationHeader = http.CanonicalHeaderKey(cmp.Or(c.CorrelationHeader, defaultCorrelationHeader))
	c.ProblemBase = cmp.Or(c.ProblemBase, defaultProblemBase)
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && thisMachine(host) && c.TrustedProxies == nil {
		c.TrustedProxies = Loopback()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Instance == "" {
		c.Instance = "unknown"
		if name, err := os.Hostname(); err == nil {
			c.Instance = name
		}
	}
}

// matchCase reports whether upper and lower case differ in the paths of routes.
func (c *Config) matchCase() bool { return c.MatchCase == nil || *c.MatchCase }

// enough is how many connections of clients go with so many open files: one may need another to the upstream, one to
// the store, and a temporary file.
func enough(files uint64) int {
	const kept, least, each = 64, 16, 4
	if files == 0 {
		return DefaultMaxConnections
	}
	return int(max(min(files, 1<<20)/each, kept+least) - kept)
}

// options are those of the guards, without what has to be opened or observes.
func (c *Config) options() semel.Options {
	encryption := c.Encryption
	if c.Plain == PlainAllowed {
		encryption = encryption.AllowPlain()
	}
	return semel.Options{
		IdentitySecret: c.IdentitySecret, DerivationSecret: c.DerivationSecret, Encryption: encryption,
		Problems:          semel.ProblemOptions{Base: c.ProblemBase, Documentation: c.Documentation},
		CorrelationHeader: c.CorrelationHeader, ReplayMarkers: c.ReplayMarkers, HeaderNames: c.HeaderNames,
		Operations:  c.Operations,
		MaxAttempts: c.Caps.MaxAttempts, MaxKeys: c.Caps.MaxKeys, MaxOwed: c.Caps.MaxOwed, MaxWaiting: c.Caps.MaxWaiting,
		MaxBodyMemory: c.Caps.MaxBodyMemory, MaxTempSpace: c.Caps.MaxTempSpace,
		PrincipalShare: c.Caps.PrincipalShare,
		RequestLife:    c.RequestLife, SweepInterval: c.SweepInterval, TempDir: c.TempDir,
	}
}

// all returns the default and the routes.
func (c *Config) all() []*Route {
	all := []*Route{&c.Default}
	for i := range c.Routes {
		all = append(all, &c.Routes[i])
	}
	return all
}

// Loopback returns the networks of this machine itself.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// ParseUpstream reads the address of the upstream: http or https, a host, and a path under which it lives, if any. A
// host with a port alone is an address of http.
func ParseUpstream(s string) (*url.URL, error) {
	errUser := errors.New("upstream: user and password don't belong into the address; they would not be sent")
	switch {
	case strings.Contains(s, "://"):
	case strings.Contains(s, "@"):
		return nil, errUser
	default:
		host, _, _ := strings.Cut(s, "/")
		_, port, err := net.SplitHostPort(host)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
			return nil, fmt.Errorf("upstream %q: want http:// or https:// in front, as in http://127.0.0.1:9000", s)
		}
		s = "http://" + s
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("upstream: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("upstream %q: want http:// or https:// in front", s)
	case u.Hostname() == "":
		return nil, fmt.Errorf("upstream %q has no host", s)
	case u.User != nil:
		return nil, errUser
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("upstream %q: only a host and a path are allowed, no query and no fragment", s)
	}
	return u, nil
}

// ParseNetworks reads networks in CIDR notation; a single address stands for itself.
func ParseNetworks(list []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, s := range list {
		n, err := parseNetwork(s)
		if err != nil {
			return nil, err
		}
		networks = append(networks, n)
	}
	return networks, nil
}

func parseNetwork(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		addr = network.Plain(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	n, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("trusted proxy %q is neither a network such as 10.0.0.0/8 nor an address", s)
	}
	return network.PlainPrefix(n).Masked(), nil
}

// hostPort reports whether an address can be listened on.
func hostPort(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil
}
