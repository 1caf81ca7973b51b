package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"

	"github.com/semelhq/semel/cmd/internal/stores"
)

// use puts routes, upstream and certificates into service, at once for every request that comes from now on. Requests
// under way end under what they came with.
func (g *Gateway) use(c *Config, files readFiles) error {
	if err := c.canFinish(); err != nil {
		return err
	}
	t := newTable(c, g.guard, transports{g.transport, g.elsewhere})
	if g.listener != nil {
		t.hosts, t.adminHosts = c.hosts(g.listener.Addr()), c.hosts(g.adminListener.Addr())
	}
	questions, err := t.questions(c)
	if err != nil {
		return err
	}
	if len(questions) > 0 && g.reconciler == nil {
		return fmt.Errorf("reconcile: the store, a %T, can't be searched for operations to settle", c.Store)
	}
	g.metrics.know(slices.Collect(maps.Keys(t.routes)))
	if g.reconciler != nil {
		g.reconciler.use(questions)
	}
	g.certificate.Store(files.own)
	g.clientCertificate.Store(files.client)
	g.clients.authorities.Store(&files.authorities)
	g.table.Store(t)
	c.warn()
	return nil
}

// Reload reads the configuration's file and the certificates again and puts their routes, upstream and certificates
// into service, without dropping a request. A file with errors, or with a change that needs a restart, is refused as a
// whole, and all that is wrong is logged. It does nothing if there are no files.
func (g *Gateway) Reload() error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	err := g.reload()
	g.metrics.reloaded(err)
	if err != nil {
		for _, line := range errorLines(err) {
			g.cfg.Log.Error("reload refused", "error", line)
		}
		return fmt.Errorf("reload: %w", err)
	}
	g.cfg.Log.Info("reloaded", slog.String("file", g.cfg.File), slog.Int("routes", len(g.table.Load().routes)))
	return nil
}

func (g *Gateway) reload() error {
	c := g.cfg
	if c.File != "" {
		next, err := LoadFile(c.File)
		if err != nil {
			return err
		}
		if err := unchanged(&c, &next); err != nil {
			return err
		}
		c.Upstream, c.Default, c.Routes, c.Documentation = next.Upstream, next.Default, next.Routes, next.Documentation
		c.ReadyWithoutStore, c.CORS = next.ReadyWithoutStore, next.CORS
		c.Hosts, c.KeepUnderscores, c.PassOverrides, c.PassAmbiguous, c.MatchCase = next.Hosts, next.KeepUnderscores, next.PassOverrides, next.PassAmbiguous, next.MatchCase
	}
	if g.listener != nil && leadsTo(c.Upstream, g.listener.Addr()) {
		return fmt.Errorf("the upstream %s is the gateway itself", c.Upstream)
	}
	files, err := c.readTLS()
	if err != nil {
		return err
	}
	return g.use(&c, files)
}

// unchanged reports all changes that would need a restart.
func unchanged(was, is *Config) error {
	var errs []error
	for _, s := range []struct{ name, was, is string }{
		{"store", was.StoreAddress, is.StoreAddress}, {"cache", was.CacheAddress, is.CacheAddress},
	} {
		if s.was != s.is {
			errs = append(errs, fmt.Errorf("%s: a change from %s to %s needs a restart", s.name, stores.Redacted(s.was), stores.Redacted(s.is)))
		}
	}
	for _, s := range []struct {
		name    string
		was, is any
	}{
		{"listen", was.Listen, is.Listen},
		{"admin", was.Admin, is.Admin},
		{"tls", was.TLS, is.TLS},
		{"upstream_tls", was.UpstreamTLS, is.UpstreamTLS},
		{"upstream_idle", was.UpstreamIdle, is.UpstreamIdle},
		{"idle_timeout", was.IdleTimeout, is.IdleTimeout},
		{"tunnel_idle", was.TunnelIdle, is.TunnelIdle},
		{"max_connections", was.MaxConnections, is.MaxConnections},
		{"memory", was.Memory, is.Memory},
		{"breaker", was.Breaker, is.Breaker},
		{"identity_secret_file", was.IdentitySecretFile, is.IdentitySecretFile},
		{"derivation_secret_file", was.DerivationSecretFile, is.DerivationSecretFile},
		{"encryption_keys_file", was.EncryptionKeysFile, is.EncryptionKeysFile},
		{"encryption", was.Plain, is.Plain},
		{"scope", was.Scope, is.Scope},
		{"jwt", was.JWT, is.JWT},
		{"mtls", was.MTLS, is.MTLS},
		{"trusted_proxies", was.TrustedProxies, is.TrustedProxies},
		{"correlation_header", was.CorrelationHeader, is.CorrelationHeader},
		{"replay_markers", was.ReplayMarkers, is.ReplayMarkers},
		{"header_names", was.HeaderNames, is.HeaderNames},
		{"caps", was.Caps, is.Caps},
		{"request_life", was.RequestLife, is.RequestLife},
		{"sweep_interval", was.SweepInterval, is.SweepInterval},
		{"temp_dir", was.TempDir, is.TempDir},
		{"operations", was.Operations, is.Operations},
		{"respond_async or complete on any route", was.finishes(), is.finishes()},
		{"problems.base", was.ProblemBase, is.ProblemBase},
		{"instance", was.Instance, is.Instance},
		{"shutdown_timeout", was.ShutdownTimeout, is.ShutdownTimeout},
	} {
		if !reflect.DeepEqual(s.was, s.is) {
			errs = append(errs, fmt.Errorf("%s: a change from %v to %v needs a restart", s.name, s.was, s.is))
		}
	}
	return errors.Join(errs...)
}
