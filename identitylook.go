package semel

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/event"
)

// An identityLook is the look that a guard takes at the identity secret's check value before it claims anything, once
// for all that were made from it. With another secret every key would be new, and every repeat would run again.
type identityLook struct {
	good atomic.Bool // the store was made with this guard's secret; no other result lasts

	mu    sync.Mutex
	under *looking // nil if nobody looks
}

// A looking is one look, for all who wait for it.
type looking struct {
	over chan struct{} // closed when err may be read
	err  error
}

// knowsSecret refuses what is asked of a store that was made with another identity secret, or whose check value can't
// be read. It waits for a look under way, within a claim's window.
func (g *Guard) knowsSecret(ctx context.Context) *Problem {
	i := &g.look
	if i.good.Load() {
		return nil
	}
	i.mu.Lock()
	l := i.under
	if l == nil {
		l = &looking{over: make(chan struct{}), err: errors.New("check the identity secret: the store ended the goroutine")}
		i.under = l
		g.work.add()
		go g.lookAtIdentity(l)
	}
	i.mu.Unlock()
	select {
	case <-l.over:
	case <-ctx.Done():
		return g.unavailable(ctx, ctx.Err())
	}
	if l.err == nil {
		return nil
	}
	p := g.unavailable(ctx, l.err)
	p.shut = p.shut || errors.Is(l.err, ErrOtherSecret)
	return p
}

// lookAtIdentity is detached from any request, so that no client's end is that of others' look.
func (c *core) lookAtIdentity(l *looking) {
	defer c.work.done()
	defer func() {
		c.look.mu.Lock()
		defer c.look.mu.Unlock()
		c.look.good.Store(l.err == nil)
		c.look.under = nil
		close(l.over)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), min(claimWindow, c.life))
	defer cancel()
	var other error
	asked, err := c.through(func() error {
		err := checkIdentity(ctx, c.store, markOf(c.identity))
		if errors.Is(err, ErrOtherSecret) {
			other, err = err, nil // the store works
		}
		return err
	})
	switch l.err = errors.Join(err, other); {
	case other != nil:
		c.observer.Observe(ctx, event.Event{Kind: event.OtherSecret, Err: other})
	case err != nil && asked:
		c.storeFailed(ctx, "identity", identityID, err)
	}
}
