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

// A delivery says how far one request has come on its way to the upstream.
type delivery struct {
	stage  atomic.Int32
	broken atomic.Bool // the client has not sent the body that it had announced
	header http.Header // of the answer to the client
}

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

func deliveryOf(ctx context.Context) (stage int32, broken bool) {
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		return d.stage.Load(), d.broken.Load()
	}
	return connected, false
}

// A sentBody is a request's body on its way to the upstream. An error before the transport has closed it is the
// client's: the body is malformed, or has broken off.
type sentBody struct {
	io.ReadCloser
	d      *delivery
	closed atomic.Bool
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.d.broken.Store(true)
	}
	return n, err
}

func (b *sentBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// noAnswer says what becomes of a request to which the upstream gave no answer. If no byte can have been sent, nothing
// has happened: the key is free again. Else there may have been an effect, and the guard answers.
func (p *proxy) noAnswer(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	op := semel.FromContext(ctx)
	stage, broken := deliveryOf(ctx)
	level, text := slog.LevelWarn, "upstream gave no answer"
	switch {
	case broken:
		level, text = slog.LevelDebug, "the client has not sent a whole body"
	case stage < connected:
		text = "upstream can't be reached"
	}
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // the client has left
	}
	correlation := p.cfg.CorrelationHeader
	p.cfg.Log.LogAttrs(ctx, level, text, slog.String("endpoint", p.endpoint(r)),
		slog.String("correlation", r.Header.Get(correlation)), slog.String("error", err.Error()))

	problem := upstreamUnavailable
	switch {
	case stage == connected:
		if !broken {
			p.failed(ctx, upstreamSilent)
		}
		if op != nil {
			op.Lost(err)
			if !p.route.Policy.ObserveOnly {
				return
			}
		}
		switch problem = upstreamBroken; {
		case broken:
			problem = notForwardable
		case safe(r.Method):
			problem.title, problem.retryable = "the service gave no answer", true
		}
	case stage == refused && ctx.Err() == nil:
		problem = notForwardable
	default:
		p.failed(ctx, upstreamUnreachable)
	}
	if stage < connected {
		op.Refuse(problem.code)
	}
	w.Header()[correlation] = r.Header[correlation]
	p.form.refuse(w, problem)
}

// failed counts an error of the upstream.
func (p *proxy) failed(ctx context.Context, kind string) {
	if f := p.cfg.upstreamFailed; f != nil {
		f(ctx, kind)
	}
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
