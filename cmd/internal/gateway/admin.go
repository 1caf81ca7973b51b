package gateway

import (
	"encoding/json"
	"net/http"
	"time"
)

// readyTime bounds the question to the store.
const readyTime = 2 * time.Second

// newAdmin returns the handler of the admin address. Liveness is that it answers: no restart mends a store that is
// down. Readiness is that requests would be served. The upstream has no part in it: its answers are replayed
// while it is down.
func (g *Gateway) newAdmin() http.Handler {
	mux := http.NewServeMux()
	for _, path := range [...]string{"/livez", "/healthz"} { // two names of one question
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		})
	}
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck,errchkjson // the client is gone; nobody is left to tell
}
