package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/history"
)

// exchange makes one attempt and records it.
func (l *loader) exchange(ctx context.Context, r *asked, fault string, ask func(key, request string) *history.Call) *answer {
	l.mu.Lock()
	r.tries++
	call := ask(r.operation.key, l.name())
	at := len(l.attempts) // calls of the history are counted alike
	l.attempts = append(l.attempts, attempt{
		operation: r.operation, request: r.index, n: r.tries, call: at + 1, at: time.Since(l.began), fault: fault,
	})
	l.mu.Unlock()

	a := l.wire.exchange(ctx, r.operation.request, l.network.manner(fault))

	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.attempts[at]
	t.kind, t.took = l.scenario.profile.read(a), a.took
	t.came = l.learn(r, t.kind, a, call)
	r.end, r.last = t.kind, t.came
	return a
}

// name says what every request of the load asks for.
func (l *loader) name() string { return l.scenario.Request.Method + " " + l.scenario.Request.Path }

// endedCodes are those of answers that say that an operation has ended, without its answer.
var endedCodes = map[string]bool{
	"IDEMPOTENCY_REPLAY_UNAVAILABLE": true, "IDEMPOTENCY_REPLAY_FORBIDDEN": true, "IDEMPOTENCY_KEY_EXPIRED": true,
}

// learn records what an answer tells, and returns it for people to read. It is called with mu held.
func (l *loader) learn(r *asked, m meaning, a *answer, call *history.Call) string {
	if m == noAnswer {
		return a.err.Error()
	}
	o := r.operation
	came := describeAnswer(a)
	if came == o.value {
		came = o.value // one copy is enough
	}
	switch m {
	case succeeded:
		l.learnEffect(o, a)
		call.Learned(history.Success, came)
	case refused:
		if endedCodes[a.code] {
			call.Learned(history.Ended, came)
		} else { // bodies of refusals may differ, as those with a time do
			call.Learned(history.Failure, strings.TrimSpace(strconv.Itoa(a.status)+" "+a.code))
		}
	case reused:
		call.Learned(history.Mismatch, came)
	case unknown:
		call.Learned(history.Unknown, came)
	default:
		call.Learned(history.Unsure, came)
	}
	if m.definite() {
		r.value = came
		if o.final == noAnswer {
			o.final, o.value = m, came
		}
	}
	return came
}

// learnEffect records the effect of which a success tells. Where effects are counted in another way the first success
// of an operation stands for its effect. It is called with mu held.
func (l *loader) learnEffect(o *loaded, a *answer) {
	if !l.scenario.Effects.byAnswers() {
		if o.seen == 0 {
			o.seen++
			l.history.Effect(o.key, l.name())
		}
		return
	}
	id, err := l.scenario.Effects.effectOf(a)
	if err != nil {
		l.unseen = err
		o.breaks("a success that tells of no effect: " + err.Error())
		return
	}
	first, known := l.effects[id]
	switch {
	case !known:
		l.effects[id] = o.number
		o.seen++
		l.history.Effect(o.key, l.name())
	case first != o.number:
		o.breaks("a success that tells of the effect " + id + " of the key " + short(l.operations[first].key))
	}
}

// breaks notes once that a promise was broken.
func (o *loaded) breaks(what string) {
	if !slices.Contains(o.broken, what) {
		o.broken = append(o.broken, what)
	}
}

// describeAnswer returns a text that is equal for equal answers alone: status and body.
func describeAnswer(a *answer) string {
	text := strconv.Itoa(a.status) + ", " + excerpt(a.body)
	if shown := bytes.TrimRight(a.body, "\n"); len(a.body) > 0 && !strings.HasSuffix(text, " "+string(shown)) {
		sum := sha256.Sum256(a.body)
		text += fmt.Sprintf(" (SHA-256 %x…)", sum[:8])
	}
	return text
}
