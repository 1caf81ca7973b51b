package sqlitetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

// Of a batch a damaged record fails alone, and what is refused is so without the lock that a writer has.
func TestABatchIsClaimedAsFarAsItCanBe(t *testing.T) {
	t.Parallel()
	s, db := openStore(t, newFile(t), sqlitestore.Options{})
	asked := ask(semel.Rerun)
	damaged, running, absent := newID(), newID(), newID()
	claim(t, s, damaged, asked)
	held := claim(t, s, running, asked)
	execSQL(t, db, "UPDATE semel_records SET record = x'00' WHERE id = ?", damaged[:])
	claims := []driver.ClaimOf{{ID: damaged, Claim: again(asked)}, {ID: absent, Claim: again(asked)}, {ID: running, Claim: again(asked)}, {ID: damaged, Claim: again(asked)}}
	got := s.ClaimAll(t.Context(), claims)
	for _, i := range []int{0, 3} {
		wants(t, "the damaged record", got[i].Err, driver.ErrUnreadable)
	}
	if got[1].Err != nil || !got[1].Owned || got[1].Record.Token != claims[1].Token {
		t.Errorf("the absent one: owned is %t, error %v", got[1].Owned, got[1].Err)
	}
	if got[2].Err != nil || got[2].Owned || got[2].Record.Owner() != held.Owner() {
		t.Errorf("the running one: owned is %t, error %v", got[2].Owned, got[2].Err)
	}

	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	refused := s.ClaimAll(t.Context(), []driver.ClaimOf{{ID: running, Claim: again(asked)}, {ID: absent, Claim: again(asked)}})
	for _, r := range refused {
		if r.Err != nil || r.Owned || r.Record.State != driver.Running {
			t.Errorf("refused while a transaction has the lock: owned is %t, the record is %s, error %v", r.Owned, r.Record.State, r.Err)
		}
	}
	fresh := newID()
	got = s.ClaimAll(endAt(t.Context(), 2), []driver.ClaimOf{{ID: running, Claim: again(asked)}, {ID: fresh, Claim: again(asked)}})
	if got[0].Err != nil || got[0].Record.Owner() != held.Owner() {
		t.Errorf("what is refused without a lock: %v", got[0].Err)
	}
	wants(t, "what waits for the lock", got[1].Err, context.DeadlineExceeded)
	tx.Rollback()
	if rec := load(t, s, fresh); rec.State != driver.Absent {
		t.Errorf("a claim whose caller has left is %s", rec.State)
	}
}

// A batch of many groups is claimed whole, also where a later group has an operation of an earlier one.
func TestALargeBatchIsManyGroups(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, newFile(t), sqlitestore.Options{})
	const n = 1300
	claims := make([]driver.ClaimOf, n+1)
	for i := range claims {
		claims[i] = driver.ClaimOf{ID: newID(), Claim: ask(semel.Hold)}
	}
	for i := 0; i < n; i += 100 {
		claims[i].Sealed = make([]byte, 1<<20) // more than a group may write
	}
	claims[n].ID, claims[n].Fingerprint = claims[7].ID, claims[7].Fingerprint
	got := s.ClaimAll(t.Context(), claims)
	for i, r := range got[:n] {
		if r.Err != nil || !r.Owned || r.Record.Token != claims[i].Token || len(r.Record.Sealed) != len(claims[i].Sealed) {
			t.Fatalf("claim %d: owned is %t, error %v", i, r.Owned, r.Err)
		}
	}
	if last := got[n]; last.Err != nil || last.Owned || last.Record.Token != claims[7].Token {
		t.Errorf("claimed in an earlier group: owned is %t, error %v", last.Owned, last.Err)
	}
	if counts, err := s.Count(t.Context()); err != nil || counts.Running != n {
		t.Errorf("%d are running, want %d, %v", counts.Running, n, err)
	}
}

// Of claims of one operation the first owns it, also if it is so large that it is not of the group that those after it
// would be in.
func TestALargeClaimIsNotOvertaken(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, newFile(t), sqlitestore.Options{})
	first, large, small := newID(), ask(semel.Rerun), ask(semel.Rerun)
	large.Sealed = make([]byte, 9<<20)
	small.Fingerprint = large.Fingerprint
	got := s.ClaimAll(t.Context(), []driver.ClaimOf{
		{ID: newID(), Claim: ask(semel.Rerun)}, {ID: first, Claim: large}, {ID: first, Claim: small}, {ID: newID(), Claim: ask(semel.Rerun)},
	})
	for i, owned := range []bool{true, true, false, true} {
		if got[i].Err != nil || got[i].Owned != owned {
			t.Errorf("claim %d: owned is %t, error %v", i, got[i].Owned, got[i].Err)
		}
	}
	if rec := load(t, s, first); rec.Token != large.Token || len(rec.Sealed) != len(large.Sealed) {
		t.Errorf("the operation is not the first claim's: %d sealed bytes", len(rec.Sealed))
	}
}

// What has no room in a batch fails, and the rest of it is claimed.
func TestR60_ABatchThatDoesNotFitIsClaimedInPart(t *testing.T) {
	t.Parallel()
	s, err := sqlitestore.Open(t.Context(), openDB(t, newFile(t), "_pragma=max_page_count(120)"), sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	claims := make([]driver.ClaimOf, 20)
	for i := range claims {
		claims[i] = driver.ClaimOf{ID: newID(), Claim: ask(semel.Hold)}
	}
	claims[9].Sealed = make([]byte, 1<<20)
	for i, r := range s.ClaimAll(t.Context(), claims) {
		rec := load(t, s, claims[i].ID)
		if i == 9 {
			wants(t, "the claim that does not fit", r.Err, driver.ErrFull, sqlitestore.ErrDiskFull)
			if rec.State != driver.Absent {
				t.Errorf("the claim that does not fit: the record is %s", rec.State)
			}
			continue
		}
		if r.Err != nil || !r.Owned || rec.Token != claims[i].Token {
			t.Errorf("claim %d: owned is %t, error %v, the record is %s", i, r.Owned, r.Err, rec.State)
		}
	}
}

// Completers ask often for what they may finish. That reads no other records: damaged ones are not noticed.
func TestR52_WhatACompleterAsksForIsFoundByAnIndex(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, db := openStore(t, newFile(t), sqlitestore.Options{Clock: c.now})
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
	c.advance(2 * time.Hour)
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
