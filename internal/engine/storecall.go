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

// A request is one verb that is asked of the store.
type request struct {
	verb      string // for events
	id        driver.ID
	refusable bool // by the breaker; what ends a run never is
}

// askUntil makes one request to the store. It is cut off when ctx ends, or at until, which is not later than a request's
// life from now. What the store throws is an error, which says nothing about whether the verb was executed. A failure is
// told, unless ctx has ended: then it was the caller who gave up. What the breaker refuses is a [notAsked], and not told.
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

// errEnded is what came of a request whose goroutine the store has ended.
var errEnded = errors.New("the store ended the goroutine")

func (e *Engine) try(ctx context.Context, until time.Time, q request, f func(context.Context) error) error {
	one := lazyctx.Until(ctx, until)
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

// Failed tells that something stored could not be written or read.
func (e *Engine) Failed(ctx context.Context, verb string, id driver.ID, err error) {
	kind := event.StoreError
	if errors.Is(err, driver.ErrUnreadable) {
		kind = event.Unreadable
	}
	e.observer.Observe(ctx, event.Event{Kind: kind, Verb: verb, ID: id, Err: err})
}

// isAnswer reports whether an error is what the store says, so that asking again would bring the same.
func isAnswer(err error) bool {
	return wasAsked(err) && (errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnreadable))
}

// A notAsked is the error of a request that the breaker has refused. Whatever that error is, the store has said nothing.
type notAsked struct{ err error }

func (n *notAsked) Error() string { return n.err.Error() }
func (n *notAsked) Unwrap() error { return n.err }

func wasAsked(err error) bool {
	_, not := err.(*notAsked) //nolint:errorlint // one that the store returns is none of this engine's
	return !not
}

// allow asks the breaker. One that throws is as none.
func (e *Engine) allow() (done func(error), err error) {
	defer func() {
		if value := recover(); value != nil {
			e.Failed(context.Background(), "breaker", driver.ID{}, thrown.Error(value))
			done, err = func(error) {}, nil
		}
	}()
	return e.breaker.Allow()
}

// report tells the breaker what came of a request.
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

// tries bound how often, and how long, a request is repeated whose reply was lost.
type tries struct {
	most  int       // 0 for any number
	until time.Time // no try and no pause ends later; zero for when ctx ends
}

// few is for a verb on whose reply somebody waits who can be refused.
func (e *Engine) few() tries { return tries{claimTries, time.Now().Add(min(claimWindow, e.life))} }

// within is for a verb that has to be acknowledged, in so much time.
func (e *Engine) within(d time.Duration) tries { return tries{0, time.Now().Add(min(d, e.life))} }

const (
	firstPause  = 20 * time.Millisecond // between two tries; each further one is twice as long, up to a second
	claimTries  = 3
	claimWindow = 2 * time.Second // for all tries
)

// repeat makes a request until it is answered, as often as t allows and ctx lasts.
func (e *Engine) repeat(ctx context.Context, t tries, q request, f func(context.Context) error) error {
	for try := 1; ; try++ {
		err := e.askUntil(ctx, t.cut(e.life), q, f)
		if err == nil || isAnswer(err) || !wasAsked(err) || try == t.most || !t.wait(ctx, try) {
			return err
		}
	}
}

// cut returns when a try that begins now is cut off.
func (t tries) cut(life time.Duration) time.Time {
	end := time.Now().Add(life)
	if !t.until.IsZero() && t.until.Before(end) {
		return t.until
	}
	return end
}

// wait waits after a try. It reports false if there is to be no other one: ctx has ended, or the time has come.
func (t tries) wait(ctx context.Context, try int) bool {
	d := pause.Jitter(pause.Backoff(firstPause, time.Second, try))
	if t.until.IsZero() {
		return pause.For(ctx, d)
	}
	return pause.For(ctx, min(d, time.Until(t.until))) && time.Now().Before(t.until)
}

// Load reads a record, if the breaker lets it. It ends within a claim's window, not with ctx.
func (e *Engine) Load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	until := time.Now().Add(min(claimWindow, e.life))
	err = e.askUntil(context.WithoutCancel(ctx), until, request{"load", id, true}, func(ctx context.Context) (err error) {
		rec, err = e.store.Load(ctx, id)
		return err
	})
	return rec, err
}

// List is [driver.Lister].List of the engine's store, which must be one.
func (e *Engine) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	return contained(ctx, func(ctx context.Context) error { return e.store.(driver.Lister).List(ctx, q, yield) })
}
