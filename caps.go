package semel

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// withinCaps refuses a request whose key is asked for too often, or that would add a key to a principal who has too many
// . Both are counted in this process.
func (g *Guard) withinCaps(ctx context.Context, a *ask, now time.Time) *Problem {
	if left := g.attempts.count(a.id, now); left > 0 {
		p := g.problem(CodeTooManyAttempts, "")
		p.RetryAfter = wholeSeconds(left)
		return p
	}
	left := g.keys.full(a.id.Scope(), now)
	if left == 0 {
		return nil
	}
	// Repeats of keys that are there already are still answered.
	rec, err := g.load(ctx, a.id)
	switch {
	case errors.Is(err, ErrUnreadable):
		return nil // it is there; the claim says what that means (R-41a)
	case err != nil:
		return g.unavailable(ctx, err)
	case rec.Reads(rec.OnLost) != ReadsAbsent:
		return nil
	}
	p := g.problem(CodeTooManyKeys, "")
	p.RetryAfter = wholeSeconds(left)
	return p
}

// attemptCounter counts requests by key within a minute. It is approximate on the safe side of memory: when there are
// more keys than it has room for, the rest is not counted.
type attemptCounter struct {
	max    int
	shards [16]attemptShard
}

type attemptShard struct {
	mu     sync.Mutex
	minute int64
	counts map[uint64]int32
}

const attemptKeys = 1 << 15 // a shard

func newAttemptCounter(limit int) *attemptCounter { return &attemptCounter{max: limit} }

// count adds one attempt; it returns how long to wait if that is one too many, else 0.
func (c *attemptCounter) count(id ID, now time.Time) time.Duration {
	if c.max < 0 {
		return 0
	}
	h := binary.BigEndian.Uint64(id[16:])
	s := &c.shards[h%uint64(len(c.shards))]
	minute := now.Unix() / 60
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.minute != minute || s.counts == nil {
		s.minute, s.counts = minute, make(map[uint64]int32)
	}
	n, known := s.counts[h]
	if int(n) >= c.max {
		return time.Unix((minute+1)*60, 0).Sub(now)
	}
	if known || len(s.counts) < attemptKeys {
		s.counts[h] = n + 1
	}
	return 0
}

// keyCounter counts the live keys of each principal: those that this process has seen begin and whose retention is not
// over, to a sixteenth of the retention. When there are more principals than it has room for, it forgets some.
type keyCounter struct {
	max  int // 0 or less means no limit
	slot time.Duration

	mu         sync.Mutex
	principals map[ScopeID]*liveKeys
}

const (
	keySlots      = 16
	maxPrincipals = 1 << 16
	longestSlot   = 30 * 24 * time.Hour / keySlots
)

// liveKeys counts keys by the slot in which they began.
type liveKeys struct {
	slots [keySlots]struct {
		began int64
		n     int32
	}
}

func newKeyCounter(limit int, retention time.Duration) *keyCounter {
	return &keyCounter{max: limit, slot: min(retention/keySlots, longestSlot), principals: map[ScopeID]*liveKeys{}}
}

func (c *keyCounter) at(now time.Time) int64 { return now.UnixNano() / int64(c.slot) }

// add counts a run that began a new operation.
func (c *keyCounter) add(s ScopeID, rec *Record) {
	if c.max <= 0 || rec.Created != rec.Started {
		return
	}
	at := c.at(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.principals[s]
	if p == nil {
		if len(c.principals) >= maxPrincipals {
			for other := range c.principals {
				delete(c.principals, other)
				break
			}
		}
		p = &liveKeys{}
		c.principals[s] = p
	}
	slot := &p.slots[at%keySlots]
	if slot.began != at {
		slot.began, slot.n = at, 0
	}
	slot.n++
}

// full returns how long to wait if the principal has as many live keys as it may, else 0.
func (c *keyCounter) full(s ScopeID, now time.Time) time.Duration {
	if c.max <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.principals[s]
	if p == nil {
		return 0
	}
	at, live, oldest := c.at(now), 0, int64(0)
	for _, slot := range p.slots {
		if slot.n > 0 && slot.began > at-keySlots {
			live += int(slot.n)
			if oldest == 0 || slot.began < oldest {
				oldest = slot.began
			}
		}
	}
	if live < c.max {
		return 0
	}
	return time.Unix(0, (oldest+keySlots)*int64(c.slot)).Sub(now)
}
