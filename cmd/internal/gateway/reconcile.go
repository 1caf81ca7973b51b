package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
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

	routes   atomic.Pointer[map[string]*reconcileRoute]
	met      chan unknownOperation
	interval time.Duration
	attempts map[driver.ID]*attempt // Run's own
	unread   int                    // operations of the last look whose names can't be read; Run's own
}

// A reconcileRoute is a route about whose operations the upstream can be asked.
type reconcileRoute struct {
	guard     *semel.Guard // the route's own: its limits hold for the answers that are found
	question  question
	maxAnswer int64 // Policy.MaxResponseBody, in bytes; 0 means its default
}

type unknownOperation struct {
	id   driver.ID
	name string
}

// An attempt is what is remembered of an operation that was asked about.
type attempt struct {
	asking bool
	at     time.Time     // of the last question
	wait   time.Duration // from then on
	last   time.Duration // what wait was drawn from
	fence  uint64        // of the last question
}

const (
	reconcileInterval = 5 * time.Second // between looks into the store, and the first wait of an operation
	reconcileLongest  = 5 * time.Minute // wait of an operation
	reconcileAtOnce   = 8               // questions
	reconcileBatch    = 256             // operations of one look
	reconcileTime     = time.Minute     // for one operation, all in all
	reconcileKept     = 1 << 16         // operations whose waits are remembered
)

// newReconciler returns a reconciler of the routes that use is told later. It asks through transport, and tells count
// what was found: done, never, later, refused (it was decided elsewhere) or failed. header is that of correlation ids.
func newReconciler(store driver.Store, ring *keyring.Ring, transport http.RoundTripper, header string, log *slog.Logger, count func(result string)) (*reconciler, error) {
	lister, lists := store.(driver.Lister)
	if _, seizes := store.(driver.Seizer); !lists || !seizes {
		return nil, fmt.Errorf("reconcile: the store, a %T, can't be searched for operations to settle", store)
	}
	r := &reconciler{
		lister: lister, keyring: ring, header: header, log: log, count: count, interval: reconcileInterval,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		met: make(chan unknownOperation, reconcileBatch), attempts: map[driver.ID]*attempt{},
	}
	r.use(nil)
	return r, nil
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
	select {
	case r.met <- unknownOperation{e.ID, e.Operation}:
	default: // the next look into the store finds it
	}
}

// Run asks until ctx ends, and returns ctx's error when the last question has ended. Run it once.
func (r *reconciler) Run(ctx context.Context) error {
	var (
		found  []unknownOperation // by the last look, not asked about yet
		ended  = make(chan answered)
		asking int
		look   = time.NewTimer(0)
	)
	defer look.Stop()
	defer func() {
		for ; asking > 0; asking-- {
			<-ended
		}
	}()
	begin := func(o unknownOperation) {
		if route := r.begin(o); route != nil {
			asking++
			go func() { ended <- r.reconcile(ctx, o, route) }()
		}
	}
	for {
		met := r.met
		if asking == reconcileAtOnce {
			met = nil
		} else if len(met) == 0 && len(found) > 0 { // those that somebody has just asked for come first
			begin(found[0])
			found = found[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case o := <-met:
			begin(o)
		case a := <-ended:
			asking--
			r.ended(a)
		case <-look.C:
			took := time.Duration(0)
			if len(found) == 0 && len(*r.routes.Load()) > 0 {
				began := time.Now()
				found = r.look(ctx)
				took = time.Since(began)
			}
			look.Reset(jitter(max(r.interval, 20*took))) // a large store is not kept busy
		}
	}
}

// look returns operations that are unknown and due to be asked about.
func (r *reconciler) look(ctx context.Context) (found []unknownOperation) {
	bounded, cancel := context.WithTimeout(ctx, reconcileTime)
	defer cancel()
	unread := 0
	err := r.lister.List(bounded, driver.Query{Reading: driver.ReadsUnknown}, func(id driver.ID, rec driver.Record) bool {
		a := r.attempts[id]
		unreadable := r.keyring.OpenNames(id, &rec) // the store must not say what is asked where
		switch {
		case unreadable != nil:
			unread++
		case r.route(rec.Operation) == nil:
		case a != nil && (a.asking || time.Since(a.at) < a.wait):
		case rec.Seized && (a == nil || a.fence != rec.Fence) && rec.Now.Sub(rec.Settled) < 2*questionTime:
			// Somebody else has just seized it, to ask or to decide.
		default:
			found = append(found, unknownOperation{id, rec.Operation})
		}
		return len(found) < reconcileBatch
	})
	if err != nil && ctx.Err() == nil {
		r.log.LogAttrs(ctx, slog.LevelWarn, "unknown operations could not be listed", slog.String("error", err.Error()))
	}
	if unread > r.unread {
		r.log.LogAttrs(ctx, slog.LevelWarn, "unknown operations are not asked about, because their names can't be read: they are encrypted "+
			"with another key, or not encrypted", slog.Int("operations", unread))
	}
	r.unread = unread
	for id, a := range r.attempts {
		if !a.asking && time.Since(a.at) > 2*reconcileLongest {
			delete(r.attempts, id) // settled elsewhere
		}
	}
	return found
}

// begin notes that an operation is asked about, and returns its route; nil if it must not be: not by this gateway, or
// not so soon.
func (r *reconciler) begin(o unknownOperation) *reconcileRoute {
	route := r.route(o.name)
	if route == nil {
		return nil
	}
	a := r.attempts[o.id]
	if a == nil {
		if len(r.attempts) >= reconcileKept {
			for id, other := range r.attempts {
				if !other.asking {
					delete(r.attempts, id) // it is asked about sooner again
					break
				}
			}
		}
		a = &attempt{}
		r.attempts[o.id] = a
	}
	if a.asking || !a.at.IsZero() && time.Since(a.at) < r.interval/2 {
		return nil
	}
	a.asking = true
	return route
}

// answered is what came of a question.
type answered struct {
	id      driver.ID
	fence   uint64
	unknown bool
}

// ended takes note of what came of a question.
func (r *reconciler) ended(e answered) {
	if !e.unknown {
		delete(r.attempts, e.id)
		return
	}
	a := r.attempts[e.id]
	a.asking, a.at = false, time.Now()
	a.last = min(max(2*a.last, r.interval), reconcileLongest)
	a.wait = jitter(a.last)
	if e.fence != 0 {
		a.fence = e.fence
	}
}

// reconcile asks about one operation and settles it.
func (r *reconciler) reconcile(ctx context.Context, o unknownOperation, route *reconcileRoute) answered {
	bounded, cancel := context.WithTimeout(ctx, reconcileTime)
	defer cancel()
	var (
		asked semel.Inquiry
		found semel.Finding
		began = time.Now()
	)
	reads, err := route.guard.Reconcile(bounded, o.id, func(ctx context.Context, q semel.Inquiry) (semel.Finding, error) {
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
			slog.String("digest", o.id.String()), slog.String("endpoint", o.name),
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
	return answered{id: o.id, fence: asked.Fence, unknown: reads == driver.ReadsUnknown}
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

// jitter returns a random duration in [d/2, d), so that several gateways don't ask at once.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }
