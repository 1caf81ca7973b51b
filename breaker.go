package semel

import (
	"context"
	"errors"
)

// A Breaker is a circuit breaker: while a store fails, it refuses requests to it at once, and lets one through now and
// then to see whether it works again. Allow returns an error to refuse; else done is called once, with what became of the
// request: nil for success, [context.Canceled] if whoever asked has left, which says nothing. It is called concurrently.
type Breaker interface {
	Allow() (done func(err error), err error)
}

// through makes a request to the store, if the breaker lets it. asked says that the store was asked.
func (c *core) through(ctx context.Context, request func() error) (asked bool, err error) {
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
			done(errors.New("the store panicked"))
		}
	}()
	err = request()
	finished = true
	switch {
	case errors.Is(err, ErrFull), errors.Is(err, ErrUnreadable):
		done(nil) // it answers
	case err != nil && ctx.Err() != nil:
		done(context.Canceled) // the client has gone, which says nothing about the store
	default:
		done(err)
	}
	return true, err
}
