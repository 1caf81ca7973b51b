package sqlitetest

import (
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

// Completers ask often for what they may finish. That reads no other records: damaged ones are not noticed.
func TestR52_WhatACompleterAsksForIsFoundByAnIndex(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, db := openStore(t, newFile(t), sqlitestore.Options{Clock: c.Now})
	sealed := ask(semel.Rerun)
	sealed.Sealed = []byte("sealed request")
	begin := func(asked driver.Claim) (driver.ID, driver.Record) {
		id := newID()
		return id, claim(t, s, id, again(asked))
	}
	want := map[driver.ID]bool{}
	others := map[string]driver.ID{}
	freed, rec := begin(sealed)
	settle(t, s, freed, rec.Owner(), driver.Outcome{State: driver.Free, Owed: true})
	want[freed] = true
	lapsed, _ := begin(sealed)
	want[lapsed] = true
	c.Advance(2 * time.Hour)
	others["running"], _ = begin(sealed)
	others["done"], rec = begin(sealed)
	settle(t, s, others["done"], rec.Owner(), done("x"))
	others["unknown"], rec = begin(sealed)
	settle(t, s, others["unknown"], rec.Owner(), driver.Outcome{State: driver.Unknown})
	others["free, without a request"], rec = begin(ask(semel.Rerun))
	settle(t, s, others["free, without a request"], rec.Owner(), driver.Outcome{State: driver.Free})
	for _, id := range others {
		// Only behind its end: what the store looks for it finds in the columns and in the header.
		execSQL(t, db, "UPDATE semel_records SET record = CAST(record || x'00' AS BLOB) WHERE id = ?", id[:])
	}
	got := map[driver.ID]bool{}
	err := s.List(t.Context(), driver.Query{Sealed: true, Reading: driver.ReadsFree}, func(id driver.ID, _ driver.Record) bool {
		got[id] = true
		return true
	})
	if err != nil || len(got) != len(want) || !got[freed] || !got[lapsed] {
		t.Errorf("%d records, want the one that is free and the one that is lapsed, %v", len(got), err)
	}
	err = s.List(t.Context(), driver.Query{Sealed: true}, func(driver.ID, driver.Record) bool { return true })
	if !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("a listing that has to read all: %v", err)
	}
}
