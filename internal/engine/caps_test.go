package engine

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

func numberedID(n int) (id driver.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	binary.BigEndian.PutUint64(id[16:], uint64(n))
	return id
}

func (c *Attempts) held() (n int) {
	for i := range c.shards {
		n += len(c.shards[i].counts)
	}
	return n
}

// A flood of keys fills the room there is and no more; keys counted before it stay counted.
func TestR60_AttemptsAreCountedInBoundedMemory(t *testing.T) {
	t.Parallel()
	const room = attemptKeys * 16
	c, now := NewAttempts(2), time.Unix(600, 0)
	known := numberedID(-1)
	c.Count(Attempt{ID: known}, now)
	for i := range room + room/4 {
		c.Count(Attempt{ID: numberedID(i)}, now)
	}
	if got := c.held(); got > room {
		t.Errorf("%d keys are held, want at most %d", got, room)
	}
	if left := c.Count(Attempt{ID: known}, now); left != 0 {
		t.Errorf("the second of two attempts must wait %v", left)
	}
	if left := c.Count(Attempt{ID: known}, now.Add(15*time.Second)); left != 45*time.Second {
		t.Errorf("the third of two attempts must wait %v, want 45s", left)
	}
	later := now.Add(time.Minute)
	for i := range 1000 {
		c.Count(Attempt{ID: numberedID(i)}, later)
	}
	if got := c.held(); got != 1000 {
		t.Errorf("a minute later %d keys are held, want 1000", got)
	}
	if left := c.Count(Attempt{ID: known}, later); left != 0 {
		t.Errorf("a minute later the first attempt must wait %v", left)
	}
}

// More principals than there is room for: some are forgotten, which lets them go on, and memory stays bounded.
func TestR60_PrincipalsAreCountedInBoundedMemory(t *testing.T) {
	t.Parallel()
	c := newKeyCounter(1, time.Hour)
	rec := &driver.Record{Created: 1, Started: 1}
	for i := range maxPrincipals + 1000 {
		c.add(numberedID(i).Scope(), rec)
	}
	if got := len(c.principals); got != maxPrincipals {
		t.Errorf("%d principals are held, want %d", got, maxPrincipals)
	}
	if c.full(numberedID(maxPrincipals+999).Scope(), time.Now()) == 0 {
		t.Error("the last principal is not counted")
	}
}

func TestR60_KeysLeaveTheCountWhenTheirRetentionIsOver(t *testing.T) {
	t.Parallel()
	c := newKeyCounter(2, 16*time.Minute)
	rec := &driver.Record{Created: 1, Started: 1}
	scope := numberedID(1).Scope()
	now := time.Now()
	c.add(scope, rec)
	if got := c.full(scope, now); got != 0 {
		t.Errorf("one of two keys: wait %v", got)
	}
	c.add(scope, &driver.Record{Created: 1, Started: 2}) // a further run of a key counted before
	if got := c.full(scope, now); got != 0 {
		t.Errorf("a further run counts as a key: wait %v", got)
	}
	c.add(scope, rec)
	if got := c.full(scope, now); got <= 0 || got > 17*time.Minute {
		t.Errorf("two of two keys: wait %v, want up to the retention", got)
	}
	if got := c.full(scope, now.Add(15*time.Minute)); got <= 0 {
		t.Error("the keys left the count before their retention was over")
	}
	if got := c.full(scope, now.Add(17*time.Minute)); got != 0 {
		t.Errorf("after the retention: wait %v", got)
	}
}

// The slots are used in turn: what a slot held a retention ago does not count any more.
func TestR60_ASlotStartsAnewWhenItsTurnComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newKeyCounter(2, 16*time.Minute)
		rec := &driver.Record{Created: 1, Started: 1}
		scope := numberedID(1).Scope()
		for range 5 {
			c.add(scope, rec)
			if got := c.full(scope, time.Now()); got != 0 {
				t.Errorf("one of two keys: wait %v", got)
			}
			time.Sleep(16 * time.Minute)
		}
	})
}

func TestField15_ByDefaultNoPrincipalHasTooManyKeys(t *testing.T) {
	t.Parallel()
	keys := newKeyCounter(0, driver.DefaultRetention)
	scope := numberedID(1).Scope()
	for range 200_000 {
		keys.add(scope, &driver.Record{Created: 1, Started: 1})
	}
	if got := keys.full(scope, time.Now()); got != 0 || len(keys.principals) != 0 {
		t.Errorf("wait %v, %d principals are counted; want neither", got, len(keys.principals))
	}
}

// A flooder at its cap stays refused, however many principals come after it.
func TestAttack09_AFlooderStaysAtItsCapWhenOthersCome(t *testing.T) {
	t.Parallel()
	c := newKeyCounter(3, time.Hour)
	rec := &driver.Record{Created: 1, Started: 1}
	flooder := numberedID(-1).Scope()
	for range 3 {
		c.add(flooder, rec)
	}
	for i := range maxPrincipals + 80_000 {
		c.add(numberedID(i).Scope(), rec)
	}
	if c.full(flooder, time.Now()) == 0 {
		t.Error("after many other principals the flooder is admitted again")
	}
	if got := len(c.principals); got != maxPrincipals {
		t.Errorf("%d principals are held, want %d", got, maxPrincipals)
	}
}
