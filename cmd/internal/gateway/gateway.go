package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
)

// A Gateway protects one upstream. It is made by [New] and does its work in [Gateway.Run].
type Gateway struct {
	cfg               Config
	guard             *semel.Guard // whose core all routes share
	table             atomic.Pointer[table]
	transport         *http.Transport     // to the upstream
	elsewhere         *http.Transport     // to others, with nothing of UpstreamTLS
	certificate       certificate         // that clients are shown
	clientCertificate certificate         // that the upstream is shown
	clients           *clientCertificates // that tell who asks, with scope mtls
	metrics           *metrics
	reconciler        *reconciler      // nil if the store can't be searched
	completer         *semel.Completer // nil if no route's operations are finished without their clients
	handler           http.Handler
	admin             http.Handler
	bodyTime          time.Duration
	draining          atomic.Bool
	reloading         sync.Mutex

	listener, adminListener net.Listener
}

// New returns a gateway, or everything that is wrong with its configuration. Nothing is started.
func New(c Config) (*Gateway, error) {
	c.complete()
	err := c.Validate()
	if c.Store == nil {
		err = errors.Join(err, errors.New("no store"))
	}
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		cfg: c, transport: newTransport(c.UpstreamIdle), elsewhere: newTransport(time.Second), clients: &clientCertificates{of: certificateNames[c.MTLS.Principal]},
		bodyTime: bodyTime, metrics: newMetrics(nil),
	}
	if g.transport.TLSClientConfig, err = c.UpstreamTLS.config(&g.clientCertificate); err != nil {
		return nil, err
	}
	g.cfg.upstreamFailed = g.metrics.upstreamFailed
	g.cfg.headersDropped = func(n int) { g.metrics.droppedHeaders.Add(float64(n)) }
	g.metrics.store.log = c.Log
	options := c.options()
	if c.BreakerOpen == nil {
		settings := c.Breaker.Options()
		settings.Name, settings.Log = "store", c.Log
		whole := breaker.New(settings)
		options.Breaker, c.BreakerOpen = whole, whole.Open
	}
	g.metrics.watchBreaker(c.BreakerOpen)
	observers := observers{observer(&c), g.metrics}
	if _, lists := c.Store.(driver.Lister); lists {
		if g.reconciler, err = newReconciler(c.Store, c.options().Encryption, g.transport, c.CorrelationHeader, c.Log, func(result string) { g.metrics.reconciled.WithLabelValues(result).Inc() }); err != nil {
			return nil, err
		}
		observers = append(observers, g.reconciler)
	}
	options.Observer = append(observers, c.Observers...)
	g.guard, err = semel.New(g.metrics.instrument(c.Store, c.storeKind()), c.Scope.guard(c.TrustedProxies, newVerifier(c.JWT, &http.Client{Transport: g.elsewhere, CheckRedirect: noRedirect}), g.clients), c.Default.Policy.OnLost, options)
	if err != nil {
		return nil, err
	}
	files, err := c.readTLS()
	if err != nil {
		return nil, err
	}
	g.metrics.watch(g.guard)
	if err := g.use(&g.cfg, files); err != nil {
		return nil, err
	}
	if c.finishes() {
		if g.completer, err = g.newCompleter(); err != nil {
			return nil, err
		}
	}
	g.handler = http.HandlerFunc(g.serve)
	g.admin = g.administered(g.newAdmin())
	return g, nil
}

// storeKind names the store in metrics.
func (c *Config) storeKind() string {
	kind, _, found := strings.Cut(c.StoreAddress, "://")
	if !found {
		return "store"
	}
	return kind
}

