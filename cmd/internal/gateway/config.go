package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// Config is what a gateway is made from. Zero fields mean the documented default; those without one must be set.
type Config struct {
	// Listen is the address that clients connect to, Admin that of health and readiness. Both are host:port; port 0 takes
	// a free one.
	Listen, Admin string
	// Upstream is the service behind the gateway; see [ParseUpstream].
	Upstream *url.URL
	// Store keeps the records; see [OpenStore].
	Store semel.Store
	// Scope says who asks; see [ParseScope].
	Scope Scope
	// TrustedProxies are the networks whose scope header and X-Forwarded headers are believed. Defaults to [Loopback].
	TrustedProxies []netip.Prefix

	// RequireKey refuses a POST or PATCH without a key. Defaults to passing it on unprotected.
	RequireKey bool
	// OnLost says what becomes of a run whose answer was lost. Defaults to semel.Hold.
	OnLost semel.LostPolicy
	// OnError says what becomes of a 5xx of the upstream. Defaults to what OnLost implies.
	OnError semel.ErrorPolicy
	// Lease is how long a run is owned without renewal. Defaults to 30 s.
	Lease time.Duration
	// Retention is how long an answer is kept, from completion; at least Deadline + Lease. Defaults to 24 h.
	Retention time.Duration
	// Wait is how long a repeat waits for a run in progress before it is answered 409. Defaults to not at all.
	Wait time.Duration
	// ClientTimeout is how long a client waits for its own run before it is answered 504, while the run goes on. Defaults
	// to no limit.
	ClientTimeout time.Duration
	// Deadline is the longest that the upstream may take for a keyed request. Defaults to 15 min.
	Deadline time.Duration

	// UpstreamIdle is how long a connection to the upstream is kept unused. It must be shorter than the upstream keeps it:
	// a request that is sent while the upstream closes the connection is lost. Defaults to 1 s.
	UpstreamIdle time.Duration
	// ShutdownTimeout bounds the drain. Defaults to 40 s, because a release that is owed is sent a second time up to
	// semel.DefaultRequestLife after the first.
	ShutdownTimeout time.Duration

	// Log gets one line a decision, and what operators must know. Defaults to no log.
	Log *slog.Logger
	// Instance names this process in the log.
	Instance string
}

// Defaults of [Config].
const (
	DefaultUpstreamIdle    = time.Second
	DefaultShutdownTimeout = semel.DefaultRequestLife + 10*time.Second
)

// complete fills in the defaults and reports everything that is wrong.
func (c *Config) complete() error {
	var errs []error
	fail := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	for _, a := range []struct{ name, address string }{{"listen", c.Listen}, {"admin", c.Admin}} {
		if _, _, err := net.SplitHostPort(a.address); err != nil {
			fail("%s address %q is not host:port", a.name, a.address)
		}
	}
	if c.Upstream == nil {
		fail("no upstream")
	}
	if c.Store == nil {
		fail("no store")
	}
	for _, d := range []struct {
		name         string
		value        *time.Duration
		defaultValue time.Duration
	}{
		{"lease", &c.Lease, semel.DefaultLease},
		{"retention", &c.Retention, semel.DefaultRetention},
		{"wait", &c.Wait, 0},
		{"client-timeout", &c.ClientTimeout, 0},
		{"deadline", &c.Deadline, semel.DefaultMaxRun},
		{"upstream-idle", &c.UpstreamIdle, DefaultUpstreamIdle},
		{"shutdown-timeout", &c.ShutdownTimeout, DefaultShutdownTimeout},
	} {
		switch {
		case *d.value < 0:
			fail("%s is negative: %v", d.name, *d.value)
		case *d.value == 0:
			*d.value = d.defaultValue
		}
	}
	if c.Deadline > semel.Forever-c.Lease || c.Retention < c.Deadline+c.Lease {
		fail("retention is %v, want at least deadline + lease, which is %v + %v: a record must outlive any run that may still settle it",
			c.Retention, c.Deadline, c.Lease)
	}
	if len(c.TrustedProxies) == 0 {
		c.TrustedProxies = Loopback()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// Loopback returns the networks of this machine itself.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// ParseUpstream reads the address of the upstream: http or https, a host, and a path under which it lives, if any.
func ParseUpstream(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("upstream: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("upstream %q: want http:// or https:// in front", s)
	case u.Hostname() == "":
		return nil, fmt.Errorf("upstream %q has no host", s)
	case u.User != nil:
		return nil, errors.New("upstream: user and password don't belong into the address; they would not be sent")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("upstream %q: only a host and a path are allowed, no query and no fragment", s)
	}
	return u, nil
}

// ParseNetworks reads networks in CIDR notation; a single address stands for itself.
func ParseNetworks(list []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, s := range list {
		if addr, err := netip.ParseAddr(s); err == nil {
			networks = append(networks, netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()))
			continue
		}
		n, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("trusted proxy %q is neither a network such as 10.0.0.0/8 nor an address", s)
		}
		networks = append(networks, n.Masked())
	}
	return networks, nil
}

// Scope says how the gateway tells who asks. There is no default: whoever runs it must know.
type Scope struct {
	header string // "" means that there is only one principal
	set    bool
}

// ParseScope reads "single", for one principal only, or "header:NAME", for the header in which a trusted proxy names the
// authenticated principal.
func ParseScope(s string) (Scope, error) {
	if s == "single" {
		return Scope{set: true}, nil
	}
	name, ok := strings.CutPrefix(s, "header:")
	if !ok || name == "" {
		return Scope{}, fmt.Errorf("scope %q: want header:NAME, the header in which a trusted proxy says who asks, or single, if there is only one principal", s)
	}
	return Scope{header: name, set: true}, nil
}

func (s Scope) String() string {
	if s.header == "" {
		return "single"
	}
	return "header:" + s.header
}

// guard returns the library's scope; its zero value, which New refuses, if none was decided.
func (s Scope) guard(trusted []netip.Prefix) semel.Scope {
	switch {
	case !s.set:
		return semel.Scope{}
	case s.header == "":
		return semel.SingleTenant
	}
	return semel.ScopeTrustedHeader(s.header, trusted...)
}

// maxKeys is how many live keys one principal may have. Where all clients are one principal there is nobody to protect
// from it, and it would bound all traffic; the store's own bound remains.
func (s Scope) maxKeys() int {
	if s.header == "" {
		return -1
	}
	return semel.DefaultMaxKeys
}
