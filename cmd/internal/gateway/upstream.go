package gateway

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// newProxy returns the handler that forwards to the upstream.
func (g *Gateway) newProxy() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: g.rewrite, ModifyResponse: g.answered, ErrorHandler: g.noAnswer,
		Transport: g.transport, BufferPool: copyBuffers{},
		ErrorLog: slog.NewLogLogger(g.cfg.Log.Handler(), slog.LevelWarn),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The answer brings it again (answered, noAnswer): the proxy adds to what is there.
		delete(w.Header(), correlationHeader)
		proxy.ServeHTTP(w, r.WithContext(new(delivery).watched(r.Context())))
	})
}

// newTransport returns the transport to the upstream. It speaks HTTP/1.1 only: an HTTP/2 transport sends a request again
// when a server that goes away says that it has not processed it, and what a server says there is not proof enough.
func newTransport(idle time.Duration) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  nil, // the environment has no say in where requests go
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		Protocols:              &protocols,
		DisableCompression:     true, // the answer is the upstream's, as it is
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        idle,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
}

// resendKeys are the headers by which http.Transport takes a request for one that it may send twice.
var resendKeys = [...]struct{ canonical, withheld string }{
	{"Idempotency-Key", "idempotency-key"},
	{"X-Idempotency-Key", "x-idempotency-key"},
}

// runHeaders tell the upstream which run of which operation it serves. Only the gateway's own count.
var runHeaders = [...]string{"Idempotency-Attempt", "Idempotency-Fence", "Idempotency-Operation"}

// rewrite makes the request that the upstream gets. The Host is the client's own: what services build links and check
// origins with. So are target and query, byte by byte, because they are what the fingerprint covers.
func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	p.SetURL(g.cfg.Upstream)
	p.Out.Host = p.In.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	g.forward(p)

	h := p.Out.Header
	for _, name := range runHeaders {
		delete(h, name)
		delete(p.Out.Trailer, name)
	}
	// From In, so that a client's Connection header can't strip what the gateway sends.
	h[correlationHeader] = p.In.Header[correlationHeader]
	withholdResend(h, p.In.Header)

	if op := semel.FromContext(p.Out.Context()); op != nil {
		values := []string{strconv.Itoa(op.Attempt), strconv.FormatUint(op.Fence, 10), op.ID()}
		for i, name := range runHeaders {
			h[name] = values[i : i+1 : i+1]
		}
		delete(h, "Expect") // the body is here already
	}
}

// withholdResend sets the keys of in so that http.Transport does not see them: it sends a request again by itself if its
// body is empty or can be rewound, a reused connection has died, and its header map has one of these names in canonical
// form. On the wire names have no case, so the upstream sees the same header.
func withholdResend(out, in http.Header) {
	for _, name := range resendKeys {
		delete(out, name.canonical)
		if v := in[name.canonical]; len(v) > 0 {
			out[name.withheld] = v
		}
	}
}

// forward says for whom the gateway asks. What a peer says about that counts only if it is a trusted proxy. The same goes
// for the scope header: from anybody else it is a claim to be somebody, which the upstream would take from the gateway's
// hands.
func (g *Gateway) forward(p *httputil.ProxyRequest) {
	h := p.Out.Header
	trusted := g.trusts(p.In.RemoteAddr)
	if trusted {
		h["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	if trusted {
		for _, name := range [...]string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if v := p.In.Header[name]; len(v) > 0 {
				h[name] = v
			}
		}
	}
	if name := http.CanonicalHeaderKey(g.cfg.Scope.header); name != "" {
		delete(h, name)
		if v := p.In.Header[name]; trusted && len(v) > 0 {
			h[name] = v
		}
	}
}

// copyBuffers are the buffers through which answers are copied.
type copyBuffers struct{}

const copyBufferSize = 32 << 10

var copyBufferPool = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

func (copyBuffers) Get() []byte  { return copyBufferPool.Get().(*[copyBufferSize]byte)[:] }
func (copyBuffers) Put(b []byte) { copyBufferPool.Put((*[copyBufferSize]byte)(b)) }
