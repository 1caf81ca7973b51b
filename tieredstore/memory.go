package tieredstore

import (
	"container/list"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
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

// A memory is the layer in the process. It drops what was filled first: all copies are as short-lived.
type memory struct {
	entries int
	bytes   int64
	age     time.Duration
	drops   atomic.Uint64 // changes under mu

	mu    sync.RWMutex
	byID  map[driver.ID]*list.Element
	queue list.List // of *entry, the one that was filled first in front
	size  int64     // of all of them, in bytes
}

// An entry does not change once it is in the queue.
type entry struct {
	id   driver.ID
	rec  driver.Record
	read time.Time // not after the record was read
	size int64
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
	return &memory{entries: o.Entries, bytes: o.Bytes, age: o.Age, byID: map[driver.ID]*list.Element{}}
}

// ticket is asked for before a record is read that fill then gets.
func (m *memory) ticket() uint64 { return m.drops.Load() }

func (m *memory) get(id driver.ID, now time.Time) (driver.Record, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	at := m.byID[id]
	if at == nil {
		return driver.Record{}, false
	}
	e := at.Value.(*entry)
	if elapsed(e.read, now) >= m.age {
		return driver.Record{}, false
	}
	return e.rec, true
}

// fill keeps a copy of a record that was read at the given time or later, unless any was dropped since the ticket was
// given: it may have been this one.
func (m *memory) fill(id driver.ID, rec *driver.Record, read time.Time, ticket uint64) {
	e := &entry{id: id, rec: *rec, read: read, size: weight(rec)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drops.Load() != ticket || e.size > m.bytes {
		return
	}
	m.remove(m.byID[id])
	for m.queue.Len() >= m.entries || m.size+e.size > m.bytes {
		m.remove(m.queue.Front())
	}
	for front := m.queue.Front(); front != nil && elapsed(front.Value.(*entry).read, read) >= m.age; front = m.queue.Front() {
		m.remove(front)
	}
	m.byID[id] = m.queue.PushBack(e)
	m.size += e.size
}

func (m *memory) drop(id driver.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drops.Add(1)
	m.remove(m.byID[id])
}

func (m *memory) remove(at *list.Element) {
	if at == nil {
		return
	}
	e := m.queue.Remove(at).(*entry)
	delete(m.byID, e.id)
	m.size -= e.size
}

// overhead is what an entry takes besides the parts of its record: itself, its place in the queue and in the map.
const overhead = 768

// weight is what a record counts towards Memory.Bytes.
func weight(rec *driver.Record) int64 {
	n := overhead + len(rec.Operation) + len(rec.Correlation) + len(rec.Error) + len(rec.Sealed)
	if a := rec.Response; a != nil {
		n += len(a.Body) + len(a.Codec)
		for _, fields := range []http.Header{a.Header, a.Trailer} {
			for name, values := range fields {
				n += len(name) + 64
				for _, v := range values {
					n += len(v) + 16
				}
			}
		}
	}
	return int64(n)
}
