package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/thrown"
)

// A batch is what was leased of one lane. It is sent in waves, of which each has at most one message of a key.
type batch struct {
	relay   *Relay
	lane    Lane
	token   driver.Token
	until   time.Time // the lease lasts until then at least
	rest    []Entry   // in the order in which they were added
	failed  map[string]bool
	results []Result
	settled time.Time
	end     laneEnd
}

// settleEvery is how long results of waves wait for those of later ones.
const settleEvery = time.Second

// send sends the batch. It returns when everything is settled.
func (b *batch) send(ctx context.Context) laneEnd {
	b.failed = map[string]bool{}
	b.settled = time.Now()
	for len(b.rest) > 0 && ctx.Err() == nil && time.Until(b.until) > b.relay.o.PublishTimeout {
		wave := b.next()
		if len(wave) == 0 {
			continue // what was taken off can't be read, or is kept back
		}
		if !b.judge(wave, b.relay.publish(ctx, wave)) {
			break
		}
		if time.Since(b.settled) > settleEvery {
			b.settle(ctx)
		}
	}
	for _, e := range b.rest {
		b.putBack(&e)
	}
	b.settle(ctx)
	return b.end
}

// next takes a wave off the rest, and what has nothing to be sent for.
func (b *batch) next() (wave []*Entry) {
	taken := map[string]bool{}
	later := make([]Entry, 0, len(b.rest))
	for i := range b.rest {
		e := &b.rest[i]
		switch {
		case e.Key != "" && b.failed[e.Key]:
			b.putBack(e)
		case e.Key != "" && taken[e.Key]:
			later = append(later, *e)
		case e.Err != nil:
			b.fail(e, e.Err)
		default:
			wave = append(wave, e)
			taken[e.Key] = true
		}
	}
	b.rest = later
	return wave
}

// judge takes down what became of a wave. It returns false if the lane seems to be dead.
func (b *batch) judge(wave []*Entry, errs []error) bool {
	answers := 0
	for _, err := range errs {
		if err == nil || errors.Is(err, ErrRefused) {
			answers++
		}
	}
	before := b.end
	dead := answers == 0 && (len(wave) > 1 || before != answered)
	for i, e := range wave {
		switch {
		case errs[i] == nil:
			b.relay.counts.sent.Add(1)
			b.results = append(b.results, Result{ID: e.ID, Outcome: Acknowledged})
		case dead && i > 0: // perhaps the broker is down: only the first one's attempt counts
			b.putBack(e)
		default:
			b.fail(e, errs[i])
		}
	}
	if b.end = answered; dead {
		b.end = allFailed
	}
	return !dead
}

func (b *batch) putBack(e *Entry) {
	b.failed[e.Key] = true
	b.relay.counts.putBack.Add(1)
	b.results = append(b.results, Result{ID: e.ID, Outcome: PutBack})
}

// fail counts an attempt.
func (b *batch) fail(e *Entry, err error) {
	o := &b.relay.o
	b.failed[e.Key] = true
	attempts := e.Attempts + 1
	r := Result{ID: e.ID, Outcome: Failed, Error: storable(err)}
	event := Event{Kind: MessageFailed, Lane: b.lane, ID: e.ID, Key: e.Key, Attempts: attempts, Err: err}
	if errors.Is(err, ErrRefused) || o.MaxAttempts > 0 && attempts >= o.MaxAttempts {
		r.Outcome, r.Hold = GivenUp, o.HoldKey
		event.Kind = MessageDead
		b.relay.counts.dead.Add(1)
	} else {
		r.Delay = b.relay.delay(attempts, err)
		event.Delay = r.Delay
		b.relay.counts.failed.Add(1)
	}
	b.results = append(b.results, r)
	b.relay.observe(event)
}

// delay returns how long a message waits that has failed.
func (r *Relay) delay(attempts int, err error) time.Duration {
	own := min(max(r.o.Backoff(attempts), 0), maxDelay)
	if told := (*retryError)(nil); errors.As(err, &told) {
		return max(told.after, own)
	}
	return own
}

// settle stores the results, and tries that for as long as the lease lasts. What is not stored is sent again.
func (b *batch) settle(ctx context.Context) {
	b.settled = time.Now()
	if len(b.results) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), b.until)
	defer cancel()
	for tries := 1; ; tries++ {
		call, done := context.WithTimeout(ctx, storeTime)
		err := b.relay.store.Settle(call, b.token, b.results)
		done()
		if err == nil {
			break
		}
		b.relay.storeFailed("settle", err)
		if !pause.For(ctx, pause.Jitter(pause.Backoff(pollFirst, storePause, tries))) {
			break
		}
	}
	b.results = nil
}

var (
	errGoexit = errors.New("publisher has ended its goroutine")
	errCount  = errors.New("publisher has returned another number of errors than it was given messages")
)

// publish returns an error for each message of a wave, nil for those that are acknowledged. The end of ctx does not cut
// it short.
func (r *Relay) publish(ctx context.Context, wave []*Entry) []error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.PublishTimeout)
	defer cancel()
	messages := make([]*Message, len(wave))
	for i, e := range wave {
		m := e.Message // a publisher may change what it is given
		messages[i] = &m
	}
	type answer struct {
		errs []error
		all  error // the same for every message
	}
	answers := make(chan answer, 1)
	go func() { // of its own, because a publisher may end it
		a := answer{all: errGoexit}
		defer func() { answers <- a }()
		defer thrown.Catch(&a.all)
		a.errs = r.publisher.Publish(ctx, messages)
		a.all = nil
	}()
	a := <-answers
	if a.all == nil && len(a.errs) != 0 && len(a.errs) != len(wave) {
		a.all = fmt.Errorf("%w: %d errors, %d messages", errCount, len(a.errs), len(wave))
	}
	errs := make([]error, len(wave))
	for i := range errs {
		if errs[i] = a.all; a.all == nil && len(a.errs) > 0 {
			errs[i] = a.errs[i]
		}
	}
	return errs
}

// maxError is how much of an error is stored, in bytes.
const maxError = 1000

// storable returns the text of an error in a form that every store can keep.
func storable(err error) string {
	text := err.Error()
	if len(text) > maxError {
		text = text[:maxError] + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
