package verify

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// The faults that an attempt may meet on its way.
const (
	faultLatency    = "latency"     // all arrives late
	faultJitter     = "jitter"      // and some later
	faultBandwidth  = "bandwidth"   // few bytes a second
	faultReset      = "reset"       // the connection is reset soon after the request has passed
	faultLost       = "lost answer" // the connection is reset when the answer comes
	faultCut        = "cut answer"  // a part of the answer comes, and then a reset
	faultHole       = "black hole"  // the answer vanishes, and the connection is reset a while later
	faultRefused    = "refused"     // the connection is refused
	faultCutRequest = "cut request" // a part of the request arrives, and then the end of the connection
	faultTwice      = "twice"       // the request is delivered twice
)

var faultKinds = [...]string{
	faultLatency, faultJitter, faultBandwidth, faultReset, faultLost, faultCut, faultHole, faultRefused, faultCutRequest, faultTwice,
}

const (
	latency     = 150   // ms, each way
	jitter      = 75    // ms, around as much
	bandwidth   = 4     // KB/s
	resetWithin = 10    // ms after the request has passed
	holeWithin  = 2_000 // ms after the answer has begun to come
)

// A lane is a way to the target on which a fault waits.
type lane struct {
	fault           string
	toxic           *toxic // of those that Toxiproxy has, in both directions
	request, answer ending // how the way of each ends
	reset           bool   // connections are closed by a reset
}

// A toxic is a piece of configuration of Toxiproxy.
type toxic struct {
	Type       string `json:"type"`
	Stream     string `json:"stream"`
	Toxicity   int    `json:"toxicity"`
	Attributes any    `json:"attributes"`
}

var lanes = [...]lane{
	{fault: faultLatency, toxic: &toxic{Type: "latency", Attributes: map[string]int{"latency": latency}}},
	{fault: faultJitter, toxic: &toxic{Type: "latency", Attributes: map[string]int{"latency": jitter, "jitter": jitter}}},
	{fault: faultBandwidth, toxic: &toxic{Type: "bandwidth", Attributes: map[string]int{"rate": bandwidth}}},
	{fault: faultReset, request: ending{Pass: passAll, Within: resetWithin}, reset: true},
	{fault: faultLost, answer: ending{Pass: passNone}, reset: true},
	{fault: faultCut, answer: ending{Pass: passPart}, reset: true},
	{fault: faultHole, answer: ending{Pass: passNone, Within: holeWithin}, reset: true},
	{fault: faultCutRequest, request: ending{Pass: passPart}},
}

// A network is what stands between the clients of a load and the target: a proxy for each fault, so that an attempt
// chooses its fault by the address to which it connects.
type network struct {
	addresses map[string]string // by fault
	proxies   []*toxiproxy.Proxy
	refusing  []func() error // what holds the port that refuses
}

// newNetwork starts a network in front of a wire's target. It is to be closed.
func newNetwork(ctx context.Context, w *wire) (*network, error) {
	hello, err := w.handshake(ctx)
	if err != nil {
		return nil, fmt.Errorf("network in front of %s: %w", w.base.Host, err)
	}
	n := &network{addresses: map[string]string{}}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for _, l := range lanes {
		if err := n.open(server, w, l, hello); err != nil {
			n.close()
			return nil, fmt.Errorf("network in front of %s: %s: %w", w.base.Host, l.fault, err)
		}
	}
	if err := n.refuse(); err != nil {
		n.close()
		return nil, fmt.Errorf("network in front of %s: %s: %w", w.base.Host, faultRefused, err)
	}
	return n, nil
}

