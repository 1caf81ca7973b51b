package engine

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/lazyctx"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/thrown"
)

// A request is one verb that the engine sends to the store.
type request struct {
	verb      string // for events
	id        driver.ID
	refusable bool             // the breaker may refuse it; a request that ends a run is never refused
	room      *lazyctx.Context // unused memory for its context; nil for none
}

// askUntil makes one request to the store. The request ends when ctx ends, or at until, which is not later than a
// request's life from now. If the store panics or ends the goroutine, this is an error, and does not say whether the
// verb was executed. The observer is told about a failure, unless ctx has ended: then the caller gave up. If the
// breaker refuses the request, the error is a [notAsked], and the observer is not told.
func (e *Engine) askUntil(ctx context.Context, until time.Time, q request, f func(context.Context) error) error {
	if q.refusable && e.breaker != nil {
		done, err := e.allow()
		if err != nil {
			return &notAsked{err}
		}
		reply := errEnded
		defer func() { e.report(done, reply) }()
		reply = e.try(ctx, until, q, f)
		return reply
	}
	return e.try(ctx, until, q, f)
}

// errEnded is the error of a request whose goroutine the store has ended.
var errEnded = errors.New("the store ended the goroutine")

func (e *Engine) try(ctx context.Context, until time.Time, q request, f func(context.Context) error) error {
	one := q.room
	if one == nil {
		one = &lazyctx.Context{}
	}
	one.Until(ctx, until)
	defer one.End(nil)
	err := contained(one, f)
	if err != nil && ctx.Err() == nil {
		e.Failed(ctx, q.verb, q.id, err)
	}
	return err
}

func contained(ctx context.Context, f func(context.Context) error) (err error) {
	defer thrown.Catch(&err)
	return f(ctx)
}

// Failed tells the observer that stored data could not be written or read.
func (e *Engine) Failed(ctx context.Context, verb string, id driver.ID, err error) {
	kind := event.StoreError
	if errors.Is(err, driver.ErrUnreadable) {
		kind = event.Unreadable
	}
	e.observer.Observe(ctx, event.Event{Kind: kind, Verb: verb, ID: id, Err: err})
}

// isAnswer reports whether an error is an answer of the store, so that another try would bring the same.
func isAnswer(err error) bool {
	return wasAsked(err) && (errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnreadable))
}

// A notAsked is the error of a request that the breaker has refused. Whatever the error inside is, the store has said
// nothing.
type notAsked struct{ err error }

func (n *notAsked) Error() string { return n.err.Error() }
func (n *notAsked) Unwrap() error { return n.err }

func wasAsked(err error) bool {
	_, not := err.(*notAsked) //nolint:errorlint // not errors.As: if the store returns one, it is not this engine's
	return !not
}

// allow asks the breaker. If the breaker panics, it is treated as if there were none.
func (e *Engine) allow() (done func(error), err error) {
	defer func() {
		if value := recover(); value != nil {
			e.Failed(context.Background(), "breaker", driver.ID{}, thrown.Error(value))
			done, err = func(error) {}, nil
		}
	}()
	return e.breaker.Allow()
}

// report tells the breaker the result of a request.
func (e *Engine) report(done func(error), err error) {
	defer func() {
		if value := recover(); value != nil {
			e.Failed(context.Background(), "breaker", driver.ID{}, thrown.Error(value))
		}
	}()
	if isAnswer(err) {
		err = nil // the store works
	}
	done(err)
}

// tries says how often, and how long, a request is repeated if its reply was lost.
type tries struct {
	most  int       // 0 for any number
	until time.Time // no try and no pause ends later; if zero, ctx alone ends them
}

// few is for a verb whose reply somebody waits for, if that caller can be refused.
func (e *Engine) few() tries { return tries{claimTries, time.Now().Add(min(claimWindow, e.life))} }

// within is for a verb that has to be acknowledged within d.
func (e *Engine) within(d time.Duration) tries { return tries{0, time.Now().Add(min(d, e.life))} }

const (
	firstPause  = 20 * time.Millisecond // the pause after the first try; each further one is twice as long, up to a second
	claimTries  = 3
	claimWindow = 2 * time.Second // for all tries together
)

// repeat makes a request until it is answered, as often as t allows and until ctx ends.
func (e *Engine) repeat(ctx context.Context, t tries, q request, f func(context.Context) error) error {
	for try := 1; ; try++ {
		err := e.askUntil(ctx, t.cut(e.life), q, f)
		if err == nil || isAnswer(err) || !wasAsked(err) || try == t.most || !t.wait(ctx, try) {
			return err
		}
	}
}

// cut returns when a try that begins now has to end.
func (t tries) cut(life time.Duration) time.Time {
	end := time.Now().Add(life)
	if !t.until.IsZero() && t.until.Before(end) {
		return t.until
	}
	return end
}

// wait waits after a try. It reports false if there must be no further try: ctx has ended, or the time is over.
func (t tries) wait(ctx context.Context, try int) bool {
	d := pause.Jitter(pause.Backoff(firstPause, time.Second, try))
	if t.until.IsZero() {
		return pause.For(ctx, d)
	}
	return pause.For(ctx, min(d, time.Until(t.until))) && time.Now().Before(t.until)
}

// Load reads a record, if the breaker allows it. It ends within a claim's window, not with ctx.
func (e *Engine) Load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	err = e.look(ctx, "load", id, func(ctx context.Context) (err error) {
		rec, err = e.store.Load(ctx, id)
		return err
	})
	return rec, err
}

// Steps reads the results of an operation's steps, as Load reads its record. The engine's store must keep steps.
func (e *Engine) Steps(ctx context.Context, id driver.ID) (saved map[string][]byte, err error) {
	err = e.look(ctx, "steps", id, func(ctx context.Context) (err error) {
		saved, err = e.store.(driver.StepStore).Steps(ctx, id)
		return err
	})
	return saved, err
}

func (e *Engine) look(ctx context.Context, verb string, id driver.ID, f func(context.Context) error) error {
	until := time.Now().Add(min(claimWindow, e.life))
	return e.askUntil(context.WithoutCancel(ctx), until, request{verb: verb, id: id, refusable: true}, f)
}

// List is [driver.Lister].List of the engine's store, which must be one.
func (e *Engine) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	return contained(ctx, func(ctx context.Context) error { return e.store.(driver.Lister).List(ctx, q, yield) })
}
