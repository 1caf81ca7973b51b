package memstore

import (
	"encoding/binary"
	"sync"

	"github.com/semelhq/semel/driver"
)

// A shard holds a part of the records; their ids say which. All its fields are guarded by mu.
type shard struct {
	mu    sync.Mutex
	index map[uint64]*entry // by part of the id; entries with the same part are chained
	queue queue             // the records that expire
	live  []*entry          // entries that run or wait, in no order: see lives

	// floor is the highest fence of any removed record. A key that is claimed again within the same millisecond gets a
	// higher fence too.
	floor uint64

	_ [64]byte // keeps the lock off the cache line of the next shard
}

// The first 16 bytes of an id are its scope's and often the same. The rest is a digest, and each part of it serves
// equally well.
func (s *Store) shard(id driver.ID) *shard { return &s.shards[id[24]%shardCount] }

func indexKey(id *driver.ID) uint64 { return binary.LittleEndian.Uint64(id[16:24]) }

// find returns the record's entry, or nil.
func (sh *shard) find(id driver.ID) *entry {
	e := sh.index[indexKey(&id)]
	for e != nil && e.id != id {
		e = e.next
	}
	return e
}

// insert adds an entry for an id that has none.
func (sh *shard) insert(id driver.ID) *entry {
	k := indexKey(&id)
	e := &entry{id: id, next: sh.index[k]}
	sh.index[k] = e
	return e
}

// write stores rec in e, an entry of this shard.
func (sh *shard) write(e *entry, rec *driver.Record) {
	e.set(rec)
	sh.queue.set(e, rec.Expires())
	sh.note(e, lives(rec))
}

// lives reports whether a record runs, waits for a decision, or is free with a sealed request, which a completer may
// finish: what is looked for again and again.
func lives(rec *driver.Record) bool {
	return rec.State == driver.Running || rec.State == driver.Unknown || rec.State == driver.Free && len(rec.Sealed) > 0
}

// note adds e to the live entries, or removes it from them.
func (sh *shard) note(e *entry, live bool) {
	switch {
	case live == (e.live > 0):
	case live:
		sh.live = append(sh.live, e)
		e.live = uint32(len(sh.live))
	default:
		last := len(sh.live) - 1
		moved := sh.live[last]
		sh.live[e.live-1], moved.live = moved, e.live
		sh.live[last] = nil // lets the entry be collected
		sh.live, e.live = sh.live[:last], 0
	}
}

// remove takes e, an entry of this shard, out of it.
func (sh *shard) remove(e *entry) {
	sh.floor = max(sh.floor, e.fence)
	sh.queue.set(e, never)
	sh.note(e, false)
	k := indexKey(&e.id)
	at := sh.index[k]
	if at == e {
		if e.next == nil {
			delete(sh.index, k)
		} else {
			sh.index[k] = e.next
		}
		return
	}
	for at.next != e {
		at = at.next
	}
	at.next = e.next
}
