package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/semelhq/semel"
)

type accountKey struct{}

// chi's middlewares are those of net/http. With gives an operation the name of its route; Use is before routing.
var onChi = service{
	scope: semel.ScopeContext(accountKey{}),
	serve: func(l net.Listener, guard *semel.Guard, ledger *ledger) error {
		r := chi.NewRouter()
		r.Use(middleware.Recoverer, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx := context.WithValue(r.Context(), accountKey{}, r.Header.Get("X-Account"))
				next.ServeHTTP(w, r.WithContext(ctx))
			})
		})
		r.With(guard.Wrap).Post("/payments", func(w http.ResponseWriter, r *http.Request) {
			var p payment
			if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
				http.Error(w, "not JSON", http.StatusBadRequest)
				return
			}
			ch, err := ledger.charge(p)
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/payments/"+ch.ID)
			w.WriteHeader(http.StatusCreated)
			json.NewEncoder(w).Encode(ch) //nolint:errcheck // the guard keeps it
		})
		r.Method(http.MethodGet, "/operations", guard.Operations())
		return serveHTTP(l, r)
	},
}
