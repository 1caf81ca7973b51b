package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/semelhq/semel"
)

func startChi(t *testing.T, g *semel.Guard, p *probe) string {
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			ww.Header().Set("X-Turn", p.turn())
			if r.URL.Path == "/read-above" {
				r.FormValue("amount")
			}
			next.ServeHTTP(ww, r)
			p.see(ww.Status())
		})
	}, quietly, middleware.Compress(5, "application/xml"), middleware.StripSlashes)
	if g != nil {
		r.Use(g.Wrap)
	}
	handle := func(path string, f http.HandlerFunc) {
		r.Post(path, func(w http.ResponseWriter, r *http.Request) {
			p.run()
			f(w, r)
		})
	}
	handle("/json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":1}`)
	})
	handle("/created", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/created/1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":1}`)
	})
	handle("/bound", func(w http.ResponseWriter, r *http.Request) {
		var v payment
		json.NewDecoder(r.Body).Decode(&v) //nolint:errcheck // its amount is told
		fmt.Fprint(w, v.Amount)
	})
	refused := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no funds", http.StatusPaymentRequired) }
	handle("/error", refused)
	r.Get("/error", refused)
	handle("/failed", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) })
	thrown := func(http.ResponseWriter, *http.Request) {
		p.run()
		panic("thrown")
	}
	r.Post("/panic", thrown)
	r.With(quietly).Post("/recovered", thrown)
	handle("/status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	handle("/nocontent", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	handle("/many", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Many"] = []string{"a", "b, c"}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		io.WriteString(w, "many")
	})
	handle("/stream", func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range parts {
			w.Write(part)
			w.(http.Flusher).Flush()
		}
	})
	handle("/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
		}
	})
	handle("/silent", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Set", "1") })
	handle("/read-above", func(http.ResponseWriter, *http.Request) {})
	return serve(t, r)
}

// quietly is chi's Recoverer without its print of the stack.
func quietly(next http.Handler) http.Handler {
	recovers := middleware.Recoverer(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recovers.ServeHTTP(w, middleware.WithLogEntry(r, silence{}))
	})
}

type silence struct{}

func (silence) Write(int, int, http.Header, time.Duration, any) {}
func (silence) Panic(any, []byte)                               {}

func chiPanics(g *semel.Guard) http.Handler {
	r := chi.NewRouter()
	r.With(g.Wrap).Post("/", func(http.ResponseWriter, *http.Request) { panic("thrown") })
	return r
}

func chiStreams(t *testing.T, g *semel.Guard, goOn chan struct{}) string {
	r := chi.NewRouter()
	r.With(g.Wrap).Post("/", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-goOn
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-goOn
		io.WriteString(w, "last")
	})
	return serve(t, r)
}
