package engine

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// withinCaps refuses a request that is repeated too often, or that would add a key to a principal that has too many
// . Both are counted in this process.
func (r *Route) withinCaps(ctx context.Context, a *Ask, now time.Time) *Refusal {
	if left := r.attempts.Count(Attempt{a.ID, a.Fingerprint.Canonical, a.Credentials}, now); left > 0 {
		return &Refusal{Code: refusal.TooManyAttempts, RetryAfter: WholeSeconds(left)}
	}
	left := r.keys.full(a.ID.Scope(), now)
	if left == 0 {
		return nil
	}
	// Repeats of existing keys are still answered.
	rec, err := r.Load(ctx, a.ID)
	switch {
	case errors.Is(err, driver.ErrUnreadable):
		return nil // the record exists; the claim says what it means (R-41a)
	case err != nil:
		return unavailable(ctx, err)
	case rec.Reads(rec.OnLost) != driver.ReadsAbsent:
		return nil
	}
	return &Refusal{Code: refusal.TooManyKeys, RetryAfter: WholeSeconds(left)}
}

// An Attempt is what counts as the same attempt: the same request under the same key, with the same credentials. If
// only the key counted, anybody who knows a key could lock its owner out, with any body.
type Attempt struct {
	ID          driver.ID
	Request     [16]byte
	Credentials string
}

// Attempts counts attempts within a minute. Its memory is bounded: attempts for which there is no room are not counted.
type Attempts struct {
	max    int
	seed   maphash.Seed
	shards [16]attemptShard
}

type attemptShard struct {
	mu     sync.Mutex
	minute int64
	counts map[uint64]int32
}

const attemptKeys = 1 << 15 // for each shard

// NewAttempts returns a counter that allows limit attempts; a negative limit allows any number.
func NewAttempts(limit int) *Attempts {
	return &Attempts{max: limit, seed: maphash.MakeSeed()}
}

// Count adds one attempt. It returns how long to wait if that attempt is one too many, else 0.
func (c *Attempts) Count(a Attempt, now time.Time) time.Duration { return c.count(a, now, 1) }

// Look returns how long to wait if one more attempt would be too many, else 0.
func (c *Attempts) Look(a Attempt, now time.Time) time.Duration { return c.count(a, now, 0) }

func (c *Attempts) count(a Attempt, now time.Time, add int32) time.Duration {
	if c.max < 0 {
		return 0
	}
	h := maphash.Comparable(c.seed, a)
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
	if add > 0 && (known || len(s.counts) < attemptKeys) {
		s.counts[h] = n + add
	}
	return 0
}

// liveKeyCounter counts the live keys of each principal. These are the keys that this process has seen begin and whose
// retention is not over, to a sixteenth of the retention. If there is no room for another principal, it looks at a few
// principals and forgets the one with the fewest keys. So a principal at its cap stays there, however many others come.
type liveKeyCounter struct {
	max  int // 0 or less means no limit
	slot time.Duration

	mu         sync.Mutex
	principals map[driver.ScopeID]*liveKeys
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

func newKeyCounter(limit int, retention time.Duration) *liveKeyCounter {
	return &liveKeyCounter{max: limit, slot: min(retention/keySlots, longestSlot), principals: map[driver.ScopeID]*liveKeys{}}
}

func (c *liveKeyCounter) at(now time.Time) int64 { return now.UnixNano() / int64(c.slot) }

// add counts a run that began a new operation.
func (c *liveKeyCounter) add(s driver.ScopeID, rec *driver.Record) {
	if c.max <= 0 || rec.Created != rec.Started {
		return
	}
	at := c.at(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.principals[s]
	if p == nil {
		if len(c.principals) >= maxPrincipals {
			c.forgetOne(at)
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

// forgetOne forgets, of a few principals, the one with the fewest live keys.
func (c *liveKeyCounter) forgetOne(at int64) {
	const few = 8
	var (
		which  driver.ScopeID
		fewest = int32(math.MaxInt32)
		looked int
	)
	for s, p := range c.principals {
		if n, _ := p.live(at); n < fewest {
			which, fewest = s, n
		}
		if looked++; looked == few {
			break
		}
	}
	delete(c.principals, which)
}

// live returns how many keys are live, and when the oldest of them began.
func (p *liveKeys) live(at int64) (n int32, oldest int64) {
	for _, slot := range p.slots {
		if slot.n > 0 && slot.began > at-keySlots {
			n += slot.n
			if oldest == 0 || slot.began < oldest {
				oldest = slot.began
			}
		}
	}
	return n, oldest
}

// full returns how long to wait if the principal already has the largest number of live keys, else 0.
func (c *liveKeyCounter) full(s driver.ScopeID, now time.Time) time.Duration {
	if c.max <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.principals[s]
	if p == nil {
		return 0
	}
	live, oldest := p.live(c.at(now))
	if int(live) < c.max {
		return 0
	}
	return time.Unix(0, (oldest+keySlots)*int64(c.slot)).Sub(now)
}
