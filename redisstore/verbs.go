package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/semelhq/semel/driver"
)

// errDisagree means that a script did not do what the rules of package semel say, or that something has changed its
// reply on the way.
var errDisagree = errors.New("the server's script and the rules disagree")

// Claim implements [driver.Store]. It fails with [driver.ErrFull] if the server's memory is used up.
func (s *Store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := s.claim(ctx, id, c)
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("redisstore: claim: %w", err)
	}
	return rec, owned, nil
}

func (s *Store) claim(ctx context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, err error) {
	if c.Lease <= 0 {
		c.Lease = driver.DefaultLease
	}
	if c.Retention <= 0 {
		c.Retention = driver.DefaultRetention
	}
	c.Tombstone = max(c.Tombstone, 0)
	key := s.key(id)
	if s.finished.has(&id) {
		if rec, refused, err := s.replay(ctx, key, &c); refused || err != nil {
			return rec, false, err
		}
	} else if rec, owned, decided, err := s.claimNatively(ctx, &id, key, &c); decided || err != nil {
		return rec, owned, err
	}
	frame, err := newFrame(&c)
	if err != nil {
		return rec, false, err
	}
	r, err := s.ask(ctx, claimScript, key, frame, micros(c.Lease), c.OnLost.String())
	if err != nil {
		return rec, false, err
	}
	before, err := readFrame(r.value)
	if err != nil {
		return rec, false, err
	}
	if before.State != driver.Done && !before.Begun && before.Expired(r.now) {
		before = driver.Record{Fence: before.Fence} // its key goes a few milliseconds late
	}
	rec, owned = before.Claim(r.now, c)
	if owned != r.wrote {
		return rec, false, errDisagree
	}
	s.finished.note(&id, rec.State == driver.Done)
	return presented(rec), owned, nil
}

// Extend implements [driver.Store].
func (s *Store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if x.Lease <= 0 {
		x.Lease = driver.DefaultLease
	}
	begun := "0"
	if x.Begun {
		begun = "1"
	}
	s.runs.take(&id)
	r, err := s.ask(ctx, extendScript, s.key(id), ownerBytes(by), micros(x.Lease), begun)
	if err == nil {
		_, err = readHead(r.value)
	}
	if err != nil {
		return false, fmt.Errorf("redisstore: extend: %w", err)
	}
	return r.wrote && !by.Above, nil
}

// Settle implements [driver.Store]. It fails with [driver.ErrFull] if there is an answer and the server's memory is
// used up.
func (s *Store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	rec, owned, err := s.settle(ctx, id, by, o)
	if err != nil {
		return driver.Record{}, false, fmt.Errorf("redisstore: settle: %w", err)
	}
	return rec, owned, nil
}

func (s *Store) settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	key := s.key(id)
	if rec, decided, err := s.settleNatively(ctx, &id, key, by, &o); decided || err != nil {
		return rec, decided, err
	}
	mode := "0"
	switch {
	case o.State != driver.Done && o.State != driver.Free && o.State != driver.Unknown, by.Above && o.State != driver.Free:
		rec, err = s.load(ctx, id)
		return rec, false, err
	case by.Above:
		mode = "1"
	case o.Owed:
		mode = "2"
	}
	answer, kept := "", ""
	if o.State == driver.Done {
		if o.Retention > 0 {
			kept = string(binary.BigEndian.AppendUint64(nil, uint64(o.Retention)))
		}
		if answer, err = answerPart(o.Response); err != nil {
			return rec, false, err
		}
	}
	told := ""
	if s.channel != "" {
		told = string(id[:])
	}
	r, err := s.ask(ctx, settleScript, key, ownerBytes(by), mode, string(rune(o.State)),
		string(appendPart(nil, o.Error)), answer, s.channel, told, kept)
	if err != nil {
		return rec, false, err
	}
	before, err := readFrame(r.value)
	if err != nil {
		return rec, false, err
	}
	open := before.State == driver.Running || before.State == driver.Unknown && before.Seized
	rec, owned = before.Settle(r.now, by, o)
	if r.wrote && !owned || !r.wrote && owned && open {
		return rec, false, errDisagree
	}
	s.finished.note(&id, rec.State == driver.Done)
	return presented(rec), owned, nil
}

// Load implements [driver.Store].
func (s *Store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := s.load(ctx, id)
	if err != nil {
		return driver.Record{}, fmt.Errorf("redisstore: load: %w", err)
	}
	return rec, nil
}

func (s *Store) load(ctx context.Context, id driver.ID) (driver.Record, error) {
	r, err := s.ask(ctx, loadScript, s.key(id))
	if err != nil {
		return driver.Record{}, err
	}
	rec, err := readFrame(r.value)
	if err != nil {
		return rec, err
	}
	rec.Now = r.now
	if rec.State == driver.Absent {
		rec.Fence = 0 // a mark's
	}
	rec, _ = rec.Swept(r.now) // keys end a few milliseconds late
	return rec, nil
}

// Sweep implements [driver.Store]. It has nothing to do: keys end by themselves.
func (s *Store) Sweep(ctx context.Context, _ int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("redisstore: sweep: %w", err)
	}
	return 0, nil
}

// Seize implements [driver.Seizer].
func (s *Store) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	rec, err := s.seize(ctx, id, t)
	if err != nil {
		return driver.Record{}, fmt.Errorf("redisstore: seize: %w", err)
	}
	return rec, nil
}

func (s *Store) seize(ctx context.Context, id driver.ID, t driver.Token) (rec driver.Record, err error) {
	r, err := s.ask(ctx, seizeScript, s.key(id), string(t[:]))
	if err != nil {
		return rec, err
	}
	before, err := readFrame(r.value)
	if err != nil {
		return rec, err
	}
	if before.State == driver.Absent {
		before.Fence = 0 // a mark's
	}
	rec, owned := before.Seize(r.now, t)
	if repeated := before.Seized && before.Token == t; owned != (r.wrote || repeated) {
		return rec, errDisagree
	}
	return presented(rec), nil
}

// Forget implements [driver.Seizer].
func (s *Store) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	if by.Above {
		by = driver.Owner{} // names nobody
	}
	r, err := s.ask(ctx, forgetScript, s.key(id), ownerBytes(by))
	if err == nil {
		_, err = readHead(r.value)
	}
	if err != nil {
		return false, fmt.Errorf("redisstore: forget: %w", err)
	}
	return r.wrote, nil
}

// presented returns the record without what its tombstone must not show any more, whether or not it is still there.
func presented(rec driver.Record) driver.Record {
	if rec.Tombstone > 0 {
		if swept, changed := rec.Swept(rec.Now); changed && swept.State != driver.Absent {
			return swept
		}
	}
	return rec
}

// ownerBytes returns fence and token as they stand in a frame.
func ownerBytes(by driver.Owner) string {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], by.Fence)
	copy(b[8:], by.Token[:])
	return string(b[:])
}

// never is a duration for scripts that no time ends.
const never = "1e300"

// micros returns a duration for scripts, in microseconds.
func micros(d time.Duration) string {
	if d == driver.Forever {
		return never
	}
	return strconv.FormatInt(int64(d/time.Microsecond), 10)
}
