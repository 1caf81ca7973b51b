package memstore

import (
	"encoding/binary"
	"sync"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

// A shard holds a part of the records; their ids say which. All its fields are guarded by mu. Nothing in it holds a
// pointer for each record, because the collector would follow them all, again and again.
type shard struct {
	mu      sync.Mutex
	entries slab.Of[entry]
	texts   slab.Texts
	index   map[uint32]slab.Ref            // by part of the id; entries with the same part are chained
	queue   queue                          // the records that expire
	live    []slab.Ref                     // entries that run or wait, in no order: see lives
	steps   map[slab.Ref]map[string][]byte // of the entries that have any
	scratch []byte                         // for the text of one record

	// floor is the highest fence of any removed record. A key that is claimed again within the same millisecond gets a
	// higher fence too.
	floor uint64

	_ [64]byte // keeps the lock off the cache line of the next shard
}

// The first 16 bytes of an id are its scope's and often the same. The rest is a digest, and each part of it serves
// equally well.
func (s *Store) shard(id driver.ID) *shard { return &s.shards[id[24]%shardCount] }

func indexKey(id *driver.ID) uint32 { return binary.LittleEndian.Uint32(id[16:20]) }

// find returns the record's entry, or 0.
func (sh *shard) find(id *driver.ID) slab.Ref {
	at := sh.index[indexKey(id)]
	for at != 0 && sh.entries.At(at).id != *id {
		at = sh.entries.At(at).next
	}
	return at
}

// record returns the record of an entry, with the given clock; 0 is an absent record. What it returns is the caller's.
func (sh *shard) record(at slab.Ref, now driver.Time) driver.Record {
	if at == 0 {
		return driver.Record{Now: now}
	}
	e := sh.entries.At(at)
	rec := e.record(now)
	if e.state == driver.Done && e.size <= smallText {
		a := &small{}
		unpack(&rec, sh.texts.Append(a.text[:0], e.text, e.size), &a.unpacked)
		return rec
	}
	unpack(&rec, sh.texts.Append(make([]byte, 0, e.size), e.text, e.size), nil)
	return rec
}

// insert adds an entry for an id that has none.
func (sh *shard) insert(id *driver.ID) slab.Ref {
	k := indexKey(id)
	at := sh.entries.New()
	e := sh.entries.At(at)
	e.id, e.next = *id, sh.index[k]
	sh.index[k] = at
	return at
}

// update stores rec, whose texts are those that the entry has.
func (sh *shard) update(at slab.Ref, rec *driver.Record) {
	e := sh.entries.At(at)
	e.set(rec)
	if !rec.Steps {
		delete(sh.steps, at)
	}
	sh.schedule(at, e, rec.Expires())
	sh.note(at, e, lives(rec))
}

// lives reports whether a record runs, waits for a decision, or is free with a sealed request, which a completer may
// finish: what is looked for again and again.
func lives(rec *driver.Record) bool {
	return rec.State == driver.Running || rec.State == driver.Unknown || rec.State == driver.Free && len(rec.Sealed) > 0
}

// write stores rec, with its packed text.
func (sh *shard) write(at slab.Ref, rec *driver.Record, text []byte) {
	e := sh.entries.At(at)
	e.text, e.size = sh.texts.Set(e.text, text), len(text)
	sh.update(at, rec)
}

// note adds an entry to the live ones, or removes it from them.
func (sh *shard) note(at slab.Ref, e *entry, live bool) {
	switch {
	case live == (e.live > 0):
	case live:
		sh.live = append(sh.live, at)
		e.live = uint32(len(sh.live))
	default:
		last := len(sh.live) - 1
		moved := sh.live[last]
		sh.live[e.live-1], sh.entries.At(moved).live = moved, e.live
		sh.live, e.live = sh.live[:last], 0
	}
}

// remove deletes an entry.
func (sh *shard) remove(at slab.Ref) {
	e := sh.entries.At(at)
	sh.floor = max(sh.floor, e.fence)
	sh.schedule(at, e, never)
	sh.note(at, e, false)
	delete(sh.steps, at)
	k := indexKey(&e.id)
	switch first := sh.index[k]; {
	case first != at:
		before := sh.entries.At(first)
		for before.next != at {
			before = sh.entries.At(before.next)
		}
		before.next = e.next
	case e.next != 0:
		sh.index[k] = e.next
	default:
		delete(sh.index, k)
	}
	sh.texts.Free(e.text)
	sh.entries.Free(at)
}
