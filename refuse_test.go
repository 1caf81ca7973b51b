package semel_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// What a handler has refused without running anything is no execution, and its key is free again.
func TestField19_WhatAHandlerRefusesIsRefusedNotExecuted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy semel.Policy
		says   func(op *semel.Operation)
		result event.Result
		code   refusal.Code
	}{
		"it refuses":             {semel.Policy{}, func(op *semel.Operation) { op.Refuse("SHOP_CLOSED") }, event.Refused, "SHOP_CLOSED"},
		"it refuses on a stream": {semel.Policy{Stream: true}, func(op *semel.Operation) { op.Refuse("SHOP_CLOSED") }, event.Refused, "SHOP_CLOSED"},
		"it releases":            {semel.Policy{}, (*semel.Operation).Release, event.Executed, ""},
		"it says at last that it is kept": {semel.Policy{}, func(op *semel.Operation) {
			op.Refuse("SHOP_CLOSED")
			op.Keep()
		}, event.Executed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, seen := newGuard(t, memstore.New(), c.policy)
			runs := 0
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				c.says(semel.FromContext(r.Context()))
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			for range 2 {
				if w := answer(h, post("k", "{}")); w.Code != http.StatusServiceUnavailable {
					t.Errorf("answered %d", w.Code)
				}
			}
			want := 2
			if name == "it says at last that it is kept" {
				want = 1
			}
			if runs != want {
				t.Errorf("run %d times, want %d", runs, want)
			}
			first := seen.first(event.Decision)
			if first.Result != c.result || first.Code != c.code {
				t.Errorf("it counts as %s with code %q, want %s, %q", first.Result, first.Code, c.result, c.code)
			}
		})
	}
}

func TestField19_WhatAFunctionRefusesIsRefusedNotExecuted(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t, memstore.New(), semel.Policy{Operation: "charge"})
	_, err := semel.Do(t.Context(), g, semel.Key{Scope: "shop", Value: "k"}, semel.Bytes("x"), func(ctx context.Context) (int, error) {
		semel.FromContext(ctx).Refuse("SHOP_CLOSED")
		return 0, http.ErrServerClosed
	})
	if err == nil {
		t.Error("its error is lost")
	}
	if d := seen.first(event.Decision); d.Result != event.Refused || d.Code != "SHOP_CLOSED" {
		t.Errorf("it counts as %s with code %q", d.Result, d.Code)
	}
}

// first returns the first event of a kind.
func (e *events) first(kind event.Kind) (first event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Kind == kind {
			return ev
		}
	}
	return first
}
