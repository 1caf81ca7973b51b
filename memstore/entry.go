package memstore

import (
	"net/http"
	"strings"
	"time"
	"unique"

	"github.com/semelhq/semel/driver"
)

// An entry is a record as the store keeps it. The fields that most records have take 224 bytes; the fields that few
// records have are behind a pointer.
type entry struct {
	id    driver.ID
	next  *entry // the next entry with the same index key
	usage *usage // the usage of its principal; nil for the store's own records
	pos   uint32 // 1 + its place in the shard's queue; 0 if it is in none
	live  uint32 // 1 + its place among the shard's live entries; 0 if it is not one of them

	fence       uint64
	token       driver.Token
	fingerprint driver.Fingerprint
	created     driver.Time
	started     driver.Time
	leaseEnd    driver.Time
	settled     driver.Time
	retention   time.Duration

	attempt uint32
	state   driver.State
	wrote   driver.State
	onLost  driver.LostPolicy
	marks   marks

	operation   unique.Handle[string] // few different operations for many records
	correlation string
	response    *driver.Response
	rare        *rare
}

// rare holds the fields that few records have.
type rare struct {
	err       string
	sealed    []byte
	steps     map[string][]byte // nil for none
	tombstone time.Duration
}

type marks uint8

const (
	begun marks = 1 << iota
	maybe
	seized
	owed
)

// record returns the record in e, with the given clock; a nil entry is an absent record.
func (e *entry) record(now driver.Time) driver.Record {
	if e == nil {
		return driver.Record{Now: now}
	}
	r := driver.Record{
		State:       e.state,
		OnLost:      e.onLost,
		Begun:       e.marks&begun != 0,
		Maybe:       e.marks&maybe != 0,
		Seized:      e.marks&seized != 0,
		Owed:        e.marks&owed != 0,
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
		Operation:   e.operation.Value(),
		Correlation: e.correlation,
		Response:    e.response,
		Now:         now,
	}
	if e.rare != nil {
		r.Error, r.Sealed, r.Tombstone, r.Steps = e.rare.err, e.rare.sealed, e.rare.tombstone, e.rare.steps != nil
	}
	return r
}

// set stores rec in e. It copies the texts, so that a short text does not keep in memory the request that it is a part
// of.
func (e *entry) set(rec *driver.Record) {
	e.state, e.onLost, e.wrote = rec.State, rec.OnLost, rec.Wrote
	e.marks = 0
	if rec.Begun {
		e.marks |= begun
	}
	if rec.Maybe {
		e.marks |= maybe
	}
	if rec.Seized {
		e.marks |= seized
	}
	if rec.Owed {
		e.marks |= owed
	}
	e.fence, e.token, e.fingerprint, e.attempt = rec.Fence, rec.Token, rec.Fingerprint, rec.Attempt
	e.created, e.started, e.leaseEnd, e.settled = rec.Created, rec.Started, rec.LeaseEnd, rec.Settled
	e.retention = rec.Retention
	if e.operation == (unique.Handle[string]{}) || e.operation.Value() != rec.Operation {
		e.operation = unique.Make(rec.Operation)
	}
	if e.correlation != rec.Correlation {
		e.correlation = strings.Clone(rec.Correlation)
	}
	e.response = rec.Response
	if rec.Error == "" && rec.Sealed == nil && rec.Tombstone == 0 && !rec.Steps {
		e.rare = nil
		return
	}
	if e.rare == nil {
		e.rare = &rare{}
	}
	if e.rare.err != rec.Error {
		e.rare.err = strings.Clone(rec.Error)
	}
	e.rare.sealed, e.rare.tombstone = rec.Sealed, rec.Tombstone
	switch {
	case !rec.Steps:
		e.rare.steps = nil
	case e.rare.steps == nil:
		e.rare.steps = map[string][]byte{}
	}
}

// stepsWeight is how much saved steps count towards Options.MaxBytes. Only a record with Steps set has any.
func (e *entry) stepsWeight() (n int64) {
	if e == nil || e.rare == nil {
		return 0
	}
	for name, result := range e.rare.steps {
		n += int64(len(name) + len(result))
	}
	return n
}

// growth returns by how much the weight of a record grows if rec replaces old.
func (e *entry) growth(old, rec *driver.Record) int64 {
	n := weight(rec) - weight(old)
	if old.Steps && !rec.Steps {
		n -= e.stepsWeight()
	}
	return n
}

// weight is how much a record without its steps counts towards Options.MaxBytes.
func weight(rec *driver.Record) int64 {
	n := len(rec.Correlation) + len(rec.Error) + len(rec.Sealed)
	if strings.HasPrefix(rec.Operation, driver.SealedName) {
		n += len(rec.Operation) // no other record has it
	}
	if a := rec.Response; a != nil {
		n += len(a.Body)
		for _, fields := range []http.Header{a.Header, a.Trailer} {
			for name, values := range fields {
				n += len(name)
				for _, v := range values {
					n += len(v)
				}
			}
		}
	}
	return int64(n)
}
