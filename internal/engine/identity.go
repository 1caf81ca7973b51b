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

// An identityLook checks the identity secret before an engine claims anything: it looks at the check value. With
// another secret every key would be new, and every repeat would run again.
type identityLook struct {
	mark driver.Fingerprint // the check value of this engine's secret
	good atomic.Bool        // the store has this check value; no other result is remembered

	mu    sync.Mutex
	under *looking // the look under way; nil if there is none
}

// A looking is one look. All who wait share it.
type looking struct {
	over chan struct{} // closed when err may be read
	err  error
}

// SecretKnown says that the engine need not look.
func (e *Engine) SecretKnown() { e.identity.good.Store(true) }

// KnowsSecret refuses a request if the store was first used with another identity secret, or if its check value can't
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

// lookAtIdentity is detached from any request: if a client leaves, the look goes on for the others.
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
	err := e.askUntil(context.Background(), until, request{verb: "identity", id: identityID, refusable: true}, func(ctx context.Context) error {
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

// identityID is where every storage keeps the check value of its identity secret. It is the same under every secret;
// else it would not be found under another secret.
var identityID = func() (id driver.ID) {
	copy(id[len(driver.ScopeID{}):], "semel identity check")
	return id
}()

// CheckIdentity compares the check value of a storage with that of a secret. It writes the check value if there is
// none.
func CheckIdentity(ctx context.Context, store driver.Store, mark driver.Fingerprint) error {
	rec, err := LoadIdentity(ctx, store, mark)
	if err != nil || rec.State == driver.Done {
		return err
	}
	// If a process died and left the record running, the record counts like a finished one, and the check may run again:
	// it has no effect that could be repeated.
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
		return err // another process is writing the same value
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

// LoadIdentity returns the check value's record. It returns an error if the record could not be read or was made with
// another secret.
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

// untilAcknowledged is repeat for callers without an engine, such as tools.
func untilAcknowledged(ctx context.Context, verb func(context.Context) error) error {
	for try := 1; ; try++ {
		err := contained(ctx, verb)
		if err == nil || isAnswer(err) || try == claimTries || !pause.For(ctx, pause.Jitter(pause.Backoff(firstPause, time.Second, try))) {
			return err
		}
	}
}
