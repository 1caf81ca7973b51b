package redisstore

import (
	"context"
	"encoding/binary"
	"sync/atomic"

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

// replay is a claim by a plain GET. It reports false unless it found a record that is done, within its retention.
func (s *Store) replay(ctx context.Context, key string, c *driver.Claim) (rec driver.Record, refused bool, err error) {
	frame, _, err := doText(ctx, s.texts, key, "GET", key)
	if err != nil {
		return rec, false, interpretError(err)
	}
	if rec, err = readFrame(frame); err != nil {
		return rec, false, err
	}
	return rec, replayed(&rec, s.clock.tell(), c.OnLost), nil
}
