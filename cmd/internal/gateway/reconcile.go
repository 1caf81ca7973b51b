package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/rounds"
	"github.com/semelhq/semel/keyring"
)

// A reconciler settles operations whose outcome is unknown by asking the upstream what became of them (R-75a). It looks
// for them in the store, and is told of those that a request has just met, so that the request's next repeat finds the
// answer. Several gateways may do so on one store; of two that ask about one operation, one decides.
type reconciler struct {
	lister  driver.Lister
	keyring *keyring.Ring // of the names in the store
	client  *http.Client
	header  string // of correlation ids, "" for none
	log     *slog.Logger
	count   func(result string)

	routes atomic.Pointer[map[string]*reconcileRoute]
	rounds *rounds.Rounds
	// Operations whose names can't be read, of the look under way and of the last one; Due's and Looked's own.
	unread, wereUnread int
}

// A reconcileRoute is a route about whose operations the upstream can be asked.
type reconcileRoute struct {
	guard     *semel.Guard // the route's own: its limits hold for the answers that are found
	question  question
	maxAnswer int64 // Policy.MaxResponseBody, in bytes; 0 means its default
}

const (
	reconcileInterval = 5 * time.Second // between looks into the store, and the first wait of an operation
	reconcileLongest  = 5 * time.Minute // wait of an operation
	reconcileAtOnce   = 8               // questions
	reconcileBatch    = 256             // operations of one look
	reconcileTime     = time.Minute     // for one operation, all in all, and for one look
)

// newReconciler returns a reconciler of the routes that use is told later. It asks through transport, and tells count
// what was found: done, never, later, refused (it was decided elsewhere) or failed. header is that of correlation ids.
func newReconciler(store driver.Store, ring *keyring.Ring, transport http.RoundTripper, header string, log *slog.Logger, count func(result string)) (*reconciler, error) {
	lister, lists := store.(driver.Lister)
	if _, seizes := store.(driver.Seizer); !lists || !seizes {
		return nil, fmt.Errorf("reconcile: the store, a %T, can't be searched for operations to settle", store)
	}
	r := &reconciler{
		lister: lister, keyring: ring, header: header, log: log, count: count,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	r.use(nil)
	r.every(reconcileInterval)
	return r, nil
}

// every sets how often the store is looked into. Each wait is shortened at random, by up to a half, so that several
// gateways don't ask at once.
func (r *reconciler) every(interval time.Duration) {
	r.rounds = rounds.New(rounds.Settings{
		Lister: r, Query: driver.Query{Reading: driver.ReadsUnknown, Scanned: rounds.Scans(r.lister)}, Listing: reconcileTime, Most: reconcileBatch,
		Due: r.due, Do: r.reconcile, Concurrency: reconcileAtOnce, Looked: r.looked, Least: interval / 2,
		Delay: func(tries int) time.Duration { return pause.Jitter(pause.Backoff(interval, reconcileLongest, tries)) },
		Rest: func(took time.Duration, _ bool) time.Duration {
			return pause.Jitter(max(interval, 20*took)) // a large store is not kept busy
		},
	})
}

// use replaces the routes: by the name of their operations, "" for the HTTP requests that none of them names. A nil
// route is not asked about.
func (r *reconciler) use(routes map[string]*reconcileRoute) { r.routes.Store(&routes) }

// route returns the route of an operation, or nil if it is not asked about.
func (r *reconciler) route(name string) *reconcileRoute {
	routes := *r.routes.Load()
	if route, named := routes[name]; named && name != "" {
		return route
	}
	// Other users of the store have operations too; those of a gateway are a method and a path.
	if method, path, ok := strings.Cut(name, " "); !ok || !methods[method] || !strings.HasPrefix(path, "/") {
		return nil
	}
	return routes[""]
}

// Observe takes note of an operation that a request has found to be unknown. It is a guard's observer.
func (r *reconciler) Observe(_ context.Context, e event.Event) {
	if e.Kind != event.Decision || e.Result != event.Unknown || e.Observed || r.route(e.Operation) == nil {
		return
	}
	r.rounds.Tell(rounds.Operation{ID: e.ID, Name: e.Operation})
}

// Run asks until ctx ends, and returns ctx's error when the last question has ended. Run it once. Meanwhile it has the
// store scanned, if that needs it: for itself, and for the metrics, which are told what the scan has counted.
func (r *reconciler) Run(ctx context.Context) error {
	var scanning sync.WaitGroup
	scanning.Go(func() {
		rounds.Scan(ctx, r.lister, func(err error) {
			r.log.LogAttrs(ctx, slog.LevelWarn, "the store could not be scanned for operations that wait", slog.String("error", err.Error()))
		})
	})
	r.rounds.Run(ctx)
	scanning.Wait()
	return ctx.Err()
}

// List looks through the store, unless there is no route whose operations could be asked about.
func (r *reconciler) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	if len(*r.routes.Load()) == 0 {
		return nil
	}
	return r.lister.List(ctx, q, yield)
}

