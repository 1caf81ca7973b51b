package semel

import (
	"context"
	"errors"

	"github.com/semelhq/semel/driver"
)

// through makes a request to the store, if the breaker lets it. asked says that the store was asked.
func (c *core) through(request func() error) (asked bool, err error) {
	if c.breaker == nil {
		return true, request()
	}
	done, err := c.breaker.Allow()
	if err != nil {
		return false, err
	}
	finished := false
	defer func() {
		if !finished {
			done(errors.New("the store ended the goroutine"))
		}
	}()
	err = request()
	finished = true
	if errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnreadable) {
		done(nil) // it answers
	} else {
		done(err)
	}
	return true, err
}

// load reads a record, if the breaker lets it. It ends within a claim's window, not with ctx.
func (c *core) load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	one := newDeadline(context.WithoutCancel(ctx), min(claimWindow, c.life))
	defer one.end(nil)
	asked, err := c.through(func() (err error) {
		rec, err = c.store.Load(one, id)
		return err
	})
	if err != nil && asked {
		c.storeFailed(one.parent, "load", id, err)
	}
	return rec, err
}

// containedBreaker is a Breaker that does not throw. One that does is as none.
type containedBreaker struct {
	own  driver.Breaker
	core *core
}

func (b containedBreaker) Allow() (done func(error), err error) {
	defer func() {
		if b.report(recover()) {
			done, err = func(error) {}, nil
		}
	}()
	own, err := b.own.Allow()
	return func(err error) {
		defer func() { b.report(recover()) }()
		own(err)
	}, err
}

func (b containedBreaker) report(thrown any) bool {
	if thrown != nil {
		b.core.storeFailed(context.Background(), "breaker", driver.ID{}, thrownError(thrown))
	}
	return thrown != nil
}
