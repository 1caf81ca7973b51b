package redisstore

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// Finished are operations that this process has seen done, as many as there is room for. A claim of one of them is most
// likely a repeat: it looks with a plain GET, which costs the server a small part of what a script does, and goes on to
// the script if it finds anything else. Others do not look, so that a first execution takes no trip more.
type finished struct {
	sets [1 << 12][4]atomic.Uint64
}

// set returns where an operation may be, and by what it is known there.
func (f *finished) set(id *driver.ID) (set *[4]atomic.Uint64, tag uint64) {
	tag = binary.LittleEndian.Uint64(id[16:]) | 1 // of the key's digest; 0 is an empty place
	return &f.sets[(tag>>1)%uint64(len(f.sets))], tag
}

func (f *finished) has(id *driver.ID) bool {
	set, tag := f.set(id)
	for i := range set {
		if set[i].Load() == tag {
			return true
		}
	}
	return false
}

// note remembers an operation if it is done, and drops it if it is not.
func (f *finished) note(id *driver.ID, done bool) {
	set, tag := f.set(id)
	place := tag >> 32 % uint64(len(set)) // of the one that goes if there is no room
	for i := range set {
		switch set[i].Load() {
		case tag:
			if !done {
				set[i].CompareAndSwap(tag, 0)
			}
			return
		case 0:
			place = uint64(i)
		}
	}
	if done {
		set[place].Store(tag)
	}
}

// replay is a claim by a plain GET. It reports false unless it found a record that is done, within its retention.
func (s *Store) replay(ctx context.Context, key string, c *driver.Claim) (rec driver.Record, refused bool, err error) {
	frame, _, err := s.reads.ask(ctx, question{key: key})
	if err != nil {
		return rec, false, interpretError(err)
	}
	if rec, err = readFrame(frame); err != nil {
		return rec, false, err
	}
	return rec, replayed(&rec, s.clock.tell(), c.OnLost), nil
}

// newReads returns the line of those who look with a plain GET.
func newReads(client TextClient) *line {
	return &line{
		alone: func(ctx context.Context, q *question) (string, bool, error) {
			return doText(ctx, client, q.key, "GET", q.key)
		},
		together: func(ctx context.Context, all []*waiter) (any, error) {
			command := append(make([]any, 0, 1+len(all)), "MGET")
			for _, w := range all {
				command = append(command, w.key)
			}
			return client.Do(ctx, all[0].key, command...)
		},
	}
}
