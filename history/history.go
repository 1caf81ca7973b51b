// Package history is the oracle: did it take effect once? Clients record what they asked and what they learned,
// handlers record their effects, all concurrently; [History.Check] says which promises were broken.
package history

import (
	"sync"
	"time"
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
	// Unsure is nothing final: no answer, or the answer that the operation is in progress or pending, or that nothing was
	// run this time. Whoever can't tell Unknown and Ended from these records them as Unsure too; less is checked then.
	Unsure Outcome = iota
	// Success means that the operation took effect, with a value. First answers and replays alike.
	Success
	// Failure means that the operation ended without an effect, with a value, and stays so.
	Failure
	// Mismatch means that the key stands for another request.
	Mismatch
	// Unknown means that the service does not know whether the operation took effect, says so, and waits for a decision.
	// Under AtMostOnce that is an honest end; AtLeastOnce has no reason for it.
	Unknown
	// Ended means that the operation has ended, and that its answer can't be given again. It contradicts nothing.
	Ended
)

// History is what happened, in the order in which it was recorded. The zero History is empty and ready for use, and
// safe for concurrent use. Its fields must not change while it is in use.
type History struct {
	// Promise is what Check holds the operations to.
	Promise Promise

	// Timed has each line of a [Violation].Case begin with the time at which it was recorded, from the first event of the
	// history on. Defaults to no times.
	Timed bool

	mu     sync.Mutex
	asked  int
	began  time.Time
	events []event
}

type kind uint8

const (
	asks kind = iota
	asksLast
	takesEffect
	learns
)

type event struct {
	kind    kind
	at      time.Duration // since the first event
	key     string
	request string
	call    int
	outcome Outcome
	value   string
}

// A Call is one request of one client.
type Call struct {
	h            *History
	n            int
	key, request string
}

// Ask records that a client is about to send a request under a key. Requests that are the same operation are equal
// strings.
func (h *History) Ask(key, request string) *Call { return h.ask(asks, key, request) }

// AskLast is Ask for a call that must end definitely: every fault was healed, no other call of the key is under way,
// none of its runs lives, and every lease is over. Further calls may follow, if this one was too early; the last one of
// each request counts.
func (h *History) AskLast(key, request string) *Call { return h.ask(asksLast, key, request) }

func (h *History) ask(k kind, key, request string) *Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	h.add(event{kind: k, key: key, request: request, call: h.asked})
	return &Call{h: h, n: h.asked, key: key, request: request}
}

// Learned records what the client has got. A call whose answer was lost need not be recorded.
func (c *Call) Learned(o Outcome, value string) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.add(event{kind: learns, key: c.key, request: c.request, call: c.n, outcome: o, value: value})
}

// Effect records that a request under a key has taken effect. It is called when the effect can't be undone any more,
// and before its handler answers.
func (h *History) Effect(key, request string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(event{kind: takesEffect, key: key, request: request})
}

// add is called with mu held, so that the times of events are in their order.
func (h *History) add(e event) {
	now := time.Now()
	if len(h.events) == 0 {
		h.began = now
	}
	e.at = now.Sub(h.began)
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

// A Summary counts what was recorded.
type Summary struct {
	Keys       int // that were asked for, or took effect
	Calls      int
	Effects    int
	Duplicates int // effects of a key beyond its first, whatever was promised

	// Answers that were learned, by outcome. Calls whose answer was lost are in none of them.
	Successes, Failures, Mismatches, Unknown, Ended, Unsure int
}

// Summary returns what was recorded up to now.
func (h *History) Summary() Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Summary{Calls: h.asked}
	effects := map[string]int{}
	for _, e := range h.events {
		effects[e.key] += 0
		switch e.kind {
		case takesEffect:
			s.Effects++
			if effects[e.key]++; effects[e.key] > 1 {
				s.Duplicates++
			}
		case learns:
			*s.learned(e.outcome)++
		}
	}
	s.Keys = len(effects)
	return s
}

func (s *Summary) learned(o Outcome) *int {
	switch o {
	case Success:
		return &s.Successes
	case Failure:
		return &s.Failures
	case Mismatch:
		return &s.Mismatches
	case Unknown:
		return &s.Unknown
	case Ended:
		return &s.Ended
	}
	return &s.Unsure
}
