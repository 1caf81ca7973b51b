package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/history"
)

// A judge compares what clients learned with the effects there are, and what can't be promised under a kill or a fault
// with those that there were.
type judge struct {
	mode     Mode
	began    time.Time
	troubles []trouble
	stalls   []trouble // of the machine: they explain lost leases, and nothing else
}

// slack is for what a kill still does after it: a connection to a process that has gone, and is not back yet, breaks
// only when it is used.
const slack = 300 * time.Millisecond

// explain reports whether a trouble of a front, or of all, came between two moments, or shortly before. No front means
// any.
func explain(troubles []trouble, front string, from, to time.Time) bool {
	return slices.ContainsFunc(troubles, func(t trouble) bool {
		return !t.harmless && (front == "" || t.front == "" || t.front == front) && !t.from.After(to) && !t.to.Add(slack).Before(from)
	})
}

// all returns what is wrong with the operations, and with effects that nobody has asked for.
func (j *judge) all(operations []*operation, effects []effect) []history.Violation {
	of := map[string][]effect{}
	for _, e := range effects {
		of[e.Key] = append(of[e.Key], e)
	}
	var found []history.Violation
	for _, o := range operations {
		found = append(found, j.one(o, of[o.key])...)
		delete(of, o.key)
	}
	for key, effects := range of {
		v := history.Violation{Key: key, What: "an effect that nobody has asked for"}
		for _, e := range effects {
			v.Case = append(v.Case, j.effect(e).what)
		}
		found = append(found, v)
	}
	return found
}

func (j *judge) one(o *operation, effects []effect) (found []history.Violation) {
	var told []moment
	report := func(what string) {
		if told == nil {
			told = j.story(o, effects)
		}
		v := history.Violation{Key: o.key, What: what}
		for _, m := range told {
			v.Case = append(v.Case, fmt.Sprintf("%10.6f s  %s", m.at.Sub(j.began).Seconds(), m.what))
		}
		found = append(found, v)
	}
	for _, v := range j.recorded(o, effects).Check() {
		report(v.What)
	}
	slices.SortStableFunc(effects, func(a, b effect) int { return cmp.Compare(a.Fence, b.Fence) })
	for i, e := range effects {
		switch {
		case e.Operation != effects[0].Operation:
			report("two operations under one key")
		case i > 0 && e.Fence == effects[i-1].Fence:
			report("two effects of one run")
		case i > 0 && !j.lostRun(&effects[i-1], &e):
			report("run again without a reason")
		}
	}
	for _, a := range o.attempts {
		if a.reading == success && len(effects) > 0 && a.request == o.request {
			// No run follows one whose answer was acknowledged.
			if want := effects[len(effects)-1].answer(o.payment.Kind); a.value != want {
				report(fmt.Sprintf("the answer is not that of the last effect, %q", want))
			}
		}
		if a.reading == odd {
			report("an answer that nobody should get")
		}
	}
	switch last := o.last(); {
	case !last.final():
		report("it never came to an end")
	case last == unknown && j.mode != Hold:
		report("unknown, although it may be run again")
	case last == unknown && !j.lost(o):
		report("unknown without a reason")
	case last == unreplayable && j.noRoom(o):
	case last == unreplayable && o.payment.Kind != stream:
		report("an answer that was not stored")
	case last == unreplayable && !j.lost(o):
		report("a stream was lost without a reason")
	}
	return found
}

// lostRun reports whether a run may have been lost before the next one began.
func (j *judge) lostRun(e, next *effect) bool {
	from, to := time.UnixMicro(e.Began), time.UnixMicro(next.Began)
	return explain(j.troubles, e.Front, from, to) || explain(j.stalls, "", from, to)
}

// lost reports whether an attempt may have been cut off by a trouble, or have met a lease that was lost to a stall: it
// was under way then; or its front had put it off, owed a release, and was killed before that was acknowledged, since
// else the key would be free.
func (j *judge) lost(o *operation) bool {
	last := o.attempts[len(o.attempts)-1].done
	return slices.ContainsFunc(o.attempts, func(a attempt) bool {
		switch a.reading {
		case broken, unknown, unreplayable:
			return explain(j.troubles, "", a.sent, a.done) || explain(j.stalls, "", a.sent, a.done)
		case later:
			return explain(j.troubles, "", a.sent, last)
		}
		return false
	})
}

// noRoom reports whether there may have been no room for the answer while it was asked for.
func (j *judge) noRoom(o *operation) bool {
	full := slices.DeleteFunc(slices.Clone(j.troubles), func(t trouble) bool { return !t.full })
	return explain(full, "", o.attempts[0].sent, o.attempts[len(o.attempts)-1].done)
}

// A moment is something that happened to a key.
type moment struct {
	at    time.Time
	what  string
	enter func(*history.History) // records it
}

func (j *judge) effect(e effect) moment {
	return moment{
		at:    time.UnixMicro(e.At),
		what:  fmt.Sprintf("effect %s of %s, %s, run %d, fence %d, operation %s", e.ID, e.Request, e.Front, e.Attempt, e.Fence, e.Operation),
		enter: func(h *history.History) { h.Effect(e.Key, e.Request) },
	}
}

// moments returns what happened to a key, in order.
func (j *judge) moments(o *operation, effects []effect) []moment {
	all := make([]moment, 0, len(effects)+2*len(o.attempts))
	for _, e := range effects {
		all = append(all, j.effect(e))
	}
	for _, a := range o.attempts {
		var call *history.Call
		all = append(all,
			moment{a.sent, fmt.Sprintf("call asks %s for %s", a.front, a.request), func(h *history.History) { call = h.Ask(o.key, a.request) }},
			moment{a.done, fmt.Sprintf("call of %.6f s: %s %s", a.sent.Sub(j.began).Seconds(), a.reading, strings.TrimSpace(a.value)), func(*history.History) {
				if a.reading != broken {
					call.Learned(outcomes[a.reading], a.value)
				}
			}})
	}
	// An effect carries the time before it, and a call that was sent before it is done: equal times keep their order.
	slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	return all
}

var outcomes = map[reading]history.Outcome{success: history.Success, failure: history.Failure, mismatch: history.Mismatch}

// recorded returns the history of a key.
func (j *judge) recorded(o *operation, effects []effect) *history.History {
	h := &history.History{Promise: j.mode.promise()}
	for _, m := range j.moments(o, effects) {
		m.enter(h)
	}
	return h
}

// story is what happened to a key, with the troubles of that time.
func (j *judge) story(o *operation, effects []effect) []moment {
	told := &operation{key: o.key}
	for i, a := range o.attempts {
		// Of many calls in a row that got no answer, the first and the last say enough.
		within := i > 0 && i < len(o.attempts)-1 && o.attempts[i-1].reading == broken && o.attempts[i+1].reading == broken
		if a.reading != broken || !within {
			told.attempts = append(told.attempts, a)
		}
	}
	all := j.moments(told, effects)
	if len(all) == 0 {
		return nil
	}
	from, to := all[0].at.Add(-slack), all[len(all)-1].at
	for _, t := range slices.Concat(j.troubles, j.stalls) {
		if t.to.After(from) && t.from.Before(to) {
			all = append(all, moment{at: t.from, what: fmt.Sprintf("%s, for %v", t.what, t.to.Sub(t.from))})
		}
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	const most = 100 // one that was asked for a thousand times has its story in its beginning and its end
	if len(all) > most {
		all = slices.Delete(all, most/2, len(all)-most/2)
	}
	return all
}
