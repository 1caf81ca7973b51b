package memstore

import (
	"encoding/binary"
	"time"
	"unsafe"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
	"github.com/semelhq/semel/internal/wire"
)

// An entry is a record as the store keeps it. It holds no pointers; its texts and its answer are packed into one text
// besides it, and the results of steps, which few records have, are kept by the shard.
type entry struct {
	id   driver.ID
	next slab.Ref // the next entry with the same index key
	pos  uint32   // 1 + its place in the shard's queue; 0 if it is in none
	live uint32   // 1 + its place among the shard's live entries; 0 if it is not one of them
	text slab.Ref
	size int // of the text

	fence       uint64
	token       driver.Token
	fingerprint driver.Fingerprint
	created     driver.Time
	started     driver.Time
	leaseEnd    driver.Time
	settled     driver.Time
	retention   time.Duration
	tombstone   time.Duration

	attempt uint32
	state   driver.State
	wrote   driver.State
	onLost  driver.LostPolicy
	marks   marks
}

type marks uint8

const (
	begun marks = 1 << iota
	maybe
	seized
	owed
	stepped
)

func mark(set bool, m marks) marks {
	if set {
		return m
	}
	return 0
}

// record returns the record in e, with the given clock and without its texts.
func (e *entry) record(now driver.Time) driver.Record {
	return driver.Record{
		State:       e.state,
		OnLost:      e.onLost,
		Begun:       e.marks&begun != 0,
		Maybe:       e.marks&maybe != 0,
		Seized:      e.marks&seized != 0,
		Owed:        e.marks&owed != 0,
		Steps:       e.marks&stepped != 0,
		Wrote:       e.wrote,
		Fence:       e.fence,
		Token:       e.token,
		Fingerprint: e.fingerprint,
		Attempt:     e.attempt,
		Created:     e.created,
		Started:     e.started,
		LeaseEnd:    e.leaseEnd,
		Settled:     e.settled,
		Retention:   e.retention,
		Tombstone:   e.tombstone,
		Now:         now,
	}
}

// set stores rec in e, without its texts.
func (e *entry) set(rec *driver.Record) {
	e.state, e.onLost, e.wrote = rec.State, rec.OnLost, rec.Wrote
	e.marks = mark(rec.Begun, begun) | mark(rec.Maybe, maybe) | mark(rec.Seized, seized) | mark(rec.Owed, owed) | mark(rec.Steps, stepped)
	e.fence, e.token, e.fingerprint, e.attempt = rec.Fence, rec.Token, rec.Fingerprint, rec.Attempt
	e.created, e.started, e.leaseEnd, e.settled = rec.Created, rec.Started, rec.LeaseEnd, rec.Settled
	e.retention, e.tombstone = rec.Retention, rec.Tombstone
}

// pack appends the texts of a record to b. The bytes of the body come first, so that they are read without the rest.
func pack(b []byte, rec *driver.Record) []byte {
	a := rec.Response
	if a == nil {
		a = &driver.Response{}
	}
	b = wire.AppendString(b, a.Body)
	b = wire.AppendString(b, rec.Operation)
	b = wire.AppendString(b, rec.Correlation)
	b = wire.AppendString(b, rec.Error)
	b = wire.AppendString(b, rec.Sealed)
	if rec.Response == nil {
		return b
	}
	b = binary.AppendUvarint(b, uint64(a.Status))
	b = wire.AppendString(b, a.Codec)
	b = wire.AppendAnyOrder(b, a.Header)
	return wire.AppendAnyOrder(b, a.Trailer)
}

// An unpacked answer is one piece of memory with the values of its header fields, if these are few.
type unpacked struct {
	driver.Response
	values [8]string
}

// A small one is so with all that is packed, too.
type small struct {
	unpacked
	text [smallText]byte
}

// smallText makes a small one 512 bytes, the largest size in which the allocator marks pointers at no cost.
const smallText = 288

// unpack sets the texts of rec to those that were packed into b. They share its memory, which nobody may change any
// more. An answer goes to a, or if that is nil into memory of its own.
func unpack(rec *driver.Record, b []byte, a *unpacked) {
	body, head := binary.Uvarint(b)
	at := head + int(body)
	text := wire.Text(unsafe.String(unsafe.SliceData(b[at:]), len(b)-at)) //nolint:gosec // spares two copies of each answer
	rec.Operation = text.Next()
	rec.Correlation = text.Next()
	rec.Error = text.Next()
	if sealed := text.Next(); sealed != "" {
		rec.Sealed = []byte(sealed)
	}
	if text == "" {
		return
	}
	if a == nil {
		a = &unpacked{}
	}
	a.Status, a.Codec, a.Header, a.Trailer = text.Number(), text.Next(), text.Fields(a.values[:]), text.Fields(nil)
	if body > 0 {
		a.Body = b[head:at:at]
	}
	rec.Response = &a.Response
}
