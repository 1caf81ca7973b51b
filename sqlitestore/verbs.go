package sqlitestore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel"
)

// Claim implements [semel.Store]. It fails with [semel.ErrFull] if the disk has no room for the record.
func (s *Store) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	// Most claims that will be refused are by this look, which takes no lock that anybody else waits for.
	seen, err := s.look(ctx, id)
	if err != nil {
		return semel.Record{}, false, fmt.Errorf("sqlitestore: claim: %w", err)
	}
	if rec, owned := seen.Claim(seen.Now, c); !owned {
		return rec, false, nil
	}
	rec, owned, err := decide(ctx, s, &call{size: claimSize(&c)}, func(u *unit) (semel.Record, bool, error) {
		return u.claim(id, c, seen.State == semel.Absent)
	})
	if err != nil {
		return semel.Record{}, false, fmt.Errorf("sqlitestore: claim: %w", err)
	}
	return rec, owned, nil
}

func claimSize(c *semel.Claim) int { return 1024 + len(c.Sealed) }

// Extend implements [semel.Store]. It fails with [semel.ErrHeld] if ctx ends while a transaction of this store keeps the
// extension from being executed: the transaction does that before it lets go of the database.
func (s *Store) Extend(ctx context.Context, id semel.ID, by semel.Owner, x semel.Extension) (bool, error) {
	_, owned, err := decide(ctx, s, &call{size: 1024, stays: true}, func(u *unit) (struct{}, bool, error) {
		owned, err := u.extend(id, by, x)
		return struct{}{}, owned, err
	})
	if err != nil {
		return false, fmt.Errorf("sqlitestore: extend: %w", err)
	}
	return owned, nil
}

// Settle implements [semel.Store]. It fails with [semel.ErrFull] if the disk has no room for the answer.
func (s *Store) Settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (semel.Record, bool, error) {
	size := 1024
	if o.Response != nil {
		size += len(o.Response.Body)
	}
	rec, owned, err := decide(ctx, s, &call{size: size}, func(u *unit) (semel.Record, bool, error) {
		return u.settle(id, by, o)
	})
	if o.Response != nil {
		err = noRoom(err) // also if that came out in the commit: settling without the answer does no harm
	}
	if err != nil {
		return semel.Record{}, false, fmt.Errorf("sqlitestore: settle: %w", err)
	}
	return rec, owned, nil
}

// Load implements [semel.Store].
func (s *Store) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	rec, err := s.look(ctx, id)
	if err != nil {
		return semel.Record{}, fmt.Errorf("sqlitestore: load: %w", err)
	}
	return rec, nil
}

// Seize implements [semel.Seizer].
func (s *Store) Seize(ctx context.Context, id semel.ID, t semel.Token) (semel.Record, error) {
	rec, _, err := decide(ctx, s, &call{size: 1024}, func(u *unit) (semel.Record, bool, error) {
		rec, err := u.seize(id, t)
		return rec, false, err
	})
	if err != nil {
		return semel.Record{}, fmt.Errorf("sqlitestore: seize: %w", err)
	}
	return rec, nil
}

// Forget implements [semel.Seizer].
func (s *Store) Forget(ctx context.Context, id semel.ID, by semel.Owner) (bool, error) {
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
func (s *Store) look(ctx context.Context, id semel.ID) (rec semel.Record, err error) {
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
func (s *Store) notBefore(now semel.Time, rec *semel.Record) semel.Time {
	if t := max(rec.Started, rec.Settled); t > now {
		s.clock.reach(t)
		return t
	}
	return now
}
