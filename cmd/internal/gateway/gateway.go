package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
)

// A Gateway protects one upstream. It is made by [New] and does its work in [Gateway.Run].
type Gateway struct {
	cfg       Config
	guard     *semel.Guard
	transport *http.Transport
	handler   http.Handler
	admin     http.Handler
	bodyTime  time.Duration
	draining  atomic.Bool

	listener, adminListener net.Listener
}

// New returns a gateway, or everything that is wrong with its configuration. Nothing is started.
func New(c Config) (*Gateway, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	guard, err := semel.New(c.Store, c.Scope.guard(c.TrustedProxies), c.OnLost, semel.Options{
		Policy: policy(&c), Observer: observer(c.Log, c.Instance), MaxKeys: c.Scope.maxKeys(),
		Problems: semel.ProblemOptions{Base: problemBase}, CorrelationHeader: correlationHeader,
	})
	if err != nil {
		return nil, err
	}
	g := &Gateway{cfg: c, guard: guard, transport: newTransport(c.UpstreamIdle), bodyTime: bodyTime}
	g.handler = g.newHandler(guard.Handler(g.newProxy()))
	g.admin = g.newAdmin()
	return g, nil
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

// AdminAddr returns the address of health and readiness. Only after Listen.
func (g *Gateway) AdminAddr() net.Addr { return g.adminListener.Addr() }

// Run serves until ctx ends, then drains: it accepts nothing more, lets every request and every run come to its end, and
// returns nil once each outcome is durable and each release is sent. What Config.ShutdownTimeout cuts short is an error.
// It calls Listen if that was not done. Run it once.
func (g *Gateway) Run(ctx context.Context) error {
	if g.listener == nil {
		if err := g.Listen(); err != nil {
			return err
		}
	}
	log := g.cfg.Log
	serverLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	// No WriteTimeout: it would cut off runs that may take long.
	server := &http.Server{
		Handler: g.handler, ErrorLog: serverLog,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	admin := &http.Server{
		Handler: g.admin, ErrorLog: serverLog,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	log.Info("gateway listening", "listen", g.Addr().String(), "admin", g.AdminAddr().String(),
		"upstream", g.cfg.Upstream.String(), "scope", g.cfg.Scope.String(), "on_lost", g.cfg.OnLost.String(),
		"lease", g.cfg.Lease.String(), "retention", g.cfg.Retention.String(), "deadline", g.cfg.Deadline.String())

	var loops sync.WaitGroup
	defer loops.Wait()
	sweeping, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSweeping()
	failed := make(chan error, 2)
	loops.Go(func() {
		if err := g.guard.Run(sweeping); err != nil && sweeping.Err() == nil {
			log.Error("sweeping has ended", "error", err)
		}
	})
	loops.Go(func() { failed <- serve(server, g.listener, "serve clients") })
	loops.Go(func() { failed <- serve(admin, g.adminListener, "serve administration") })
	defer admin.Close()
	defer g.transport.CloseIdleConnections()

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, g.drain(ctx, server))
}

func serve(s *http.Server, l net.Listener, what string) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// drain ends the gateway's work in order: clients first, then the runs that have outlived their clients, settles and
// releases.
func (g *Gateway) drain(ctx context.Context, server *http.Server) error {
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
