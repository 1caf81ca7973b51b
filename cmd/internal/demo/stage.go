package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/gateway"
	"github.com/semelhq/semel/memstore"
)

const (
	logName       = "gateway.log"
	preferredPort = "127.0.0.1:8080"
	freePort      = "127.0.0.1:0"

	// shortLease is the lease of the gateway that shows a run outliving it.
	shortLease = time.Second
)

// A stage holds what the scenes play on: the service with its ledger, a gateway with the defaults, and one with a short
// lease that would run a lost payment again.
type stage struct {
	screen
	cfg     Config
	dir     string
	ledger  *ledger
	service *service
	main    *gateway.Gateway

	front, shortFront string   // where clients reach the two gateways
	original          reply    // to the first request
	held              *process // on it an operation waits for its operator

	closers []func() error
}

func (s *stage) open() error {
	var err error
	if s.ledger, err = openLedger(filepath.Join(s.dir, "ledger.jsonl")); err != nil {
		return err
	}
	s.closing(s.ledger.close)
	if s.service, err = newService(s.ledger); err != nil {
		return err
	}
	s.closing(s.service.stop)
	logFile, err := os.OpenFile(filepath.Join(s.dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	s.closing(logFile.Close)
	log := slog.New(slog.NewTextHandler(logFile, nil))

	listen := s.cfg.Listen
	switch {
	case listen == "" && s.cfg.Once:
		listen = freePort
	case listen == "":
		listen = preferredPort
	}
	if s.main, s.front, err = s.gateway(log, listen, semel.Hold, 0); err != nil {
		return err
	}
	_, s.shortFront, err = s.gateway(log, freePort, semel.Rerun, shortLease)
	return err
}

func (s *stage) closing(f func() error) { s.closers = append(s.closers, f) }

// close takes down what was set up, the last first.
func (s *stage) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// gateway starts a gateway in front of the service and returns the address at which clients reach it.
func (s *stage) gateway(log *slog.Logger, listen string, onLost semel.LostPolicy, lease time.Duration) (*gateway.Gateway, string, error) {
	upstream, err := gateway.ParseUpstream(s.service.url)
	if err != nil {
		return nil, "", err
	}
	scope, err := gateway.ParseScope("header:X-Account")
	if err != nil {
		return nil, "", err
	}
	cfg := gateway.Config{
		Listen: listen, Admin: freePort, Upstream: upstream, Store: memstore.New(), Scope: scope,
		Default:         gateway.Route{Unkeyed: gateway.UnkeyedRefuse, Policy: semel.Policy{OnLost: onLost, Lease: lease}},
		ShutdownTimeout: 2 * time.Second, Log: log, Instance: "demo",
	}
	g, err := gateway.New(cfg)
	if err != nil {
		return nil, "", err
	}
	err = g.Listen()
	if errors.Is(err, syscall.EADDRINUSE) && s.cfg.Listen == "" {
		cfg.Listen = freePort
		if g, err = gateway.New(cfg); err == nil {
			err = g.Listen()
		}
	}
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		// What goes wrong while it serves, the scenes see. A drain that is cut short loses nothing here: the records end
		// with the demo.
		g.Run(ctx) //nolint:errcheck // as said above
	})
	s.closing(func() error {
		cancel()
		running.Wait()
		return nil
	})
	address, err := s.inFront(&url.URL{Scheme: "http", Host: g.Addr().String()}, upstream)
	return g, address, err
}

// inFront puts Config.Front, if there is one, in the gateway's place.
func (s *stage) inFront(gateway, service *url.URL) (string, error) {
	if s.cfg.Front == nil {
		return gateway.String(), nil
	}
	return s.serve(s.cfg.Front(gateway, service))
}

// serve serves a handler on a free port, for as long as the stage stands.
func (s *stage) serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", freePort)
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(l) }) //nolint:errcheck // it ends when the stage is taken down
	s.closing(func() error {
		defer serving.Wait()
		return server.Close()
	})
	return "http://" + l.Addr().String(), nil
}

// idle waits until nothing runs at the service, so that late charges are counted too.
func (s *stage) idle(ctx context.Context) error {
	return until(ctx, func() bool { return s.service.running.Load() == 0 })
}

// until waits for a condition, at most a minute.
func until(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
