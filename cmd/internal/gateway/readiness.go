package gateway

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/semelhq/semel/driver"
)

// Readiness says whether a gateway is ready while its store is down. A balancer sends nothing to one that is
// not.
type Readiness uint8

const (
	// ReadyIfAllFailOpen is ready if no route needs the store: else keyed requests of the others would come to a gateway
	// that refuses them, and not to one that reaches the store.
	ReadyIfAllFailOpen Readiness = iota
	// ReadyIfAnyFailsOpen is ready if there is a route that does not need it.
	ReadyIfAnyFailsOpen
	// ReadyAlways is ready, for the requests that the guard lets pass.
	ReadyAlways
)

var readinessNames = map[string]Readiness{"all": ReadyIfAllFailOpen, "any": ReadyIfAnyFailsOpen, "always": ReadyAlways}

// ParseReadiness reads "all", "any" or "always".
func ParseReadiness(s string) (Readiness, bool) {
	r, ok := readinessNames[s]
	return r, ok
}

// servesWithoutStore reports whether a gateway of this configuration is ready while the store is down.
func (c *Config) servesWithoutStore() bool {
	needs := func(r *Route) bool { return r.needsStore() }
	switch c.ReadyWithoutStore {
	case ReadyAlways:
		return true
	case ReadyIfAnyFailsOpen:
		return slices.ContainsFunc(c.all(), func(r *Route) bool { return !needs(r) })
	}
	return !slices.ContainsFunc(c.all(), needs)
}

// needsStore reports whether the route refuses keyed requests while the store is down.
func (r *Route) needsStore() bool {
	if r.Policy.FailOpen || r.Policy.ObserveOnly {
		return false
	}
	method, _, found := strings.Cut(r.Match, " ")
	switch {
	case !found:
		return true
	case len(r.Policy.Methods) > 0:
		return slices.Contains(r.Policy.Methods, method)
	}
	return !safe(method)
}

// readiness is the body of /readyz: "ok", or what is wrong with each part.
type readiness struct {
	Ready   bool   `json:"ready"`
	Gateway string `json:"gateway"`
	Store   string `json:"store"`
	Cache   string `json:"cache,omitempty"` // in front of the store; without it answers are slower, not wrong
}

func (g *Gateway) readiness(ctx context.Context) readiness {
	state := readiness{Ready: true, Gateway: "ok", Store: "ok"}
	if g.draining.Load() {
		state.Ready, state.Gateway = false, "draining"
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	// Any id will do: absent is an answer.
	if _, err := g.cfg.Store.Load(ctx, driver.ID{}); err != nil {
		state.Store = "unreachable"
		text := "store is unreachable: ready all the same, as ready_without_store says"
		if !g.table.Load().withoutStore {
			state.Ready, text = false, "not ready: store is unreachable"
		}
		g.cfg.Log.LogAttrs(ctx, slog.LevelWarn, text, slog.String("error", err.Error()))
	}
	if ask := g.cfg.CheckCache; ask != nil {
		state.Cache = "ok"
		if err := ask(ctx); err != nil {
			state.Cache = "unreachable"
			g.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "the cache is unreachable: repeats are answered from the store", slog.String("error", err.Error()))
		}
	}
	return state
}
