package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/semelhq/semel"
)

// errDisagree means that a script did not do what the rules of package semel say, or that something has changed its
// reply on the way.
var errDisagree = errors.New("the server's script and the rules disagree")

// Claim implements [semel.Store]. It fails with [semel.ErrFull] if the server's memory is used up.
func (s *Store) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	rec, owned, err := s.claim(ctx, id, c)
	if err != nil {
		return semel.Record{}, false, fmt.Errorf("redisstore: claim: %w", err)
	}
	return rec, owned, nil
}

func (s *Store) claim(ctx context.Context, id semel.ID, c semel.Claim) (rec semel.Record, owned bool, err error) {
	if c.Lease <= 0 {
		c.Lease = semel.DefaultLease
	}
	if c.Retention <= 0 {
		c.Retention = semel.DefaultRetention
	}
	c.Tombstone = max(c.Tombstone, 0)
	if s.finished.has(&id) {
		if rec, refused, err := s.replay(ctx, id, &c); refused || err != nil {
			return rec, false, err
		}
	}
	frame, err := newFrame(&c)
	if err != nil {
		return rec, false, err
	}
	r, err := s.ask(ctx, claimScript, id, frame, micros(c.Lease), c.OnLost.String())
	if err != nil {
		return rec, false, err
	}
	before, err := readFrame(r.value)
	if err != nil {
		return rec, false, err
	}
	if before.State != semel.Done && !before.Begun && before.Expired(r.now) {
		before = semel.Record{Fence: before.Fence} // its key goes a few milliseconds late
	}
	rec, owned = before.Claim(r.now, c)
	if owned != r.wrote {
		return rec, false, errDisagree
	}
	s.finished.note(&id, rec.State == semel.Done)
	return presented(rec), owned, nil
}

// Extend implements [semel.Store].
func (s *Store) Extend(ctx context.Context, id semel.ID, by semel.Owner, x semel.Extension) (bool, error) {
	if x.Lease <= 0 {
		x.Lease = semel.DefaultLease
	}
	begun := "0"
	if x.Begun {
		begun = "1"
	}
	r, err := s.ask(ctx, extendScript, id, ownerBytes(by), micros(x.Lease), begun)
	if err == nil {
		_, err = readHead(r.value)
	}
	if err != nil {
		return false, fmt.Errorf("redisstore: extend: %w", err)
	}
	return r.wrote && !by.Above, nil
}

// Settle implements [semel.Store]. It fails with [semel.ErrFull] if there is an answer and the server's memory is used up.
func (s *Store) Settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (semel.Record, bool, error) {
	rec, owned, err := s.settle(ctx, id, by, o)
	if err != nil {
		return semel.Record{}, false, fmt.Errorf("redisstore: settle: %w", err)
	}
	return rec, owned, nil
}

func (s *Store) settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (rec semel.Record, owned bool, err error) {
	mode := "0"
	switch {
	case o.State != semel.Done && o.State != semel.Free && o.State != semel.Unknown, by.Above && o.State != semel.Free:
		rec, err = s.load(ctx, id)
		return rec, false, err
	case by.Above:
		mode = "1"
	case o.Owed:
		mode = "2"
	}
	answer, kept := "", ""
	if o.State == semel.Done {
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
	r, err := s.ask(ctx, settleScript, id, ownerBytes(by), mode, string(rune(o.State)),
		string(appendPart(nil, o.Error)), answer, s.channel, told, kept)
	if err != nil {
		return rec, false, err
	}
	before, err := readFrame(r.value)
	if err != nil {
		return rec, false, err
	}
	open := before.State == semel.Running || before.State == semel.Unknown && before.Seized
	rec, owned = before.Settle(r.now, by, o)
	if r.wrote && !owned || !r.wrote && owned && open {
		return rec, false, errDisagree
	}
	s.finished.note(&id, rec.State == semel.Done)
	return presented(rec), owned, nil
}

// Load implements [semel.Store].
func (s *Store) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	rec, err := s.load(ctx, id)
	if err != nil {
		return semel.Record{}, fmt.Errorf("redisstore: load: %w", err)
	}
	return rec, nil
}

func (s *Store) load(ctx context.Context, id semel.ID) (semel.Record, error) {
	r, err := s.ask(ctx, loadScript, id)
	if err != nil {
		return semel.Record{}, err
	}
	rec, err := readFrame(r.value)
	if err != nil {
		return rec, err
	}
	rec.Now = r.now
	if rec.State == semel.Absent {
		rec.Fence = 0 // a mark's
	}
	rec, _ = rec.Swept(r.now) // keys end a few milliseconds late
	return rec, nil
}

// Sweep implements [semel.Store]. It has nothing to do: keys end by themselves.
func (s *Store) Sweep(ctx context.Context, _ int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("redisstore: sweep: %w", err)
	}
	return 0, nil
}

// Seize implements [semel.Seizer].
func (s *Store) Seize(ctx context.Context, id semel.ID, t semel.Token) (semel.Record, error) {
	rec, err := s.seize(ctx, id, t)
	if err != nil {
		return semel.Record{}, fmt.Errorf("redisstore: seize: %w", err)
	}
	return rec, nil
}

func (s *Store) seize(ctx context.Context, id semel.ID, t semel.Token) (rec semel.Record, err error) {
	r, err := s.ask(ctx, seizeScript, id, string(t[:]))
	if err != nil {
		return rec, err
	}
	before, err := readFrame(r.value)
	if err != nil {
		return rec, err
	}
	if before.State == semel.Absent {
		before.Fence = 0 // a mark's
	}
	rec, owned := before.Seize(r.now, t)
	if repeated := before.Seized && before.Token == t; owned != (r.wrote || repeated) {
		return rec, errDisagree
	}
	return presented(rec), nil
}

// Forget implements [semel.Seizer].
func (s *Store) Forget(ctx context.Context, id semel.ID, by semel.Owner) (bool, error) {
	if by.Above {
		by = semel.Owner{} // names nobody
	}
	r, err := s.ask(ctx, forgetScript, id, ownerBytes(by))
	if err == nil {
		_, err = readHead(r.value)
	}
	if err != nil {
		return false, fmt.Errorf("redisstore: forget: %w", err)
	}
	return r.wrote, nil
}

// presented returns the record without what its tombstone must not show any more, whether or not it is still there.
func presented(rec semel.Record) semel.Record {
	if rec.Tombstone > 0 {
		if swept, changed := rec.Swept(rec.Now); changed && swept.State != semel.Absent {
			return swept
		}
	}
	return rec
}

// ownerBytes returns fence and token as they stand in a frame.
func ownerBytes(by semel.Owner) string {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], by.Fence)
	copy(b[8:], by.Token[:])
	return string(b[:])
}

// never is a duration for scripts that no time ends.
const never = "1e300"

// micros returns a duration for scripts, in microseconds.
func micros(d time.Duration) string {
	if d == semel.Forever {
		return never
	}
	return strconv.FormatInt(int64(d/time.Microsecond), 10)
}
