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
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// TestR72_WhatTheBaseSendsIsNotOfTheStep: a token that the base gets for a step's call is no part of the step's effect,
// so it does not go out under its key, nor does what a handler in the process sends; a step of that handler's own has
// its key.
func TestR72_WhatTheBaseSendsIsNotOfTheStep(t *testing.T) {
	t.Parallel()
	var direct, beneath, inner []string
	send := func(ctx context.Context, hc *http.Client, method, url string) {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return
		}
		res, err := hc.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		res.Body.Close()
	}
	named := func(list *[]string) roundTrip {
		return func(r *http.Request) (*http.Response, error) {
			key := ""
			for name, lines := range r.Header {
				if strings.EqualFold(name, "Idempotency-Key") {
					key += strings.Join(lines, " | ")
				}
			}
			*list = append(*list, key+" "+r.Header.Get("X-Correlation-Id"))
			return response(201, "{}"), nil
		}
	}
	bare := client.Options{Bare: true, Key: func(*http.Request) string { return "own" }}
	third := newClient(t, named(&beneath), bare)
	second := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		send(r.Context(), third, http.MethodPost, "https://tokens.example/further")
		return named(&beneath)(r)
	}), bare)
	stepped := newClient(t, named(&inner), bare)
	var innerKey string
	shop := newGuard(t, semel.Policy{}).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		innerKey = semel.FromContext(r.Context()).Key("charge") + " c-1"
		_, err := semel.Step(r.Context(), "charge", func(ctx context.Context) (int, error) {
			send(ctx, stepped, http.MethodPost, target)
			return 1, nil
		})
		if err != nil {
			t.Error(err)
		}
	}))
	first := newClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		send(r.Context(), second, http.MethodPost, "https://tokens.example/token")
		in := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "/", strings.NewReader("{}"))
		in.Header.Set("Idempotency-Key", "of-the-shop")
		in.Header.Set("X-Correlation-Id", "c-1")
		shop.ServeHTTP(httptest.NewRecorder(), in)
		return named(&direct)(r)
	}), bare)

	var charge string
	h := newGuard(t, semel.Policy{}).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		charge = semel.FromContext(r.Context()).Key("charge") + " c-1"
		_, err := semel.Step(r.Context(), "charge", func(ctx context.Context) (int, error) {
			send(ctx, first, http.MethodPost, target)
			send(ctx, first, http.MethodGet, target)
			return 1, nil
		})
		if err != nil {
			t.Error(err)
		}
	}))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Correlation-Id", "c-1")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if want := []string{charge, " c-1"}; !slices.Equal(direct, want) {
		t.Errorf("the step's calls went out with %q, want %q", direct, want)
	}
	if want := []string{"own c-1", "own c-1", "own c-1", "own c-1"}; !slices.Equal(beneath, want) {
		t.Errorf("beneath them went out %q, want %q", beneath, want)
	}
	if innerKey == charge || !slices.Equal(inner, []string{innerKey}) { // the second time the shop replays
		t.Errorf("the shop's own step sent %q, want %q once", inner, innerKey)
	}
}

// TestAStepOfAnotherEngineSendsTheKeyThatItWasGiven: the way of a workflow's activity. An operation within has its own.
func TestAStepOfAnotherEngineSendsTheKeyThatItWasGiven(t *testing.T) {
	t.Parallel()
	downstream := statuses(201, 201, 201)
	c := newClient(t, downstream, client.Options{Bare: true, Key: func(*http.Request) string { return "own" }})
	send := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	given := semel.WithStepKey(t.Context(), "of-the-workflow")
	send(given)
	send(semel.WithStepKey(given, ""))
	_, err := semel.Do(given, newGuard(t, semel.Policy{}), semel.Key{Scope: "shop", Operation: "pay", Value: "k"}, semel.Bytes(""), func(ctx context.Context) (int, error) {
		send(ctx)
		return 1, nil
	})
	if err != nil {
		t.Error(err)
	}
	if want := []string{"of-the-workflow", "own", "own"}; !slices.Equal(downstream.keys(), want) {
		t.Errorf("sent with the keys %q, want %q", downstream.keys(), want)
	}
}
