package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/semelhq/semel"
)

// readyTime bounds the question to the store.
const readyTime = 2 * time.Second

// readiness is the body of /readyz: "ok", or what is wrong with each part.
type readiness struct {
	Ready   bool   `json:"ready"`
	Gateway string `json:"gateway"`
	Store   string `json:"store"`
	Cache   string `json:"cache,omitempty"` // in front of the store; without it answers are slower, not wrong
}

// newAdmin returns the handler of the admin address. Liveness is that it answers; readiness is that a request would be
// served. The upstream has no part in it: its answers are replayed while it is down.
func (g *Gateway) newAdmin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		state := g.readiness(r.Context())
		status := http.StatusOK
		if !state.Ready {
			status = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", "1")
		}
		writeJSON(w, status, state)
	})
	mux.Handle("GET /metrics", g.metrics.handler())
	return mux
}

func (g *Gateway) readiness(ctx context.Context) readiness {
	state := readiness{Ready: true, Gateway: "ok", Store: "ok"}
	if g.draining.Load() {
		state.Ready, state.Gateway = false, "draining"
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	// Any id will do: absent is an answer.
	if _, err := g.cfg.Store.Load(ctx, semel.ID{}); err != nil {
		state.Ready, state.Store = false, "unreachable"
		g.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "not ready: store is unreachable", slog.String("error", err.Error()))
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck,errchkjson // the client is gone; nobody is left to tell
}