// due says from when on an operation that reads as unknown is asked about. fence is that of this gateway's last
// question.
func (r *reconciler) due(id driver.ID, rec *driver.Record, fence uint64) (driver.Time, bool) {
	if r.keyring.OpenNames(id, rec) != nil { // the store must not say what is asked where
		r.unread++
		return 0, false
	}
	switch {
	case r.route(rec.Operation) == nil:
		return 0, false
	case rec.State == driver.Running:
		return rec.LeaseEnd, true
	case rec.Seized && rec.Fence != fence: // by somebody else, to ask or to decide
		return rec.Settled.Add(2 * questionTime), true
	}
	return rec.Settled, true
}

func (r *reconciler) looked(ctx context.Context, err error) {
	if err != nil {
		r.log.LogAttrs(ctx, slog.LevelWarn, "unknown operations could not be listed", slog.String("error", err.Error()))
	}
	if r.unread > r.wereUnread {
		r.log.LogAttrs(ctx, slog.LevelWarn, "unknown operations are not asked about, because their names can't be read: they are encrypted "+
			"with another key, or not encrypted", slog.Int("operations", r.unread))
	}
	r.unread, r.wereUnread = 0, r.unread
}

// reconcile asks about one operation and settles it. It returns whether it is still unknown, and the fence with which
// it asked.
func (r *reconciler) reconcile(ctx context.Context, o rounds.Operation) (unknown bool, fence uint64) {
	route := r.route(o.Name)
	if route == nil {
		return false, 0 // routes have been replaced meanwhile
	}
	bounded, cancel := context.WithTimeout(ctx, reconcileTime)
	defer cancel()
	var (
		asked semel.Inquiry
		found semel.Finding
		began = time.Now()
	)
	reads, err := route.guard.Reconcile(bounded, o.ID, func(ctx context.Context, q semel.Inquiry) (semel.Finding, error) {
		asked = q
		var err error
		found, err = r.ask(ctx, route, q)
		return found, err
	})
	result := reconcileResult(asked.Fence != 0, found.Found, reads, err)
	if result != "" && ctx.Err() == nil {
		r.count(result)
		attrs := []slog.Attr{
			slog.String("event", "idempotency_reconcile"), slog.String("result", result),
			slog.String("digest", o.ID.String()), slog.String("endpoint", o.Name),
			slog.Uint64("fence", asked.Fence), slog.Int("attempt", asked.Attempt),
			slog.String("correlation", asked.Correlation), slog.String("reads", reads.String()),
			slog.Float64("duration_ms", float64(time.Since(began).Microseconds())/1000),
		}
		if found.Reason != "" {
			attrs = append(attrs, slog.String("reason", found.Reason))
		}
		level := slog.LevelInfo
		if err != nil {
			level = slog.LevelWarn
			attrs = append(attrs, slog.String("error", err.Error()))
		}
		r.log.LogAttrs(ctx, level, "reconcile", attrs...)
	}
	return reads == driver.ReadsUnknown, asked.Fence
}

// reconcileResult names what came of a question; "" if none was asked, since there was nothing to settle.
func reconcileResult(asked bool, found semel.Found, reads driver.Reading, err error) string {
	switch {
	case !asked && err == nil:
		return ""
	case !asked:
		return "failed"
	case found == semel.FoundNothing:
		return "later"
	case reads == driver.ReadsUnknown && err != nil:
		return "failed"
	case found == semel.FoundDone && reads == driver.ReadsDone:
		return "done"
	case found == semel.FoundNever && reads == driver.ReadsFree:
		return "never"
	}
	return "refused"
}
