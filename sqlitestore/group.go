package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// write executes a call: by this caller, if the line has no leader, and for all others that wait; or by another one. It
// returns when that is done, or when its caller has left the line because ctx has ended.
func (s *Store) write(ctx context.Context, c *call) error {
	leads, err := s.line.enter(c)
	if err != nil {
		return err
	}
	if !leads {
		t, err := s.line.wait(ctx, c)
		switch {
		case err != nil:
			return err
		case t == turnOver:
			return c.err
		}
	}
	s.lead(ctx, c)
	return c.err
}

// lead executes one group, of which own is the first, and hands the lead on. Only the wait for the write lock ends with
// ctx: from then on the others depend on it.
func (s *Store) lead(ctx context.Context, own *call) {
	w, err := s.take(ctx, s.writer)
	if err != nil {
		own.err = err
		s.line.resign(own)
		return
	}
	u, err := s.beginGroup(ctx, w, own)
	if err != nil && (ctx.Err() != nil || errors.Is(err, errLook)) {
		own.err = err
		s.writer <- w
		s.line.resign(own)
		return
	}
	calls := s.line.group()
	if err != nil {
		for _, c := range calls {
			c.err = err
		}
	} else {
		s.execute(u, calls)
	}
	s.writer <- w
	s.line.pass()
	s.line.answer(calls)
}

// beginGroup begins the transaction of a group, of which own is the first. While another process has the database, blind
// calls are sent to look.
func (s *Store) beginGroup(ctx context.Context, w *session, own *call) (*unit, error) {
	err := w.begin()
	switch {
	case !errors.Is(err, ErrLocked):
		return s.unit(w, err)
	case own.blind:
		s.line.slows()
		return nil, errLook
	}
	s.line.slows()
	return s.begin(ctx, w)
}

// execute executes calls in one transaction, and ends it. One that fails does so alone. It reports whether something
// was committed.
func (s *Store) execute(u *unit, calls []*call) bool {
	err := u.call(calls)
	if err == nil && !u.wrote {
		u.reset()
		return false
	}
	if err == nil {
		if err = u.commit(); err == nil {
			return true
		}
		err = fmt.Errorf("commit: %w", err)
		u.reset()
	}
	// Nothing has been written. Where there is no room for all of it, there may be for some.
	alone, committed := len(calls) > 1 && errors.Is(err, ErrDiskFull), false
	for _, c := range calls {
		if c.err = err; alone {
			committed = s.alone(u.session, c) || committed
		}
	}
	return committed
}

// alone executes one call in a transaction of its own.
func (s *Store) alone(w *session, c *call) bool {
	u, err := s.begin(detached, w)
	if err != nil {
		c.err = err
		return false
	}
	return s.execute(u, []*call{c})
}

// call executes the calls, and leaves with each what became of it. An error means that one of them has ended the
// transaction, so that nothing of it is left.
func (u *unit) call(calls []*call) error {
	for _, c := range calls {
		c.err = c.do(u)
		if c.err != nil && !errors.Is(c.err, driver.ErrUnreadable) && !u.inTransaction() {
			return c.err
		}
	}
	return nil
}
