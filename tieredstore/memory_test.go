package tieredstore

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

var epoch = time.Date(2030, 2, 3, 4, 5, 6, 0, time.UTC)

func numbered(n int) (id driver.ID) {
	binary.BigEndian.PutUint64(id[40:], uint64(n))
	return id
}

func sized(body int) *driver.Record {
	return &driver.Record{State: driver.Done, Retention: time.Hour, Response: &driver.Response{Status: 200, Body: bytes.Repeat([]byte("x"), body)}}
}

// sound checks what must hold between calls.
func (m *memory) sound(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var size int64
	var n int
	older := slab.Ref(0)
	for at := m.oldest; at != 0; at = m.copies.At(at).newer {
		e := m.copies.At(at)
		size += weight(e.size)
		n++
		if m.byID[e.id] != at || e.older != older {
			t.Errorf("a copy in the queue is not the one under its id, or does not know the one before it")
		}
		older = at
	}
	if size != m.size || len(m.byID) != n || m.newest != older {
		t.Errorf("counted %d bytes and %d ids, there are %d and %d; the newest is %d, want %d", m.size, len(m.byID), size, n, m.newest, older)
	}
	if n > m.entries || m.size > m.bytes {
		t.Errorf("%d copies of %d bytes, want at most %d of %d", n, m.size, m.entries, m.bytes)
	}
}

// Whatever is filled and dropped, the bounds hold and the newest copies are there.
func TestTheMemoryIsBounded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := newMemory(Memory{Entries: 1 + r.IntN(40), Bytes: int64(1 + r.IntN(60_000)), Age: time.Second})
		now := epoch
		for range 3000 {
			now = now.Add(time.Duration(r.IntN(20)) * time.Millisecond)
			id := numbered(r.IntN(60))
			rec := sized(1 + r.IntN(3000))
			switch r.IntN(10) {
			case 0:
				m.drop(id)
				if _, ok := m.get(id, now); ok {
					t.Fatalf("seed %d: a copy that was dropped is there", seed)
				}
			case 1:
				ticket := m.ticket()
				m.drop(numbered(1000))
				before, had := m.get(id, now)
				m.fill(id, rec, now, ticket)
				if after, has := m.get(id, now); has != had || !reflect.DeepEqual(after, before) {
					t.Fatalf("seed %d: a fill with a ticket from before a drop has changed a copy", seed)
				}
			default:
				m.fill(id, rec, now, m.ticket())
				got, ok := m.get(id, now)
				form, err := rec.AppendBinary(nil)
				if fits := weight(len(form)) <= m.bytes; err != nil || fits && (!ok || !reflect.DeepEqual(&got, rec)) {
					t.Fatalf("seed %d: what was filled last is not there", seed)
				}
			}
			if m.sound(t); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// What the bounds count is what the copies take.
func TestTheMemoryTakesNoMoreThanItsBytes(t *testing.T) {
	const limit = 8 << 20
	m := newMemory(Memory{Entries: 1 << 30, Bytes: limit})
	before := heap()
	for i := range 60_000 {
		rec := sized(i % 700)
		rec.Operation, rec.Correlation = "POST /payments", strings.Repeat("c", 36)
		rec.Response.Header = map[string][]string{"Content-Type": {"application/json"}, "Location": {"/payments/7"}}
		m.fill(numbered(i), rec, epoch, m.ticket())
	}
	after := heap()
	m.sound(t)
	if n := len(m.byID); n < 1000 {
		t.Errorf("it holds %d copies: nothing was tried", n)
	}
	if took := after - before; took > limit*6/5 || took < limit*4/5 {
		t.Errorf("it takes %d bytes, want %d, and a fifth more or less at most", took, limit)
	}
	runtime.KeepAlive(m)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// A caller who changes what it got changes no other's.
func TestACopyIsSharedWithNobody(t *testing.T) {
	t.Parallel()
	m := newMemory(Memory{Entries: 1})
	want := sized(3)
	want.Response.Header = map[string][]string{"A": {"1"}}
	m.fill(numbered(1), want, epoch, m.ticket())
	for range 2 {
		got, ok := m.get(numbered(1), epoch)
		if !ok || !reflect.DeepEqual(&got, want) {
			t.Fatalf("the copy has become %+v", got.Response)
		}
		got.Response.Header["A"][0] = "X"
		got.Response.Body[0] = 'X'
	}
}

// A copy ends its age after it was read; what has ended makes room first.
func TestCopiesInTheMemoryEndByAge(t *testing.T) {
	t.Parallel()
	m := newMemory(Memory{Entries: 100, Age: time.Hour})
	if m.age != MaxMemoryAge {
		t.Fatalf("the age is %s, want at most %s", m.age, MaxMemoryAge)
	}
	for i := range 10 {
		m.fill(numbered(i), sized(1), epoch, m.ticket())
	}
	if _, ok := m.get(numbered(3), epoch.Add(m.age-1)); !ok {
		t.Error("it ended early")
	}
	if _, ok := m.get(numbered(3), epoch.Add(m.age)); ok {
		t.Error("it is there at the end of its age")
	}
	m.fill(numbered(100), sized(1), epoch.Add(m.age), m.ticket())
	if n := len(m.byID); n != 1 {
		t.Errorf("%d copies are held, of which one may be served", n)
	}
}

// The monotonic clock stands still while a machine sleeps, the wall clock may be set back: neither lengthens a copy's
// life.
func TestElapsedTimeIsTheLongerOfTheTwo(t *testing.T) {
	t.Parallel()
	start := time.Now()
	asleep, setBack := wallMoved(t, start, time.Hour), wallMoved(t, start.Add(time.Minute), -time.Hour)
	for _, c := range []struct {
		what string
		to   time.Time
		want time.Duration
	}{
		{"a second", start.Add(time.Second), time.Second},
		{"an hour of sleep", asleep, time.Hour},
		{"a minute in which the clock was set back", setBack, time.Minute},
	} {
		if got := elapsed(start, c.to); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// wallMoved returns at with its wall clock moved, and its monotonic one not: as time.Now returns it after the former
// was.
func wallMoved(t *testing.T, at time.Time, d time.Duration) time.Time {
	moved := at
	// The first word of a time.Time with both readings has the wall clock's seconds above its 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(d/time.Second) << 30
	if moved.Sub(at) != 0 || moved.Round(0).Sub(at.Round(0)) != d {
		t.Fatalf("the wall clock was not moved by %s from %s to %s", d, at, moved)
	}
	return moved
}

func TestTheMemoryMayBeUsedByMany(t *testing.T) {
	t.Parallel()
	m := newMemory(Memory{Entries: 20, Bytes: 30_000, Age: 50 * time.Millisecond})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for range 2000 {
				id, now := numbered(r.IntN(40)), time.Now()
				ticket := m.ticket()
				if rec, ok := m.get(id, now); ok && len(rec.Response.Body) == 0 {
					t.Error("half a record")
				}
				if r.IntN(20) == 0 {
					m.drop(id)
				}
				m.fill(id, sized(1+r.IntN(2000)), now, ticket)
			}
		})
	}
	wg.Wait()
	m.sound(t)
}
