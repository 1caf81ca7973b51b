package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/rounds"
)

// newCompleter returns what finishes operations without their clients: of routes with respond_async or complete,
// under the routes that are in service then.
func (g *Gateway) newCompleter() (*semel.Completer, error) {
	return g.guard.Completer(http.HandlerFunc(g.finish), semel.CompleterOptions{
		Principal: g.principal, Interval: g.cfg.looksEvery, Backoff: g.cfg.looksEvery,
	})
}

// finish serves a stored request as that of a client is served, below what tells who asks.
func (g *Gateway) finish(w http.ResponseWriter, r *http.Request) {
	t := g.table.Load()
	t.screen.clean(r) // it may have been stored before its headers were screened
	correlate(w, r, g.cfg.CorrelationHeader)
	t.route(r).guarded.ServeHTTP(w, r)
}

const forwardedProto = "X-Forwarded-Proto"

// vouch makes what a request says of where it comes from the gateway's own word, before it may be stored: what is
// stored comes back as from the gateway itself. The scheme is noted, because the connection that tells it is not
// stored.
func (c *Config) vouch(r *http.Request) {
	h := r.Header
	if !c.trusts(r.RemoteAddr) {
		for name := range h {
			if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" {
				delete(h, name)
			}
		}
	}
	if len(h[forwardedProto]) > 0 {
		return
	}
	h[forwardedProto] = []string{"http"}
	if r.TLS != nil {
		h[forwardedProto] = []string{"https"}
	}
}

type ownKey struct{}

// principal makes a stored request the gateway's own. For whom it is the upstream is told as it was by the trusted
// proxy that sent it; it has none of its client's credentials.
func (g *Gateway) principal(ctx context.Context, r *http.Request, scope string) (*http.Request, error) {
	values, err := g.cfg.Scope.values(scope)
	if err != nil {
		return nil, err
	}
	for i, name := range g.cfg.Scope.headers() {
		r.Header[name] = values[i : i+1 : i+1]
	}
	return r.WithContext(context.WithValue(ctx, ownKey{}, true)), nil
}

// isOwn reports whether the gateway itself has made the request.
func isOwn(r *http.Request) bool { return r.Context().Value(ownKey{}) != nil }

// A finishing is the completer at work.
type finishing struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// beginFinishing starts the completer. It begins nothing more once it is stopped; the runs that it has begun are the
// guard's, and drained like all others.
func (g *Gateway) beginFinishing(ctx context.Context) *finishing {
	f := &finishing{ended: make(chan struct{})}
	ctx, f.stop = context.WithCancel(ctx)
	go func() {
		defer close(f.ended)
		if g.completer == nil {
			g.tellLeft(ctx)
			return
		}
		if err := g.completer.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			g.cfg.Log.Error("finishing operations without their clients has ended", "error", err)
		}
	}()
	return f
}

// leftAgain is when a store that is scanned is asked again for operations that are left: the scan may not have come by
// them yet.
const leftAgain = 10 * time.Minute

// tellLeft warns of operations that earlier routes have left to be finished. Without a keyring none of them could be.
func (g *Gateway) tellLeft(ctx context.Context) {
	lister, ok := g.cfg.Store.(driver.Lister)
	if !ok || g.cfg.Encryption == nil {
		return
	}
	scanned := rounds.Scans(g.cfg.Store)
	for {
		left, found := driver.ID{}, false
		err := lister.List(ctx, driver.Query{Sealed: true, Reading: driver.ReadsFree, Scanned: scanned}, func(id driver.ID, rec driver.Record) bool {
			left, found = id, rec.Owed || rec.State == driver.Running
			return !found
		})
		switch {
		case found:
			g.cfg.Log.Warn("operations are left that nobody finishes: no route has respond_async or complete",
				"digest", left.String())
		case err != nil && ctx.Err() == nil:
			g.cfg.Log.Warn("whether operations are left to be finished can't be told", "error", err)
		}
		if found || !scanned || !pause.For(ctx, leftAgain) {
			return
		}
	}
}
