package tieredstore

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/driver"
)

// A look into the layers, which have no copy: what has to be known to make one of what is read then.
type look struct {
	at      time.Time // before anything was read
	drops   uint64    // the memory's ticket
	ticket  uint64    // the cache's
	refills bool      // the cache takes a copy
	skips   bool      // no layer takes one
}

// look returns the copy of a done record that a layer has, if it may be served now, with Now set.
func (s *Store) look(ctx context.Context, id driver.ID) (rec driver.Record, found bool, l look) {
	if id.Reserved() {
		l.skips = true // says which storage this is, and which secret it needs
		return rec, false, l
	}
	l.at = s.clock.tell()
	if s.memory != nil {
		l.drops = s.memory.ticket()
		if rec, ok := s.memory.get(id, l.at); ok && s.serves(&rec, l.at) {
			return rec, true, l
		}
	}
	if s.cache == nil {
		return rec, false, l
	}
	err := s.ask(ctx, "get", func(ctx context.Context) (err error) {
		rec, l.ticket, err = s.cache.Get(ctx, id)
		return err
	})
	l.refills = err == nil && l.ticket != 0
	if err != nil || !s.serves(&rec, s.clock.tell()) {
		return driver.Record{}, false, l
	}
	if s.memory != nil {
		s.memory.fill(id, &rec, l.at, l.drops)
	}
	return rec, true, l
}

// refusal returns the record by which a layer refuses a claim, or what its look has found out.
func (s *Store) refusal(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, look) {
	rec, found, l := s.look(ctx, id)
	if !found {
		return driver.Record{}, false, l
	}
	rec, claims := rec.Claim(rec.Now, c)
	if claims {
		return driver.Record{}, false, l
	}
	return rec, true, l
}

// serves reports whether a copy may be served at a time of this process, and sets its Now.
func (s *Store) serves(rec *driver.Record, at time.Time) bool {
	now, ok := s.clock.at(at)
	if !ok {
		return false
	}
	rec.Now = now
	return kept(rec)
}

// kept reports whether a record is done and within its retention.
func kept(rec *driver.Record) bool {
	return rec.State == driver.Done && rec.Reads(rec.OnLost) == driver.ReadsDone
}

// fill makes copies of a record that the durable store has returned.
func (s *Store) fill(ctx context.Context, id driver.ID, rec *driver.Record, l look) {
	if l.skips || !kept(rec) {
		return
	}
	if s.memory != nil {
		s.memory.fill(id, rec, l.at, l.drops)
	}
	if l.refills {
		s.ask(ctx, "fill", func(ctx context.Context) error { //nolint:errcheck // without a copy the next repeat is slower
			return s.cache.Fill(ctx, id, *rec, l.ticket)
		})
	}
}

var errThrown = errors.New("the cache has panicked")

// ask makes one call of the cache, unless the breaker is against it.
func (s *Store) ask(ctx context.Context, verb string, call func(context.Context) error) error {
	if s.breaker == nil {
		return s.askCache(ctx, verb, call)
	}
	done, err := s.breaker.Allow()
	if err != nil {
		return err
	}
	result := errThrown
	defer func() { done(result) }()
	result = s.askCache(ctx, verb, call)
	if result != nil && ctx.Err() != nil {
		result = context.Canceled
	}
	return result
}

func (s *Store) askCache(ctx context.Context, verb string, call func(context.Context) error) error {
	err := call(s.windows.open(ctx))
	if err != nil && ctx.Err() == nil {
		s.health.failed(s.clock.tell(), verb, err)
	}
	return err
}
