package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/pause"
)

// An identityLook is the look that an engine takes at the identity secret's check value before it claims anything. With
// another secret every key would be new, and every repeat would run again.
type identityLook struct {
	mark driver.Fingerprint // the check value of this engine's secret
	good atomic.Bool        // the store was made with it; no other result lasts

	mu    sync.Mutex
	under *looking // nil if nobody looks
}

// A looking is one look, for all who wait for it.
type looking struct {
	over chan struct{} // closed when err may be read
	err  error
}

// SecretKnown spares the engine its look.
func (e *Engine) SecretKnown() { e.identity.good.Store(true) }

// KnowsSecret refuses what is asked of a store that was made with another identity secret, or whose check value can't
// be read. It waits for a look under way, within a claim's window.
func (e *Engine) KnowsSecret(ctx context.Context) *Refusal {
	i := &e.identity
	if i.good.Load() {
		return nil
	}
	i.mu.Lock()
	l := i.under
	if l == nil {
		l = &looking{over: make(chan struct{}), err: fmt.Errorf("check the identity secret: %w", errEnded)}
		i.under = l
		e.work.add()
		go e.lookAtIdentity(l)
	}
	i.mu.Unlock()
	select {
	case <-l.over:
	case <-ctx.Done():
		return unavailable(ctx, ctx.Err())
	}
	if l.err == nil {
		return nil
	}
	refused := unavailable(ctx, l.err)
	refused.Shut = refused.Shut || errors.Is(l.err, ErrOtherSecret)
	return refused
}

// lookAtIdentity is detached from any request, so that no client's end is that of others' look.
func (e *Engine) lookAtIdentity(l *looking) {
	defer e.work.done()
	defer func() {
		e.identity.mu.Lock()
		defer e.identity.mu.Unlock()
		e.identity.good.Store(l.err == nil)
		e.identity.under = nil
		close(l.over)
	}()
	var other error
	until := time.Now().Add(min(claimWindow, e.life))
	err := e.askUntil(context.Background(), until, request{"identity", identityID, true}, func(ctx context.Context) error {
		err := CheckIdentity(ctx, e.store, e.identity.mark)
		if errors.Is(err, ErrOtherSecret) {
			other, err = err, nil // the store works
		}
		return err
	})
	if l.err = errors.Join(err, other); other != nil {
		e.observer.Observe(context.Background(), event.Event{Kind: event.OtherSecret, Err: other})
	}
}

// identityID is where every storage keeps the check value of its identity secret: the same under every secret, or it
// would not be found under another one.
var identityID = func() (id driver.ID) {
	copy(id[len(driver.ScopeID{}):], "semel identity check")
	return id
}()

// CheckIdentity compares the check value of a storage with that of a secret, and writes it where there is none.
func CheckIdentity(ctx context.Context, store driver.Store, mark driver.Fingerprint) error {
	rec, err := LoadIdentity(ctx, store, mark)
	if err != nil || rec.State == driver.Done {
		return err
	}
	// A record left running by a process that died binds as well as a finished one, and runs again: nothing is at stake.
	c := driver.Claim{
		Fingerprint: mark, Token: driver.NewToken(), Retention: driver.Forever, OnLost: driver.Rerun, Operation: "identity check",
	}
	var owned bool
	err = untilAcknowledged(ctx, func(ctx context.Context) (err error) {
		rec, owned, err = store.Claim(ctx, identityID, c)
		return err
	})
	if err != nil {
		return fmt.Errorf("check the identity secret: claim: %w", err)
	}
	if err := compareIdentity(&rec, mark); err != nil || !owned {
		return err // another process writes the same value
	}
	err = untilAcknowledged(ctx, func(ctx context.Context) error {
		_, _, err := store.Settle(ctx, identityID, rec.Owner(), driver.Outcome{State: driver.Done})
		return err // if not owned, another process has taken over, under the same secret
	})
	if err != nil {
		return fmt.Errorf("check the identity secret: settle: %w", err)
	}
	return nil
}

// LoadIdentity returns the check value's record, and an error if it could not be read or was made with another secret.
func LoadIdentity(ctx context.Context, store driver.Store, mark driver.Fingerprint) (rec driver.Record, err error) {
	err = untilAcknowledged(ctx, func(ctx context.Context) error {
		rec, err = store.Load(ctx, identityID)
		return err
	})
	if err != nil {
		return driver.Record{}, fmt.Errorf("check the identity secret: load: %w", err)
	}
	return rec, compareIdentity(&rec, mark)
}

func compareIdentity(rec *driver.Record, mark driver.Fingerprint) error {
	if rec.State != driver.Absent && rec.Fingerprint != mark {
		return fmt.Errorf("check the identity secret: %w", ErrOtherSecret)
	}
	return nil
}

// untilAcknowledged is repeat without an engine, of which a tool has none.
func untilAcknowledged(ctx context.Context, verb func(context.Context) error) error {
	for try := 1; ; try++ {
		err := contained(ctx, verb)
		if err == nil || isAnswer(err) || try == claimTries || !pause.For(ctx, pause.Jitter(pause.Backoff(firstPause, time.Second, try))) {
			return err
		}
	}
}
