package tieredstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

// Memory bounds the layer in the process.
type Memory struct {
	// Entries is how many records it holds at most. Defaults to none: there is no such layer.
	Entries int
	// Bytes is what they may take together. Defaults to 64 MiB.
	Bytes int64
	// Age is how long after it was read a copy may be served, and so how long after a Forget in another process one may
	// still be. Defaults to 5 s, which is also the most.
	Age time.Duration
}

// Limits of [Memory].
const (
	DefaultMemoryBytes = 64 << 20
	MaxMemoryAge       = 5 * time.Second
)

// A memory is the layer in the process. It drops what was filled first: all copies are as short-lived. It holds no
// pointer for each copy, because the collector would follow them all, again and again.
type memory struct {
	entries int
	bytes   int64
	age     time.Duration
	start   time.Time     // what the entries' times are told from
	drops   atomic.Uint64 // changes under mu

	mu             sync.RWMutex
	byID           map[driver.ID]slab.Ref
	copies         slab.Of[entry]
	records        slab.Texts // in their binary form
	oldest, newest slab.Ref
	size           int64 // of all of them, in bytes
}

// An entry is a copy, linked in the order in which they were filled. Only the links change.
type entry struct {
	id           driver.ID
	read         moment // not after the record was read
	older, newer slab.Ref
	record       slab.Ref
	size         int // of the record's binary form
}

func newMemory(o Memory) *memory {
	if o.Entries <= 0 {
		return nil
	}
	if o.Bytes <= 0 {
		o.Bytes = DefaultMemoryBytes
	}
	if o.Age <= 0 || o.Age > MaxMemoryAge {
		o.Age = MaxMemoryAge
	}
	return &memory{entries: o.Entries, bytes: o.Bytes, age: o.Age, start: time.Now(), byID: map[driver.ID]slab.Ref{}}
}

// ticket is asked for before a record is read that fill then gets.
func (m *memory) ticket() uint64 { return m.drops.Load() }

// get returns a copy of its own to each caller.
func (m *memory) get(id driver.ID, now time.Time) (rec driver.Record, found bool) {
	form := m.find(id, momentOf(m.start, now))
	return rec, form != nil && rec.UnmarshalBinary(form) == nil
}

// find returns the binary form of a record that is young enough, or nil.
func (m *memory) find(id driver.ID, now moment) []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	at := m.byID[id]
	if at == 0 {
		return nil
	}
	e := m.copies.At(at)
	if e.read.until(now) >= m.age {
		return nil
	}
	return m.records.Append(make([]byte, 0, e.size), e.record, e.size)
}

// fill keeps a copy of a record that was read at the given time or later, unless any was dropped since the ticket was
// given: it may have been this one.
func (m *memory) fill(id driver.ID, rec *driver.Record, at time.Time, ticket uint64) {
	form, err := rec.AppendBinary(nil)
	if err != nil {
		return // no sequence of verbs leads to it
	}
	size, read := weight(len(form)), momentOf(m.start, at)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drops.Load() != ticket || size > m.bytes {
		return
	}
	m.remove(m.byID[id])
	for len(m.byID) >= m.entries || m.size+size > m.bytes {
		m.remove(m.oldest)
	}
	for m.oldest != 0 && m.copies.At(m.oldest).read.until(read) >= m.age {
		m.remove(m.oldest)
	}
	added := m.copies.New()
	*m.copies.At(added) = entry{id: id, read: read, older: m.newest, record: m.records.Set(0, form), size: len(form)}
	*m.newerThan(m.newest), m.newest = added, added
	m.byID[id] = added
	m.size += size
}

func (m *memory) drop(id driver.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drops.Add(1)
	m.remove(m.byID[id])
}

func (m *memory) remove(at slab.Ref) {
	if at == 0 {
		return
	}
	e := m.copies.At(at)
	*m.newerThan(e.older), *m.olderThan(e.newer) = e.newer, e.older
	delete(m.byID, e.id)
	m.size -= weight(e.size)
	m.records.Free(e.record)
	m.copies.Free(at)
}

// newerThan returns where the link from an entry to the one after it is; 0 stands before the oldest.
func (m *memory) newerThan(at slab.Ref) *slab.Ref {
	if at == 0 {
		return &m.oldest
	}
	return &m.copies.At(at).newer
}

// olderThan returns where the link from an entry to the one before it is; 0 stands after the newest.
func (m *memory) olderThan(at slab.Ref) *slab.Ref {
	if at == 0 {
		return &m.newest
	}
	return &m.copies.At(at).older
}

// overhead is what an entry takes besides its record: itself, and its place in the map.
const overhead = 208

// weight is what a record of so many bytes in its binary form counts towards Memory.Bytes.
func weight(size int) int64 { return overhead + slab.Size(size) }
