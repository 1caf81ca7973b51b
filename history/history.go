// Package history is the oracle: did it take effect once? Clients record what they asked and what they learned, handlers
// record their effects, all concurrently; [History.Check] says which promises were broken.
package history

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Promise says how often a key may take effect.
type Promise uint8

const (
	// AtMostOnce promises one effect, or none that anybody was told of.
	AtMostOnce Promise = iota
	// AtLeastOnce lets a run that was lost be run again, and its effect with it.
	AtLeastOnce
)

// Outcome is what a client learned from an answer.
type Outcome uint8

const (
	// Unsure is nothing final: no answer, or the answer that the operation is in progress, pending, unknown or not to be
	// replayed, or that nothing was run this time.
	Unsure Outcome = iota
	// Success means that the operation took effect, with a value. First answers and replays alike.
	Success
	// Failure means that the operation ended without an effect, with a value, and stays so.
	Failure
	// Mismatch means that the key stands for another request.
	Mismatch
)

// History is what happened, in the order in which it was recorded. The zero History is empty and ready for use, and safe
// for concurrent use.
type History struct {
	// Promise is what Check holds the operations to. It must not change while the History is in use.
	Promise Promise

	mu     sync.Mutex
	asked  int
	events []event
}

type kind uint8

const (
	asks kind = iota
	takesEffect
	learns
)

type event struct {
	kind    kind
	key     string
	request string
	call    int
	outcome Outcome
	value   string
}

func (e event) String() string {
	switch e.kind {
	case asks:
		return fmt.Sprintf("call %d asks for %q", e.call, e.request)
	case takesEffect:
		return fmt.Sprintf("effect of %q", e.request)
	}
	switch e.outcome {
	case Success:
		return fmt.Sprintf("call %d: success, %q", e.call, e.value)
	case Failure:
		return fmt.Sprintf("call %d: failure, %q", e.call, e.value)
	case Mismatch:
		return fmt.Sprintf("call %d: mismatch", e.call)
	}
	return fmt.Sprintf("call %d: unsure, %q", e.call, e.value)
}

// A Call is one request of one client.
type Call struct {
	h            *History
	n            int
	key, request string
}

// Ask records that a client is about to send a request under a key. Requests that are the same operation are equal
// strings.
func (h *History) Ask(key, request string) *Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	c := &Call{h: h, n: h.asked, key: key, request: request}
	h.events = append(h.events, event{kind: asks, key: key, request: request, call: c.n})
	return c
}

// Learned records what the client has got. A call whose answer was lost need not be recorded.
func (c *Call) Learned(o Outcome, value string) {
	c.h.add(event{kind: learns, key: c.key, request: c.request, call: c.n, outcome: o, value: value})
}

// Effect records that a request under a key has taken effect. It is called when the effect can't be undone any more, and
// before its handler answers.
func (h *History) Effect(key, request string) {
	h.add(event{kind: takesEffect, key: key, request: request})
}

func (h *History) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// Effects returns how often a key took effect.
func (h *History) Effects(key string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.kind == takesEffect && e.key == key {
			n++
		}
	}
	return n
}

// A Violation is a broken promise about one key.
type Violation struct {
	Key  string
	What string   // such as "2 effects"
	Case []string // what was recorded of the key, in order
}

func (v Violation) String() string {
	return fmt.Sprintf("key %q: %s\n\t%s", v.Key, v.What, strings.Join(v.Case, "\n\t"))
}

// Check returns what was broken, at most one violation of a kind for each key, ordered by key. A key is taken for one
// operation all through: a history is no longer than the time for which outcomes are kept.
//
//   - a key took effect more than once, although AtMostOnce was promised;
//   - a success was learned before its effect, or there is none;
//   - a failure was learned of a key that took effect;
//   - two final answers to one key disagree, first answers and replays alike;
//   - a request was answered, or took effect, under the key of another request;
//   - a request was told that its key stands for another one, although it is the one that was answered or took effect.
func (h *History) Check() []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	byKey := map[string][]event{}
	for _, e := range h.events {
		byKey[e.key] = append(byKey[e.key], e)
	}
	var found []Violation
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, what := range h.Promise.broken(byKey[key]) {
			v := Violation{Key: key, What: what}
			for _, e := range byKey[key] {
				v.Case = append(v.Case, e.String())
			}
			found = append(found, v)
		}
	}
	return found
}

// broken says what is wrong with the events of one key.
func (p Promise) broken(events []event) (found []string) {
	report := func(what string) {
		if !slices.Contains(found, what) {
			found = append(found, what)
		}
	}
	effects := 0
	var final, owner *event // the first final answer; the first event that says whose key it is
	for i := range events {
		e := &events[i]
		if e.kind == takesEffect {
			effects++
		}
		if e.kind == asks || e.kind == learns && e.outcome != Success && e.outcome != Failure {
			continue
		}
		switch {
		case owner == nil:
			owner = e
		case owner.request != e.request:
			report("two requests under one key")
		}
		if e.kind == takesEffect {
			continue
		}
		if e.outcome == Success && effects == 0 {
			report("a success without an effect before it")
		}
		switch {
		case final == nil:
			final = e
		case final.outcome != e.outcome || final.value != e.value:
			report("two final answers disagree")
		}
	}
	if effects > 1 && p == AtMostOnce {
		report(fmt.Sprintf("%d effects", effects))
	}
	if final != nil && final.outcome == Failure && effects > 0 {
		report("a failure of what took effect")
	}
	for i := range events {
		if e := &events[i]; e.kind == learns && e.outcome == Mismatch && owner != nil && owner.request == e.request {
			report("a mismatch of the request that has the key")
		}
	}
	return found
}
