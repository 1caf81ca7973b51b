package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/gateway"
)

// serveGateway is semel's gateway. It has no traps of its own: its store is wrapped, and its clients come through a
// relay in the same process.
func (a *actor) serveGateway(ctx context.Context) error {
	if a.Flaw == retryingProxy {
		return a.serveRetryingProxy()
	}
	log := errorLog()
	a.trapCommits()
	store, err := a.openStore(ctx, log)
	if err != nil {
		return err
	}
	upstream, err := gateway.ParseUpstream(a.Upstream)
	if err != nil {
		return err
	}
	scope, err := gateway.ParseScope("single")
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Upstream: upstream, Store: trappedStore{store, a.traps},
		Scope: scope, Default: gateway.Route{Unkeyed: gateway.UnkeyedRefuse, Policy: semel.Policy{
			OnLost: a.Mode.onLost(), Lease: a.Lease, Wait: a.Lease / 4, MaxRun: time.Minute, FailOpen: a.Flaw == failOpen,
		}}, Log: log, Instance: "chaos", ShutdownTimeout: a.drainTime(),
	})
	if err != nil {
		return err
	}
	if err := g.Listen(); err != nil {
		return err
	}
	l, err := a.listen()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- g.Run(ctx) }()
	go sweep(ctx, store)
	go relay(l, g.Addr().String())
	announce(l)
	return <-failed
}

// relay passes the bytes of each connection on.
func relay(l net.Listener, to string) {
	type conn interface {
		io.ReadWriteCloser
		CloseWrite() error
	}
	pass := func(to, from conn) {
		io.Copy(to, from) //nolint:errcheck // the other side sees the end of it
		to.CloseWrite()   //nolint:errcheck // it has ended already
	}
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer server.Close()
			go pass(server.(*net.TCPConn), client.(*trappedConn))
			pass(client.(*trappedConn), server.(*net.TCPConn))
		}()
	}
}

// serveRetryingProxy is what protects nothing: a proxy that sends a request again until it has an answer.
func (a *actor) serveRetryingProxy() error {
	to, err := url.Parse(a.Upstream)
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = retrying{}
	l, err := a.listen()
	if err != nil {
		return err
	}
	announce(l)
	return http.Serve(l, proxy)
}

type retrying struct{}

func (retrying) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for {
		r.Body = io.NopCloser(bytes.NewReader(body))
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil || r.Context().Err() != nil {
			return res, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
