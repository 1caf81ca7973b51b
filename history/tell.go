package history

import (
	"fmt"
	"time"
)

func (e event) String() string {
	switch e.kind {
	case asks:
		return fmt.Sprintf("call %d asks for %q", e.call, e.request)
	case asksLast:
		return fmt.Sprintf("call %d asks a last time for %q", e.call, e.request)
	case takesEffect:
		return fmt.Sprintf("effect of %q", e.request)
	}
	return fmt.Sprintf("call %d: %s", e.call, e.answer())
}

func (e event) answer() string {
	switch e.outcome {
	case Success:
		return fmt.Sprintf("success, %q", e.value)
	case Failure:
		return fmt.Sprintf("failure, %q", e.value)
	case Mismatch:
		return "mismatch"
	case Unknown:
		return fmt.Sprintf("unknown, %q", e.value)
	case Ended:
		return fmt.Sprintf("ended, %q", e.value)
	}
	return fmt.Sprintf("unsure, %q", e.value)
}

// tell returns the events of one key in order, a line each. Three or more calls in a row that went alike, with nothing
// else in between, are one line.
func tell(events []event, timed bool) []string {
	t := teller{events: events, timed: timed, courses: map[int]course{}}
	for i, e := range events {
		switch e.kind {
		case asks:
			t.courses[e.call] = course{i, i, fmt.Sprintf("ask for %q: no answer", e.request)}
		case asksLast:
			t.courses[e.call] = course{i, i, fmt.Sprintf("ask a last time for %q: no answer", e.request)}
		case learns:
			t.courses[e.call] = t.courses[e.call].answered(events, i)
		}
	}
	t.tell(0, len(events))
	return t.lines
}

// A course is how a call went, from one event to another. Calls with the same text went alike.
type course struct {
	from, to int
	how      string // "" if nothing is like it
}

func (c course) answered(events []event, i int) course {
	if c.to != c.from {
		return course{c.from, i, ""} // a second answer
	}
	ask := "ask"
	if events[c.from].kind == asksLast {
		ask += " a last time"
	}
	return course{c.from, i, fmt.Sprintf("%s for %q: %s", ask, events[i].request, events[i].answer())}
}

type teller struct {
	events  []event
	courses map[int]course // by call
	timed   bool
	lines   []string
}

// few calls show more if they are told one by one.
const few = 2

// tell tells the events from i up to j.
func (t *teller) tell(i, j int) {
	for i < j {
		end := i + 1
		for t.how(i) != "" && end < j && t.how(end) == t.how(i) {
			end++
		}
		if cut := t.cut(i, end); cut < end {
			t.tell(i, cut)
			t.line(cut, cut, t.events[cut].String())
			i = cut + 1
			continue
		}
		t.fold(i, end)
		i = end
	}
}

func (t *teller) how(i int) string { return t.courses[t.events[i].call].how }

// cut returns the first event from i up to end that has no course, or one that is not wholly there; else end.
func (t *teller) cut(i, end int) int {
	for at := i; at < end; at++ {
		if c := t.courses[t.events[at].call]; c.how == "" || c.from < i || c.to >= end {
			return at
		}
	}
	return end
}

// fold tells events of calls that went alike.
func (t *teller) fold(i, end int) {
	var first, last, calls int
	for _, e := range t.events[i:end] {
		if e.kind == learns {
			continue
		}
		if calls++; calls == 1 {
			first = e.call
		}
		last = e.call
	}
	if calls > few {
		t.line(i, end-1, fmt.Sprintf("call %d … call %d %s (%d calls)", first, last, t.how(i), calls))
		return
	}
	for ; i < end; i++ {
		t.line(i, i, t.events[i].String())
	}
}

// line adds a line about the events from i to j.
func (t *teller) line(i, j int, text string) {
	if t.timed {
		from, to := t.events[i].at, t.events[j].at
		if text = offset(to) + "  " + text; i != j {
			text = offset(from) + " … " + text
		}
	}
	t.lines = append(t.lines, text)
}

func offset(d time.Duration) string { return fmt.Sprintf("%+.3f s", d.Seconds()) }
