package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
)

// Finished are operations that this process has seen done, of which each slot keeps one. A claim of one of them is most
// likely a repeat: it looks with a plain GET, which costs the server a small part of what a script does, and goes on to
// the script if it finds anything else. Others do not look, so that a first execution takes no trip more.
type finished struct {
	slots [1 << 14]atomic.Uint64
}

func (f *finished) slot(id *driver.ID) (slot *atomic.Uint64, tag uint64) {
	tag = binary.LittleEndian.Uint64(id[16:]) | 1 // of the key's digest; 0 is an empty slot
	return &f.slots[(tag>>1)%uint64(len(f.slots))], tag
}

func (f *finished) has(id *driver.ID) bool {
	slot, tag := f.slot(id)
	return slot.Load() == tag
}

// note remembers an operation if it is done, and drops it if it is not.
func (f *finished) note(id *driver.ID, done bool) {
	slot, tag := f.slot(id)
	switch {
	case done && slot.Load() != tag:
		slot.Store(tag)
	case !done:
		slot.CompareAndSwap(tag, 0)
	}
}

// replay is a claim by a plain GET. It reports false unless it found a record that is done, within its retention: that
// refuses every claim, and GET shows the record only until the retention ends on the server's clock.
func (s *Store) replay(ctx context.Context, id driver.ID, c *driver.Claim) (rec driver.Record, refused bool, err error) {
	frame, err := getText(ctx, s.client, s.key(id))
	if err == nil {
		rec, err = readFrame(frame)
	}
	if err != nil || rec.State != driver.Done || rec.Tombstone > 0 {
		return rec, false, err
	}
	rec.Now = max(s.clock.tell(), rec.Settled)
	return rec, rec.Reads(c.OnLost) == driver.ReadsDone, nil
}

// getText returns what a key holds, or "".
func getText(ctx context.Context, client Client, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	got, err := client.Do(ctx, key, "GET", key)
	if err = interpretError(err); err != nil {
		return "", err
	}
	text, ok := textOf(got)
	if !ok && got != nil {
		return "", fmt.Errorf("GET replied a %T", got)
	}
	return text, nil
}

// A clock goes on from what the server told. It is behind the server's by what a reply takes, and never ahead by more
// than the two drift apart in clockTrust.
type clock struct {
	mu   sync.Mutex
	told driver.Time
	at   time.Time
}

const clockTrust = time.Second

// set notes a time that the server told before at.
func (c *clock) set(told driver.Time, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed := at.Sub(c.at); passed > clockTrust || told > c.told.Add(passed) {
		c.told, c.at = told, at
	}
}

func (c *clock) tell() driver.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told.Add(time.Since(c.at))
}