// open starts the proxy of a lane.
func (n *network) open(server *toxiproxy.ApiServer, w *wire, l lane, hello greeting) error {
	p := toxiproxy.NewProxy(server, l.fault, "127.0.0.1:0", w.address())
	var chain []toxic
	if l.reset { // it has connections closed by a reset, and does nothing by itself
		chain = append(chain, toxic{Type: "reset_peer", Stream: "upstream", Toxicity: 0, Attributes: struct{}{}})
	}
	l.request.Skip, l.answer.Skip = hello.request, hello.answer
	for stream, end := range map[string]ending{"upstream": l.request, "downstream": l.answer} {
		if l.toxic != nil {
			chain = append(chain, toxic{l.toxic.Type, stream, 1, l.toxic.Attributes})
		}
		end.Patience = (w.timeout + patience).Milliseconds()
		chain = append(chain, toxic{endingType, stream, 1, end})
	}
	for _, t := range chain {
		text, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if _, err := p.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
			return err
		}
	}
	if err := p.Start(); err != nil {
		return err
	}
	n.proxies = append(n.proxies, p)
	n.addresses[l.fault] = p.Listen
	return nil
}

// refuse takes a port that refuses connections: that of the near end of a connection, which nobody else can take as
// long as it stands, and at which nobody listens.
func (n *network) refuse() error {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n.refusing = append(n.refusing, far.Close)
	near, err := net.Dial("tcp", far.Addr().String())
	if err != nil {
		return err
	}
	n.refusing = append(n.refusing, near.Close)
	n.addresses[faultRefused] = near.LocalAddr().String()
	return nil
}

// manner returns how an attempt is sent that is to meet a fault; "" is none.
func (n *network) manner(fault string) manner {
	if n == nil || fault == "" {
		return manner{}
	}
	return manner{via: n.addresses[fault], twice: fault == faultTwice}
}

// close ends the network and all its connections. A proxy that can't reach the target now may live on until it gives
// up.
func (n *network) close() {
	var all sync.WaitGroup
	for _, p := range n.proxies {
		all.Go(p.Stop)
	}
	for _, c := range n.refusing {
		c() //nolint:errcheck // nothing was said on it
	}
	stopped := make(chan struct{})
	go func() {
		all.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(patience):
	}
}

// patience is how much longer than a client something may take that waits for it.
const patience = time.Second

// A greeting is how many bytes a connection carries before the request, and before its answer: those of a TLS
// handshake. Faults wait behind them, so that they hit requests and answers.
type greeting struct{ request, answer int64 }

const (
	greetingWait  = 250 * time.Millisecond // for what a server says after a handshake by itself, such as a session ticket
	greetingSlack = 16                     // signatures of some kinds differ in length
)

// handshake counts the bytes of a handshake with the target.
func (w *wire) handshake(ctx context.Context) (greeting, error) {
	if w.base.Scheme == "http" {
		return greeting{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", w.address())
	if err != nil {
		return greeting{}, err
	}
	defer conn.Close()
	counted := &countedConn{Conn: conn}
	client := tls.Client(counted, w.config())
	if err := client.HandshakeContext(ctx); err != nil {
		return greeting{}, fmt.Errorf("TLS handshake: %w", err)
	}
	sent := counted.written
	if err := client.SetReadDeadline(time.Now().Add(greetingWait)); err != nil {
		return greeting{}, err
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return greeting{}, fmt.Errorf("the server did not wait for a request after the TLS handshake: %w", err)
	}
	return greeting{sent, counted.read + greetingSlack}, nil
}

// A countedConn counts the bytes that pass.
type countedConn struct {
	net.Conn
	read, written int64
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read += int64(n)
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written += int64(n)
	return n, err
}

// address returns the target's host and port.
func (w *wire) address() string {
	if w.base.Port() != "" {
		return w.base.Host
	}
	return net.JoinHostPort(w.base.Hostname(), map[string]string{"http": "80", "https": "443"}[w.base.Scheme])
}

// config returns how to speak TLS with the target, whatever address leads there.
func (w *wire) config() *tls.Config {
	config := w.tls.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	config.ServerName, config.NextProtos = w.base.Hostname(), []string{"http/1.1"}
	return config
}
