package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
)

// TestR72_AStepsCallsCarryItsKey: within a step the transport sends the key that is derived for it, and the operation's
// correlation id, in every run of the operation; a key that the caller has chosen goes first.
func TestR72_AStepsCallsCarryItsKey(t *testing.T) {
	t.Parallel()
	var keys, ids []string
	downstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		ids = append(ids, r.Header.Get("X-Correlation-Id"))
		if len(keys) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // repeated by the transport
		}
	}))
	defer downstream.Close()
	transport, err := client.New(nil, client.Options{
		Bare: true, Backoff: client.FullJitter(1, 1),
		Key: func(*http.Request) string { return "of-all-others" },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: transport}
	send := func(ctx context.Context, method, key string) {
		r, err := http.NewRequestWithContext(ctx, method, downstream.URL, strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		res.Body.Close()
	}
	var want []string
	fails := true
	g := newGuard(t, semel.Policy{OnLost: semel.Rerun})
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charge := semel.FromContext(r.Context()).Key("charge")
		_, err := semel.Step(r.Context(), "charge", func(ctx context.Context) (int, error) {
			send(ctx, http.MethodPost, "")
			if fails {
				return 0, io.ErrUnexpectedEOF
			}
			send(ctx, http.MethodPost, "chosen")
			send(ctx, http.MethodGet, "")
			return 1, nil
		})
		send(r.Context(), http.MethodPost, "")
		want = []string{charge, charge, "of-all-others", charge, "chosen", "", "of-all-others"}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-Correlation-Id", "c-1")
		h.ServeHTTP(httptest.NewRecorder(), r)
		fails = false
	}
	if !slices.Equal(keys, want) {
		t.Errorf("the downstream saw the keys %q, want %q", keys, want)
	}
	for i, id := range ids {
		if id != "c-1" {
			t.Errorf("request %d came with the correlation id %q", i+1, id)
		}
	}
}
