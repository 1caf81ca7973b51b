package history

import (
	"fmt"
	"slices"
	"strings"
)

// A Violation is a broken promise about one key.
type Violation struct {
	Key  string
	What string   // such as "2 effects"
	Case []string // what was recorded of the key, in order; of many calls in a row that got the same answer one line
}

func (v Violation) String() string {
	return fmt.Sprintf("key %q: %s\n\t%s", v.Key, v.What, strings.Join(v.Case, "\n\t"))
}

// Check returns what was broken, at most one violation of a kind for each key, ordered by key. A key is taken for one
// operation from its first effect or final answer on: a history is no longer than the time for which outcomes are kept.
//
//   - a key took effect more than once, although AtMostOnce was promised;
//   - a success was learned before its effect, or there is none;
//   - a failure was learned of a request that took effect;
//   - two final answers to one key disagree, first answers and replays alike;
//   - a success was learned, and whoever asked for it again was told that it is unknown or a failure, or, by the last call
//     (AskLast), nothing definite: nothing that was acknowledged is lost;
//   - the last call of a request learned nothing definite: no key is stuck. Unknown is definite under AtMostOnce;
//   - a request got the answer that is another one's, or took effect, under the key of another request;
//   - a request was told that its key stands for another one, although there was none, or it had been answered or had taken
//     effect before.
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
		o := operationOf(h.Promise, byKey[key])
		for _, rule := range rules {
			if what := rule(o); what != "" {
				found = append(found, Violation{Key: key, What: what, Case: tell(byKey[key], h.Timed)})
			}
		}
	}
	return found
}

// An operation is what is known of one key, in the order in which it was recorded.
type operation struct {
	promise Promise
	events  []event
	effects []event
	finals  []event           // the successes and failures that were learned
	answers map[int][]Outcome // of each call that learned something
}

func operationOf(p Promise, events []event) *operation {
	o := &operation{promise: p, events: events, answers: map[int][]Outcome{}}
	for _, e := range events {
		switch {
		case e.kind == takesEffect:
			o.effects = append(o.effects, e)
		case e.kind == learns:
			o.answers[e.call] = append(o.answers[e.call], e.outcome)
			if e.outcome == Success || e.outcome == Failure {
				o.finals = append(o.finals, e)
			}
		}
	}
	return o
}

// rules are what an operation is held to. Each says what is wrong, or nothing.
var rules = [...]func(*operation) string{
	(*operation).repeated,
	(*operation).unfounded,
	(*operation).undone,
	(*operation).contradicted,
	(*operation).lost,
	(*operation).stuck,
	(*operation).confused,
	(*operation).turnedAway,
}

func (o *operation) repeated() string {
	if n := len(o.effects); n > 1 && o.promise == AtMostOnce {
		return fmt.Sprintf("%d effects", n)
	}
	return ""
}

func (o *operation) unfounded() string {
	for _, e := range o.events {
		switch {
		case e.kind == takesEffect:
			return ""
		case e.kind == learns && e.outcome == Success:
			return "a success without an effect before it"
		}
	}
	return ""
}

// undone finds a failure of what took effect. Where a success was told before, that is a contradiction.
func (o *operation) undone() string {
	told := map[string]bool{}
	for _, e := range o.finals {
		if e.outcome == Failure && !told[e.request] && of(o.effects, e.request) {
			return "a failure of what took effect"
		}
		told[e.request] = true
	}
	return ""
}

func (o *operation) contradicted() string {
	for _, e := range o.finals {
		if first := o.finals[0]; e.outcome != first.outcome || e.value != first.value {
			return "two final answers disagree"
		}
	}
	return ""
}

// lost finds calls that were made after a success had been learned, and did not get it. Calls made before may have been
// answered before.
func (o *operation) lost() string {
	acknowledged := map[string]bool{}
	for _, e := range o.events {
		switch {
		case e.kind == learns && e.outcome == Success:
			acknowledged[e.request] = true
		case e.kind == asks || e.kind == asksLast:
			got := o.answers[e.call]
			if acknowledged[e.request] && (slices.Contains(got, Unknown) || slices.Contains(got, Failure) ||
				e.kind == asksLast && !o.definite(got)) {
				return "an acknowledged success was lost"
			}
		}
	}
	return ""
}

func (o *operation) stuck() string {
	asked := map[string]bool{}
	for _, e := range slices.Backward(o.events) {
		if e.kind != asksLast || asked[e.request] {
			continue
		}
		asked[e.request] = true
		switch got := o.answers[e.call]; {
		case o.definite(got):
		case len(got) == 0:
			return fmt.Sprintf("stuck: call %d got no answer when nothing ran any more", e.call)
		case slices.Contains(got, Unknown):
			return fmt.Sprintf("stuck: call %d got unknown, of what may be run again", e.call)
		default:
			return fmt.Sprintf("stuck: call %d got nothing definite when nothing ran any more", e.call)
		}
	}
	return ""
}

// definite reports whether a call that got these answers is at its end.
func (o *operation) definite(got []Outcome) bool {
	return slices.ContainsFunc(got, func(a Outcome) bool {
		return a == Success || a == Failure || a == Mismatch || a == Ended || a == Unknown && o.promise == AtMostOnce
	})
}

// confused finds two requests under one key. Without an effect the key is the request's that was answered first.
func (o *operation) confused() string {
	const two = "two requests under one key"
	if len(o.effects) == 0 {
		for _, e := range o.finals {
			if first := o.finals[0]; e.request != first.request {
				return fmt.Sprintf("%s: %q and %q were answered", two, first.request, e.request)
			}
		}
		return ""
	}
	first := o.effects[0]
	for _, e := range o.effects {
		if e.request != first.request {
			return fmt.Sprintf("%s: %q and %q took effect", two, first.request, e.request)
		}
	}
	for _, e := range o.finals {
		if e.request != first.request {
			return fmt.Sprintf("%s: another request's answer: %q got that of %q", two, e.request, first.request)
		}
	}
	return ""
}

// turnedAway finds a mismatch of the request that has the key: in a call that was made once it had been answered or had
// taken effect, or where no other request had been made. Before, another one may have had the key, and released it.
func (o *operation) turnedAway() string {
	has := slices.Concat(o.effects, o.finals)
	if len(has) == 0 {
		return ""
	}
	owner := has[0].request
	since := map[int]bool{} // calls made when it had the key for good
	settled, others := false, false
	for _, e := range o.events {
		switch {
		case e.kind == asks || e.kind == asksLast:
			since[e.call] = settled
			others = others || e.request != owner
		case e.kind == takesEffect, e.outcome == Success, e.outcome == Failure:
			settled = true
		case e.outcome == Mismatch && e.request == owner && (since[e.call] || !others):
			return "a mismatch of the request that has the key"
		}
	}
	return ""
}

// of reports whether one of the events is of the request.
func of(events []event, request string) bool {
	return slices.ContainsFunc(events, func(e event) bool { return e.request == request })
}