// Listen opens both addresses, so that Addr and AdminAddr are known before Run.
func (g *Gateway) Listen() error {
	listener, err := net.Listen("tcp", g.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	admin, err := net.Listen("tcp", g.cfg.Admin)
	if err != nil {
		return fmt.Errorf("listen for administration: %w", errors.Join(err, listener.Close()))
	}
	if leadsTo(g.cfg.Upstream, listener.Addr()) {
		err := fmt.Errorf("listen for clients: the upstream %s is the gateway itself", g.cfg.Upstream)
		return errors.Join(err, listener.Close(), admin.Close())
	}
	g.listener, g.adminListener = listener, admin
	t := *g.table.Load()
	t.hosts, t.adminHosts = g.cfg.hosts(listener.Addr()), g.cfg.hosts(admin.Addr())
	g.table.Store(&t)
	return nil
}

// leadsTo reports whether the upstream is plainly at the given address of this machine: a request would go round until
// the machine runs out of connections.
func leadsTo(upstream *url.URL, at net.Addr) bool {
	here, ok := at.(*net.TCPAddr)
	if !ok || upstream.Port() != strconv.Itoa(here.Port) {
		return false
	}
	host := upstream.Hostname()
	if host == "localhost" {
		return here.IP.IsLoopback() || here.IP.IsUnspecified()
	}
	ip := net.ParseIP(host)
	return ip != nil && (ip.Equal(here.IP) || here.IP.IsUnspecified() && ip.IsLoopback() || ip.IsUnspecified())
}

// Addr returns the address that clients connect to. Only after Listen.
func (g *Gateway) Addr() net.Addr { return g.listener.Addr() }

// AdminAddr returns the address of health, readiness and metrics. Only after Listen.
func (g *Gateway) AdminAddr() net.Addr { return g.adminListener.Addr() }

// Run serves until ctx ends, then drains: it accepts nothing more, lets every request and every run come to its end,
// and returns nil once each outcome is durable and each release is sent. What Config.ShutdownTimeout cuts short is an
// error. It calls Listen if that was not done. Run it once.
func (g *Gateway) Run(ctx context.Context) error {
	if g.listener == nil {
		if err := g.Listen(); err != nil {
			return err
		}
	}
	log, encrypted := g.cfg.Log, g.cfg.TLS != TLSFiles{}
	serverLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	// No WriteTimeout: it would cut off runs that may take long. What clients must do in time is bounded by the listener
	// and by pace.
	server := &http.Server{
		Handler: g.handler, ConnContext: withFraming, DisableGeneralOptionsHandler: true, ErrorLog: serverLog, Protocols: new(http.Protocols),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	server.Protocols.SetHTTP1(true)
	listener := g.listener
	if encrypted {
		server.TLSConfig = g.certificate.config()
		if g.cfg.Scope.mtls {
			server.TLSConfig = g.clients.asked(server.TLSConfig)
		}
		server.Protocols.SetHTTP2(true)
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
		listener = framedListener{listener}
	}
	clients := newClientListener(listener, &g.cfg, g.connectionsFull())
	server.ConnState = clients.changed
	g.metrics.connections.Store(clients)
	admin := &http.Server{
		Handler: g.admin, ErrorLog: serverLog,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	log.Info("gateway listening", "listen", g.Addr().String(), "admin", g.AdminAddr().String(), "tls", encrypted,
		"upstream", g.cfg.Upstream.String(), "scope", g.cfg.Scope.String(), "on_lost", g.cfg.Default.Policy.OnLost.String(),
		"lease", cmp.Or(g.cfg.Default.Policy.Lease, driver.DefaultLease).String(),
		"retention", cmp.Or(g.cfg.Default.Policy.Retention, driver.DefaultRetention).String(),
		"deadline", cmp.Or(g.cfg.Default.Policy.MaxRun, defaults.MaxRun).String(), "routes", len(g.cfg.Routes))

	var loops sync.WaitGroup
	defer loops.Wait()
	loopsCtx, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	failed := make(chan error, 2)
	loops.Go(func() {
		if err := g.guard.Run(loopsCtx); err != nil && loopsCtx.Err() == nil {
			log.Error("sweeping has ended", "error", err)
		}
	})
	if g.reconciler != nil {
		loops.Go(func() {
			if err := g.reconciler.Run(loopsCtx); err != nil && loopsCtx.Err() == nil {
				log.Error("reconcile has ended", "error", err)
			}
		})
	}
	loops.Go(func() { g.metrics.store.run(loopsCtx) })
	finishing := g.beginFinishing(loopsCtx)
	loops.Go(func() { failed <- serve(server, clients, "serve clients") })
	loops.Go(func() { failed <- serve(admin, g.adminListener, "serve administration") })
	defer admin.Close()
	defer g.transport.CloseIdleConnections()
	defer g.elsewhere.CloseIdleConnections()

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	finishing.stop()
	return errors.Join(err, g.drain(ctx, server, finishing))
}

// connectionsFull returns what tells operators that clients have to wait, once a minute at most.
func (g *Gateway) connectionsFull() func() {
	var last time.Time // of one goroutine, which accepts
	return func() {
		if now := time.Now(); now.Sub(last) > time.Minute {
			last = now
			g.cfg.Log.Warn("all connections for clients are taken", "max_connections", g.cfg.MaxConnections)
		}
	}
}

func serve(s *http.Server, l net.Listener, what string) error {
	serve := s.Serve
	if s.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// drain ends the gateway's work in order: clients and the completer first, so that nothing new begins, then the runs
// that have outlived them, settles and releases.
func (g *Gateway) drain(ctx context.Context, server *http.Server, finishing *finishing) error {
	g.draining.Store(true)
	log, began := g.cfg.Log, time.Now()
	log.Info("draining", "at_most", g.cfg.ShutdownTimeout.String())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.ShutdownTimeout)
	defer cancel()
	var errs []error
	if err := server.Shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("drain: requests under way: %w", err))
		server.Close()
	}
	select {
	case <-finishing.ended:
	case <-ctx.Done():
	}
	if err := g.guard.Drain(ctx); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		log.Error("drain was cut short", "left", err.Error(), "after", time.Since(began).String())
		return err
	}
	log.Info("drained", "after", time.Since(began).Round(time.Millisecond).String())
	return nil
}
