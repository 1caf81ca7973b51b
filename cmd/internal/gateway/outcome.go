package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/semelhq/semel"
)

// decide says what an upstream's answer means where its status alone misleads. An upstream that is a proxy
// itself answers 502 and 504 when it has lost an answer. Its 503 and 408 may have come after an effect; under Rerun that
// does no harm.
func decide(onLost semel.LostPolicy) func(int, http.Header, []byte) semel.Verdict {
	return func(status int, _ http.Header, _ []byte) semel.Verdict {
		switch status {
		case http.StatusBadGateway, http.StatusGatewayTimeout:
			return semel.VerdictLost
		case http.StatusServiceUnavailable, http.StatusRequestTimeout:
			if onLost == semel.Hold {
				return semel.VerdictLost
			}
		}
		return semel.VerdictDefault
	}
}

// A delivery says how far one request has come on its way to the upstream.
type delivery struct{ stage atomic.Int32 }

const (
	refused   = iota // no connection was asked for: the transport did not accept the request
	wanted           // a connection was asked for; not one byte of the request was sent
	connected        // a connection was there: from here on bytes may have arrived
)

type deliveryKey struct{}

func (d *delivery) watched(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(context.WithValue(ctx, deliveryKey{}, d), &httptrace.ClientTrace{
		GetConn: func(string) { d.stage.CompareAndSwap(refused, wanted) },
		GotConn: func(httptrace.GotConnInfo) { d.stage.Store(connected) },
	})
}

func stageOf(ctx context.Context) int32 {
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		return d.stage.Load()
	}
	return connected
}

// noAnswer says what becomes of a request to which the upstream gave no answer. If no byte can have been sent, nothing
// has happened: the key is free again. Else there may have been an effect, and the guard answers.
func (g *Gateway) noAnswer(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	op, stage := semel.FromContext(ctx), stageOf(ctx)
	level, text := slog.LevelWarn, "upstream gave no answer"
	if stage < connected {
		text = "upstream can't be reached"
	}
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // the client has left
	}
	g.cfg.Log.LogAttrs(ctx, level, text, slog.String("endpoint", r.Method+" "+r.URL.Path),
		slog.String("correlation", r.Header.Get(correlationHeader)), slog.String("error", err.Error()))

	if stage == connected && op != nil {
		op.Lost(err)
		return
	}
	if op != nil {
		op.Release()
	}
	w.Header()[correlationHeader] = r.Header[correlationHeader]
	switch {
	case stage == connected && safe(r.Method):
		p := upstreamBroken
		p.title, p.retryable = "the service gave no answer", true
		p.write(w)
	case stage == connected:
		upstreamBroken.write(w)
	case stage == refused && ctx.Err() == nil:
		notForwardable.write(w)
	default:
		upstreamUnavailable.write(w)
	}
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// answered prepares the upstream's answer for the client.
func (g *Gateway) answered(res *http.Response) error {
	res.Header[correlationHeader] = res.Request.Header[correlationHeader]
	op := semel.FromContext(res.Request.Context())
	if op != nil && res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &lossyBody{res.Body, op}
	}
	return nil
}

// A lossyBody is the body of an answer to a keyed request. If the connection breaks in it, the run is lost; the guard
// gives the client an answer that says so, or breaks a stream that has begun. The proxy on its own would panic, and the
// reason would be lost to the record.
type lossyBody struct {
	io.ReadCloser
	op *semel.Operation
}

func (b *lossyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.op.Lost(err)
		err = io.EOF
	}
	return n, err
}
