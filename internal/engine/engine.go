package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/thrown"
	"github.com/semelhq/semel/keyring"
)

// Config has the parts of which an [Engine] is made.
type Config struct {
	Store    driver.Store
	Observer event.Observer // must not panic or call runtime.Goexit
	Breaker  driver.Breaker // nil for none
	Keyring  *keyring.Ring  // nil for none
	Mark     driver.Fingerprint
	Life     time.Duration // the longest that a request to the store may be under way

	MaxAttempts int     // of the same request in a minute; negative for any number
	MaxReleases int     // releases that may be owed
	MaxWaiting  int     // requests that may wait for another run
	Share       float64 // the part of MaxReleases and MaxWaiting that one principal may take
	Single      bool    // there is only one principal, so no turns are taken
}

// An Engine is a store, with everything that its users in this process share.
type Engine struct {
	store    driver.Store
	observer event.Observer
	breaker  driver.Breaker
	keyring  *keyring.Ring
	life     time.Duration
	identity identityLook

	attempts *Attempts
	waiting  waiting
	claims   turns // counts claims
	answers  turns // counts bytes of answers
	releases releases
	work     work
}

// New returns an engine.
func New(c Config) *Engine {
	e := &Engine{
		store: c.Store, observer: c.Observer, breaker: c.Breaker, keyring: c.Keyring, life: c.Life,
		attempts: NewAttempts(c.MaxAttempts),
	}
	e.identity.mark = c.Mark
	e.releases.engine = e
	e.releases.shares = budget.NewShares(c.MaxReleases, c.Share)
	e.waiting.shares = budget.NewShares(c.MaxWaiting, c.Share)
	if !c.Single {
		e.claims.each, e.answers.each = claimsAtOnce, answersAtOnce
	}
	return e
}

// Policy is the part of a route's policy that the engine needs.
type Policy struct {
	OnLost                     driver.LostPolicy
	Lease, MaxRun, SettleWait  time.Duration
	Retention, Tombstone       time.Duration
	MinRetention, MaxRetention time.Duration // bounds of the retention that a run may ask for
	MaxWaiters                 int           // for one operation
	OneCommit                  bool
	FailOpen                   bool // a request is run unprotected if it is refused because the store does not reply
}

// lost is the outcome of a run that has no answer, but perhaps an effect.
func (p *Policy) lost(why string) driver.Outcome {
	return driver.Outcome{State: p.lostState(), Error: why, Owed: p.OnLost == driver.Rerun}
}

func (p *Policy) lostState() driver.State {
	if p.OnLost == driver.Rerun {
		return driver.Free
	}
	return driver.Unknown
}

// A Route is an engine under a policy.
type Route struct {
	*Engine
	Policy Policy
	keys   *liveKeyCounter
}

// Route returns a route on which each principal may have maxKeys live keys; 0 or less means any number.
func (e *Engine) Route(p Policy, maxKeys int) *Route {
	return &Route{Engine: e, Policy: p, keys: newKeyCounter(maxKeys, p.Retention)}
}

// MaxKeys returns how many live keys a principal may have on the route.
func (r *Route) MaxKeys() int { return r.keys.max }

// With returns a route with another policy. It shares the count of live keys with r.
func (r *Route) With(p Policy) *Route { return &Route{Engine: r.Engine, Policy: p, keys: r.keys} }

// Store returns the store itself, for its optional interfaces.
func (e *Engine) Store() driver.Store { return e.store }

// Run sweeps the store at intervals until ctx ends, and returns ctx's error. After each batch it rests as long as the
// batch took, so that a backlog does not hold up claims.
func (e *Engine) Run(ctx context.Context, every time.Duration) error {
	const batch = 1000
	if store, ok := e.store.(driver.Waker); ok {
		var listening sync.WaitGroup
		defer listening.Wait()
		listening.Go(func() { e.listen(ctx, store) })
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for {
			began, n := time.Now(), 0
			err := e.askUntil(ctx, began.Add(e.life), request{verb: "sweep"}, func(ctx context.Context) (err error) {
				n, err = e.store.Sweep(ctx, batch)
				return err
			})
			if err != nil || n < batch || !pause.For(ctx, time.Since(began)) {
				break
			}
		}
	}
}

// listen wakes the requests that wait for an operation which another process has settled.
func (e *Engine) listen(ctx context.Context, store driver.Waker) {
	for {
		err := wake(ctx, store, e.waiting.wake)
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		e.Failed(ctx, "wake", driver.ID{}, err)
		if !pause.For(ctx, pause.Jitter(2*time.Second)) {
			return
		}
	}
}

func wake(ctx context.Context, store driver.Waker, look func(driver.ID)) (err error) {
	defer thrown.Catch(&err)
	return store.Wake(ctx, look)
}

// Drain waits until every run has ended, every outcome is durable or given up, and every claim that was given up has
// been released, including the second copy of that release. It returns an error if ctx ends before.
func (e *Engine) Drain(ctx context.Context) error {
	if n, err := e.work.wait(ctx); err != nil {
		return fmt.Errorf("%d runs or releases under way: %w", n, err)
	}
	return nil
}

// Stats says what an engine is doing.
type Stats struct {
	Running   int           // runs whose outcome is not settled
	OldestRun time.Duration // age of the oldest of these runs; 0 if there is none
	Waiters   int           // requests that wait for another run
	Releases  int           // claims that were given up and are still being released
}

// Stats returns what the engine is doing.
func (e *Engine) Stats() Stats {
	n, since := e.work.running()
	s := Stats{Running: n, Waiters: e.waiting.count(), Releases: e.releases.count()}
	if n > 0 {
		s.OldestRun = time.Since(since)
	}
	return s
}

// OpenAnswer returns a record's answer. An error wraps [driver.ErrUnreadable].
func (e *Engine) OpenAnswer(ctx context.Context, id driver.ID, rec *driver.Record) (*driver.Response, error) {
	answer, err := e.keyring.Open(id, rec)
	if answer != nil && answer == rec.Response {
		e.plain(ctx, "replay", id)
	}
	return answer, err
}

// OpenNames decrypts a record's names, for those who act on the names. An error wraps [driver.ErrUnreadable], and the
// observer has been told.
func (e *Engine) OpenNames(ctx context.Context, id driver.ID, rec *driver.Record) error {
	stored := rec.Operation
	err := e.keyring.OpenNames(id, rec)
	switch {
	case err != nil:
		e.Failed(ctx, "names", id, err)
	case stored != "" && stored == rec.Operation:
		e.plain(ctx, "names", id)
	}
	return err
}

// openStep returns the result of a step. An error wraps [driver.ErrUnreadable].
func (e *Engine) openStep(ctx context.Context, name string, id driver.ID, envelope []byte) ([]byte, error) {
	result, err := e.keyring.OpenField(stepField(name), id, envelope)
	switch {
	case err != nil:
		e.Failed(ctx, "steps", id, err)
	case keyring.IsPlain(envelope):
		e.plain(ctx, "steps", id)
	}
	return result, err
}

// plain tells the observer that something was not encrypted. Without a keyring nothing is encrypted, so it tells
// nothing.
func (e *Engine) plain(ctx context.Context, verb string, id driver.ID) {
	if e.keyring != nil {
		e.observer.Observe(ctx, event.Event{Kind: event.PlainStored, Verb: verb, ID: id})
	}
}
