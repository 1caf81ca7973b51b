package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A Proxy stands between a client and one server. At first it passes everything on.
type Proxy struct {
	proxy *toxiproxy.Proxy
	gate  *gate
}

// Ports are taken below those that a system gives to outgoing connections, so that none of them takes the port of a
// proxy that is cut off.
const (
	firstPort = 22_000
	endPort   = 32_000
)

// New starts a proxy on a free port of 127.0.0.1 in front of the server at upstream, a host and port.
func New(upstream string) (*Proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	var err error
	for range 20 {
		listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(endPort-firstPort)))
		p := &Proxy{proxy: toxiproxy.NewProxy(server, listen, listen, upstream), gate: newGate()}
		if err := p.install(); err != nil {
			return nil, fmt.Errorf("proxy for %s: %w", upstream, err)
		}
		if err = p.proxy.Start(); err == nil {
			return p, nil
		}
		p.gate.remove()
	}
	return nil, fmt.Errorf("proxy for %s: %w", upstream, err)
}

// install puts the gate in the way of both directions. A toxic that resets connections has each connection closed by a
// reset, and does nothing by itself.
func (p *Proxy) install() error {
	for _, toxic := range []string{
		`{"type": "reset_peer", "stream": "upstream", "toxicity": 0}`,
		fmt.Sprintf(`{"type": %q, "stream": "upstream", "attributes": {"id": %d, "request": true}}`, gateType, p.gate.id),
		fmt.Sprintf(`{"type": %q, "stream": "downstream", "attributes": {"id": %d}}`, gateType, p.gate.id),
	} {
		if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return err
		}
	}
	return nil
}

// Addr returns the proxy's host and port.
func (p *Proxy) Addr() string { return p.proxy.Listen }

// Cut resets all connections and refuses new ones, until Restore.
func (p *Proxy) Cut() { p.proxy.Stop() }

// BlackHole lets bytes vanish in both directions, also those of new connections, until Restore. Connections stay.
func (p *Proxy) BlackHole() {
	p.gate.change(func(m *mode) { m.dropRequests, m.dropReplies = true, true })
}

// DropReplies lets requests pass, and what the server says vanish, until Restore. With ResetAll after it a client sees
// a connection that was reset after the server executed its request, and before the reply.
func (p *Proxy) DropReplies() { p.gate.change(func(m *mode) { m.dropReplies = true }) }

// Slow delays all that the server says by d, until Restore.
func (p *Proxy) Slow(d time.Duration) { p.gate.change(func(m *mode) { m.delay = d }) }

// ResetAll resets the connections that are open. New ones fare as before.
func (p *Proxy) ResetAll() { p.gate.resetAll() }

// Restore ends all faults. Connections from which bytes may have vanished are reset.
func (p *Proxy) Restore() error {
	p.gate.restore()
	if err := p.proxy.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		return fmt.Errorf("restore the proxy at %s: %w", p.Addr(), err)
	}
	return nil
}

// Close resets all connections and ends the proxy.
func (p *Proxy) Close() {
	p.proxy.Stop()
	p.gate.resetAll()
	p.gate.remove()
}
