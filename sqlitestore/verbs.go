package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// Claim implements [driver.Store]. It fails with [driver.ErrFull] if the disk has no room for the record.
func (s *Store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := driver.Record{}, false, errLook
	if !s.seen.of(&id) {
		rec, owned, err = s.claim(ctx, id, c, true, true)
	}
	if errors.Is(err, errLook) {
		// Most claims that will be refused are by this look, which takes no lock that anybody else waits for.
		if rec, err = s.look(ctx, id); err == nil {
			absent := rec.State == driver.Absent
			if rec, owned = rec.Claim(rec.Now, c); owned {
				rec, owned, err = s.claim(ctx, id, c, absent, false)
			}
		}
	}
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("sqlitestore: claim: %w", err)
	}
	return rec, owned, nil
}

// claim claims in the line. A blind one, of an operation that is most likely new, fails with errLook where it would have
// to wait for somebody's transaction.
func (s *Store) claim(ctx context.Context, id driver.ID, c driver.Claim, absent, blind bool) (driver.Record, bool, error) {
	return decide(ctx, s, &call{size: claimSize(&c), blind: blind}, func(u *unit) (driver.Record, bool, error) {
		return u.claim(id, c, absent)
	})
}

func claimSize(c *driver.Claim) int { return 1024 + len(c.Sealed) }

// Extend implements [driver.Store]. It fails with [driver.ErrHeld] if ctx ends while a transaction of this store keeps
// the extension from being executed: the transaction does that before it lets go of the database.
func (s *Store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	_, owned, err := decide(ctx, s, &call{size: 1024, stays: true}, func(u *unit) (struct{}, bool, error) {
		owned, err := u.extend(id, by, x)
		return struct{}{}, owned, err
	})
	if err != nil {
		return false, fmt.Errorf("sqlitestore: extend: %w", err)
	}
	return owned, nil
}

// Settle implements [driver.Store]. It fails with [driver.ErrFull] if the disk has no room for the answer.
func (s *Store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	size := 1024
	if o.Response != nil {
		size += len(o.Response.Body)
	}
	rec, owned, err := decide(ctx, s, &call{size: size}, func(u *unit) (driver.Record, bool, error) {
		return u.settle(id, by, o)
	})
	if o.Response != nil {
		err = noRoom(err) // also if that came out in the commit: settling without the answer does no harm
	}
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("sqlitestore: settle: %w", err)
	}
	return rec, owned, nil
}

// Load implements [driver.Store].
func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := s.look(ctx, id)
	if err != nil {
		return driver.Record{}, fmt.Errorf("sqlitestore: load: %w", err)
	}
	return rec, nil
}

// Seize implements [driver.Seizer].
func (s *Store) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	rec, _, err := decide(ctx, s, &call{size: 1024}, func(u *unit) (driver.Record, bool, error) {
		rec, err := u.seize(id, t)
		return rec, false, err
	})
	if err != nil {
		return driver.Record{}, fmt.Errorf("sqlitestore: seize: %w", err)
	}
	return rec, nil
}

// Forget implements [driver.Seizer].
func (s *Store) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	_, forgot, err := decide(ctx, s, &call{size: 1024}, func(u *unit) (struct{}, bool, error) {
		forgot, err := u.forget(id, by)
		return struct{}{}, forgot, err
	})
	if err != nil {
		return false, fmt.Errorf("sqlitestore: forget: %w", err)
	}
	return forgot, nil
}

// decide has a verb executed in the line.
func decide[T any](ctx context.Context, s *Store, c *call, do func(*unit) (T, bool, error)) (T, bool, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, false, err
	}
	var r struct { // not touched after an error: the verb may still be executed
		value T
		owned bool
	}
	c.do = func(u *unit) (err error) {
		r.value, r.owned, err = do(u)
		return err
	}
	if err := s.write(ctx, c); err != nil {
		return none, false, err
	}
	return r.value, r.owned, nil
}

// look reads a record without a lock.
func (s *Store) look(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	s.seen.of(&id)
	err = s.read(ctx, func(c *session) error {
		now := s.clock.tell() // before the record is read: a lease that is extended meanwhile must not seem to be over
		r, err := c.find(id)
		if err != nil {
			return err
		}
		rec = r.Record
		rec.Now = s.notBefore(now, &rec)
		return nil
	})
	return rec, err
}

// notBefore returns now, or the latest time in rec if a process whose clock is ahead has written that.
func (s *Store) notBefore(now driver.Time, rec *driver.Record) driver.Time {
	if t := max(rec.Started, rec.Settled); t > now {
		s.clock.reach(t)
		return t
	}
	return now
}
