package gateway

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// A proxy forwards the requests of one route to the upstream.
type proxy struct {
	cfg     *Config
	route   *Route
	form    *form
	screen  *screen
	reverse httputil.ReverseProxy
}

func newProxy(c *Config, r *Route, s *screen, transport http.RoundTripper) *proxy {
	p := &proxy{cfg: c, route: r, form: newForm(c, r), screen: s}
	p.reverse = httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: p.answered, ErrorHandler: p.noAnswer,
		Transport: transport, BufferPool: copyBuffers{},
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The answer brings it again (answered, noAnswer): the proxy adds to what is there.
	delete(w.Header(), p.cfg.CorrelationHeader)
	d := &delivery{header: w.Header()}
	r = r.WithContext(d.watched(r.Context()))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &sentBody{ReadCloser: r.Body, d: d}
	}
	p.reverse.ServeHTTP(w, r)
}

// endpoint names what a request is for, in the log.
func (p *proxy) endpoint(r *http.Request) string {
	if p.route.Match != "" {
		return p.route.Match
	}
	return r.Method + " " + r.URL.Path
}

// newTransport returns the transport to the upstream. It speaks HTTP/1.1 only: an HTTP/2 transport sends a request
// again when a server that goes away says that it has not processed it, and what a server says there is not proof
// enough.
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
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.cfg.Upstream)
	r.Out.Host = r.In.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	p.forward(r)

	h := r.Out.Header
	for _, name := range runHeaders {
		delete(h, name)
		delete(r.Out.Trailer, name)
	}
	p.screen.dropOdd(r.Out.Trailer)
	if len(r.Out.Trailer) > 0 {
		r.Out.Body, r.Out.ContentLength = &trailedBody{r.Out.Body, r.In.Trailer, r.Out.Trailer}, -1 // trailers need chunks
	}
	// A protocol that carries HTTP requests, such as h2c, would let them pass under the guard. A server may ignore a wish
	// to switch (RFC 9110, section 7.8).
	if upgrade := h["Upgrade"]; len(upgrade) > 0 && !(len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket")) {
		delete(h, "Upgrade")
		delete(h, "Connection")
	}
	// From In, so that a client's Connection header can't strip what the gateway sends.
	h[p.cfg.CorrelationHeader] = r.In.Header[p.cfg.CorrelationHeader]
	for _, name := range p.route.keyHeaders() {
		if v := r.In.Header[name]; len(v) > 0 {
			h[name] = v
		}
	}
	withholdResend(h, r.In.Header)

	if op := semel.FromContext(r.Out.Context()); op != nil {
		values := []string{strconv.Itoa(op.Attempt()), strconv.FormatUint(op.Fence(), 10), op.ID()}
		for i, name := range runHeaders {
			h[name] = values[i : i+1 : i+1]
		}
		delete(h, "Expect") // the body is here already
		if p.route.Policy.RespondAsync {
			withoutTaken(h)
		}
		if p.route.KeepIf != nil {
			h["Accept-Encoding"] = []string{"identity"} // so that the answer can be looked into
		}
	}
}

// A trailedBody is a body with trailers, which are known at its end only. Those that were announced, and not withheld,
// reach the upstream.
type trailedBody struct {
	io.ReadCloser
	in, out http.Header
}

func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		for name := range b.out {
			b.out[name] = b.in[name]
		}
	}
	return n, err
}

// withholdResend sets the keys of in so that http.Transport does not see them: it sends a request again by itself if
// its body is empty or can be rewound, a reused connection has died, and its header map has one of these names in
// canonical form. On the wire names have no case, so the upstream sees the same header.
func withholdResend(out, in http.Header) {
	for _, name := range resendKeys {
		delete(out, name.canonical)
		if v := in[name.canonical]; len(v) > 0 {
			out[name.withheld] = v
		}
	}
}

// forwardedHeaders tell for whom a proxy asks.
var forwardedHeaders = [...]string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// forward says for whom the gateway asks. What a peer says about that counts only if it is a trusted proxy. The same
// goes for the scope header: from anybody else it is a claim to be somebody, which the upstream would take from the
// gateway's hands.
func (p *proxy) forward(r *httputil.ProxyRequest) {
	h := r.Out.Header
	trusted := p.cfg.trusts(r.In.RemoteAddr) || isOwn(r.In)
	if trusted {
		h["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	}
	r.SetXForwarded()
	if trusted {
		for _, name := range forwardedHeaders[1:] {
			if v := r.In.Header[name]; len(v) > 0 {
				h[name] = v
			}
		}
	}
	for _, name := range p.cfg.Scope.headers() {
		delete(h, name)
		delete(r.Out.Trailer, name)
		if v := r.In.Header[name]; trusted && len(v) > 0 {
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
