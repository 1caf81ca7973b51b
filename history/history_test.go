package history_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/history"
)

func TestR90_AGoodHistoryHasNoViolations(t *testing.T) {
	t.Parallel()
	var h history.History
	if got := h.Check(); got != nil {
		t.Errorf("an empty history: %v", got)
	}
	first, second, other := h.Ask("k", "pay 5"), h.Ask("k", "pay 5"), h.Ask("k", "pay 6")
	h.Ask("k", "pay 5") // its answer is lost
	second.Learned(history.Unsure, "409 in progress")
	h.Effect("k", "pay 5")
	other.Learned(history.Mismatch, "")
	first.Learned(history.Success, "201 payment 1")
	h.Ask("k", "pay 5").Learned(history.Success, "201 payment 1")
	h.Ask("k", "pay 5").Learned(history.Unsure, "503")

	refused := h.Ask("refused", "pay -1")
	refused.Learned(history.Failure, "400")
	h.Ask("refused", "pay -1").Learned(history.Failure, "400")

	h.Ask("lost", "pay 5").Learned(history.Unsure, "409 unknown")
	h.Effect("lost", "pay 5")
	h.Ask("unused", "pay 5").Learned(history.Mismatch, "") // the key's first request has never run
	if got := h.Check(); got != nil {
		t.Errorf("a good history: %v", got)
	}
	if got := h.Effects("k"); got != 1 {
		t.Errorf("%d effects of k, want 1", got)
	}
}

func TestR90_EveryKindOfViolationIsFound(t *testing.T) {
	t.Parallel()
	for want, happen := range map[string]func(h *history.History){
		"2 effects": func(h *history.History) {
			h.Effect("k", "r")
			h.Effect("k", "r")
		},
		"a success without an effect before it": func(h *history.History) {
			h.Ask("k", "r").Learned(history.Success, "v")
			h.Effect("k", "r") // later is too late
		},
		"a failure of what took effect": func(h *history.History) {
			h.Effect("k", "r")
			h.Ask("k", "r").Learned(history.Failure, "v")
		},
		"two final answers disagree": func(h *history.History) {
			h.Effect("k", "r")
			h.Ask("k", "r").Learned(history.Success, "v")
			h.Ask("k", "r").Learned(history.Success, "w")
		},
		"two requests under one key": func(h *history.History) {
			h.Effect("k", "r")
			h.Ask("k", "r").Learned(history.Success, "v")
			h.Ask("k", "s").Learned(history.Success, "v") // a replay to another request
		},
		"a mismatch of the request that has the key": func(h *history.History) {
			h.Ask("k", "r").Learned(history.Mismatch, "") // may be told before the effect is seen
			h.Effect("k", "r")
		},
	} {
		var h history.History
		h.Ask("other", "r").Learned(history.Unsure, "")
		happen(&h)
		var got []string
		for _, v := range h.Check() {
			if v.Key != "k" {
				t.Errorf("%s: a violation of key %q", want, v.Key)
			}
			got = append(got, v.What)
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("found %q, want %q", got, want)
		}
	}
}

func TestR90_WhatOnlyFinalAnswersShowIsFound(t *testing.T) {
	t.Parallel()
	for name, happen := range map[string]func(h *history.History){
		"a failure after a success": func(h *history.History) {
			h.Effect("k", "r")
			h.Ask("k", "r").Learned(history.Success, "v")
			h.Ask("k", "r").Learned(history.Failure, "v")
		},
		"an effect of another request": func(h *history.History) {
			h.Ask("k", "r").Learned(history.Failure, "v")
			h.Effect("k", "s")
		},
	} {
		var h history.History
		happen(&h)
		if len(h.Check()) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
}

func TestR90_AtLeastOnceAllowsFurtherEffectsAndNothingElse(t *testing.T) {
	t.Parallel()
	h := history.History{Promise: history.AtLeastOnce}
	h.Effect("k", "r")
	h.Effect("k", "r")
	h.Ask("k", "r").Learned(history.Success, "v")
	if got := h.Check(); got != nil {
		t.Errorf("two effects: %v", got)
	}
	h.Ask("k2", "r").Learned(history.Success, "v")
	if got := h.Check(); len(got) != 1 || got[0].What != "a success without an effect before it" {
		t.Errorf("a success without an effect: %v", got)
	}
}

func TestAViolationIsToldWithItsKeysEventsInOrder(t *testing.T) {
	t.Parallel()
	var h history.History
	a := h.Ask("k", "pay 5")
	h.Effect("k", "pay 5")
	h.Ask("elsewhere", "x")
	a.Learned(history.Unsure, "lost")
	h.Effect("k", "pay 5")
	h.Ask("k", "pay 5").Learned(history.Success, "201")
	h.Ask("k", "pay 6").Learned(history.Mismatch, "")
	got := h.Check()
	if len(got) != 1 {
		t.Fatalf("found %v", got)
	}
	want := strings.Join([]string{
		`key "k": 2 effects`, `call 1 asks for "pay 5"`, `effect of "pay 5"`, `call 1: unsure, "lost"`, `effect of "pay 5"`,
		`call 3 asks for "pay 5"`, `call 3: success, "201"`, `call 4 asks for "pay 6"`, `call 4: mismatch`,
	}, "\n\t")
	if got[0].String() != want {
		t.Errorf("told as\n%s\nwant\n%s", got[0], want)
	}
}

func TestAHistoryIsRecordedConcurrently(t *testing.T) {
	t.Parallel()
	var h history.History
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			key := fmt.Sprint(i % 10)
			c := h.Ask(key, "r")
			if i < 10 {
				h.Effect(key, "r")
				c.Learned(history.Success, "v")
			}
			h.Check()
		})
	}
	wg.Wait()
	if got := h.Check(); got != nil {
		t.Errorf("found %v", got)
	}
}

func Example() {
	var h history.History
	call := h.Ask("order-42", "pay 5")
	h.Effect("order-42", "pay 5")
	call.Learned(history.Unsure, "connection lost")
	retry := h.Ask("order-42", "pay 5")
	h.Effect("order-42", "pay 5") // a server without idempotency
	retry.Learned(history.Success, "201")
	for _, v := range h.Check() {
		fmt.Println(v)
	}
	// Output:
	// key "order-42": 2 effects
	// 	call 1 asks for "pay 5"
	// 	effect of "pay 5"
	// 	call 1: unsure, "connection lost"
	// 	call 2 asks for "pay 5"
	// 	effect of "pay 5"
	// 	call 2: success, "201"
}
