package gateway

import (
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/rs/cors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/defaults"
)

// A table is what a reload replaces as a whole: the routes, and the upstream behind them.
type table struct {
	hosts, adminHosts hostList // of the two addresses
	screen            *screen
	patterns          *patterns
	routes            map[string]*guardedRoute // by pattern
	others            *guardedRoute            // for the requests that no route names

	withoutStore bool // it is ready while the store is down

	cors *cors.Cors // nil if the gateway says nothing about CORS

	operations http.Handler // of questions about operations; nil if there are none
}

// A guardedRoute is a route with its guard.
type guardedRoute struct {
	guard   *semel.Guard
	guarded http.Handler // of requests with a key in a header
	unkeyed http.Handler // of the others
	proxy   *proxy

	keyHeaders []string
	observes   bool            // the guard refuses nothing
	methods    map[string]bool // those that it protects with a key and without
	named      bool            // no others
	always     bool            // without a key it reads their bodies, too
	field      bool            // a key may be in a body
	maxBody    int64           // the largest body that it takes, in bytes
	stores     bool            // requests, to be finished without their clients
}

// transports are those to the service and to others.
type transports struct{ service, elsewhere http.RoundTripper }

func newTable(c *Config, guard *semel.Guard, to transports) *table {
	t := &table{screen: newScreen(c), patterns: newPatterns(c.matchCase()), routes: map[string]*guardedRoute{}, withoutStore: c.servesWithoutStore()}
	t.others = newGuardedRoute(c, &c.Default, t.screen, guard, to)
	for i := range c.Routes {
		r := &c.Routes[i]
		t.patterns.add(r.Match) //nolint:errcheck // Config.check has added the same ones
		t.routes[r.Match] = newGuardedRoute(c, r, t.screen, guard, to)
	}
	if c.Operations != "" {
		policy := c.operationsPolicy()
		c.operationsAuthorizer(to).authorizing(&policy)
		t.operations = guard.Route(policy).Operations()
	}
	t.cors = newCORS(&c.CORS, t)
	t.patterns.add(everything) //nolint:errcheck // where a route has it already, nothing is left for the others
	return t
}

func newGuardedRoute(c *Config, r *Route, s *screen, guard *semel.Guard, to transports) *guardedRoute {
	policy := r.policy(c)
	stores := policy.Complete || policy.RespondAsync
	if stores {
		policy.SealHeaders = append(slices.Clone(policy.SealHeaders), forwardedProto)
	}
	g := &guardedRoute{
		stores: stores,
		proxy:  newProxy(c, r, s, to.service), keyHeaders: r.keyHeaders(),
		observes: policy.ObserveOnly, methods: map[string]bool{}, named: len(policy.Methods) > 0,
		always: policy.KeyField != "" || policy.Mint != nil, field: policy.KeyField != "", maxBody: policy.MaxRequestBody,
	}
	if g.maxBody == 0 {
		g.maxBody = defaults.MaxRequestBody
	}
	for _, m := range r.methods() {
		g.methods[m] = true
	}
	newAuthorizer(c, r, to).authorizing(&policy)
	minting := policy
	if r.mintsFor() > 0 {
		minting.Retention, minting.Tombstone = r.mintsFor(), 0 // the window is all
		policy.Mint = nil
	}
	g.guard = guard.Route(policy)
	g.guarded = g.guard.Wrap(g.proxy)
	g.unkeyed = g.guarded
	if r.mintsFor() > 0 {
		g.unkeyed = guard.Route(minting).Wrap(g.proxy)
	}
	return g
}

// carriesKey reports whether a header carries a key.
func (g *guardedRoute) carriesKey(r *http.Request) bool {
	for _, name := range g.keyHeaders {
		if len(r.Header[name]) > 0 {
			return true
		}
	}
	return false
}

// readsBody reports whether the guard will read the request's body before anything is run.
func (g *guardedRoute) readsBody(r *http.Request, keyed bool) bool {
	switch {
	case g.observes, r.Body == http.NoBody:
		return false
	case g.methods[r.Method]:
		return keyed || g.always
	case g.named, safe(r.Method):
		return false
	}
	return keyed || g.field && hasFields(r.Header["Content-Type"])
}

// hasFields reports whether a body is JSON or a form, in UTF-8, in which a guard looks for a key.
func hasFields(contentType []string) bool {
	if len(contentType) != 1 {
		return false
	}
	name, params, err := mime.ParseMediaType(contentType[0])
	charset := params["charset"]
	return err == nil && (name == "application/json" || strings.HasSuffix(name, "+json") || name == "application/x-www-form-urlencoded") &&
		(charset == "" || strings.EqualFold(charset, "utf-8"))
}

// route returns the route of a request.
func (t *table) route(r *http.Request) *guardedRoute {
	if len(t.routes) == 0 {
		return t.others
	}
	if route, ok := t.routes[t.patterns.match(r)]; ok {
		return route
	}
	return t.others
}

// questions returns what the upstream is asked about unknown operations, by the names of the routes, "" for the
// requests that none of them names; nil where nothing is asked. It is empty if nothing is asked at all.
func (t *table) questions(c *Config) (map[string]*reconcileRoute, error) {
	all := map[string]*reconcileRoute{}
	some := false
	ask := func(name string, r *guardedRoute) error {
		all[name] = nil
		template := r.proxy.route.Reconcile
		if template == "" {
			return nil
		}
		q, err := newQuestion(c.Upstream, template)
		all[name], some = &reconcileRoute{guard: r.guard, question: q, maxAnswer: r.proxy.route.Policy.MaxResponseBody}, true
		return err
	}
	err := ask("", t.others)
	for name, r := range t.routes {
		err = errors.Join(err, ask(name, r))
	}
	if !some {
		return nil, err
	}
	return all, err
}
