package sqlitetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/sqlitestore"
)

// The record changes between the loser's look and its claim: the winner finishes, is forgotten, or a sweep deletes it.
// The claim decides by what it finds then: no false refusal, and no run that nobody owns.
func TestCase12_AClaimDecidesByTheRecordAsItThenIs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		before func(t *testing.T, s driver.Store, id driver.ID, c driver.Claim) driver.Record
		wins   bool // the winner's transaction runs the operation
		owned  bool
	}{
		{
			name:   "absent, and done when it comes",
			before: func(*testing.T, driver.Store, driver.ID, driver.Claim) (none driver.Record) { return none },
			wins:   true,
		},
		{
			name: "free, and done when it comes",
			before: func(t *testing.T, s driver.Store, id driver.ID, c driver.Claim) driver.Record {
				rec := claim(t, s, id, c)
				return settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
			},
			wins: true,
		},
		{
			name:   "absent, and still absent",
			before: func(*testing.T, driver.Store, driver.ID, driver.Claim) (none driver.Record) { return none },
			owned:  true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			winner, _ := openStore(t, path, sqlitestore.Options{})
			loser, _ := openStore(t, path, sqlitestore.Options{})
			id, c := newID(), ask(semel.Hold)
			c.Fingerprint = driver.Fingerprint{}
			row.before(t, winner, id, c)
			var tx driver.Tx
			var rec driver.Record
			var err error
			if row.wins {
				tx, rec, _, err = winner.BeginClaim(t.Context(), id, again(c))
			} else {
				tx, err = winner.Begin(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			load(t, loser, id)
			paused := watch(t, 2) // it has looked, and waits for the lock
			var wg sync.WaitGroup
			wg.Go(func() {
				got, owned, err := loser.Claim(paused, id, again(c))
				if err != nil || owned != row.owned {
					t.Errorf("owned is %t, error %v; want %t", owned, err, row.owned)
				}
				if !owned && (got.State != driver.Done || got.Response == nil || string(got.Response.Body) != "winner") {
					t.Errorf("refused with a record that is %s", got.State)
				}
			})
			<-paused.waits
			owned := true
			if row.wins {
				_, owned, err = tx.Settle(t.Context(), id, rec.Owner(), done("winner"))
			} else {
				err = tx.Commit(t.Context())
			}
			if err != nil || !owned {
				t.Fatal(owned, err)
			}
			wg.Wait()
		})
	}
	t.Run("done past its retention, and swept when it comes", func(t *testing.T) {
		t.Parallel()
		path, now := newFile(t), newClock()
		s, db := openStore(t, path, sqlitestore.Options{Clock: now.Now})
		id, c := newID(), ask(semel.Hold)
		rec := claim(t, s, id, c)
		settle(t, s, id, rec.Owner(), done("old"))
		now.Advance(2 * time.Hour)
		release := lock(t, path)
		defer release()
		paused := watch(t, 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			got, owned, err := s.Claim(paused, id, again(c))
			if err != nil || !owned || got.Fence <= rec.Fence || got.Attempt != 1 {
				t.Errorf("owned is %t with fence %d after %d, attempt %d, error %v", owned, got.Fence, rec.Fence, got.Attempt, err)
			}
		})
		<-paused.waits
		release()
		wg.Wait()
		if n, err := s.Sweep(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("the new run was swept: %d, %v", n, err)
		}
		var rows int
		if err := db.QueryRow("SELECT count(*) FROM semel_records").Scan(&rows); err != nil || rows != 1 {
			t.Errorf("%d records, %v", rows, err)
		}
	})
}

// Sweepers run all the time, each millisecond, while keys are claimed, settled, expire and are claimed again, in two
// processes. No live record is deleted, none is born expired, and every acknowledged outcome holds for its retention.
func TestR55_Case24_SweepingAllTheTimeDeletesNothingLive(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	here, db := openStore(t, path, sqlitestore.Options{})
	there := openRemote(t, path, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var swept, claims atomic.Int64
	const few = 16
	wg.Go(func() {
		defer cancel()
		for shown := time.After(1500 * time.Millisecond); ; shown = time.After(10 * time.Millisecond) {
			select {
			case <-shown:
				if swept.Load() > 0 && claims.Load() >= few || t.Failed() {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	stores := []driver.Store{here, there}
	for _, s := range stores {
		wg.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				n, err := s.Sweep(context.Background(), 50)
				if err != nil {
					t.Errorf("Sweep: %v", err)
					return
				}
				swept.Add(int64(n))
			}
		})
	}
	for i := range 8 {
		wg.Go(func() {
			a, b := stores[i%2], stores[(i+1)%2]
			short, kept := newID(), newID()
			keep := ask(semel.Hold)
			rec := claim(t, a, kept, keep)
			settle(t, a, kept, rec.Owner(), done("kept"))
			var last uint64
			for round := 0; ctx.Err() == nil; round++ {
				c := ask(semel.Rerun)
				c.Retention = time.Millisecond // expired when it is settled, or soon after
				rec, owned, err := a.Claim(context.Background(), short, c)
				if err != nil {
					t.Errorf("Claim: %v", err)
					return
				}
				if !owned { // within the millisecond
					continue
				}
				claims.Add(1)
				if rec.Fence <= last {
					t.Errorf("fence %d follows %d", rec.Fence, last)
				}
				last = rec.Fence
				if got := load(t, b, short); got.State != driver.Running || got.Token != rec.Token {
					t.Errorf("a run that goes on is %s as the other process sees it", got.State)
					return
				}
				settle(t, b, short, rec.Owner(), done("short"))
				if got := load(t, a, kept); got.State != driver.Done {
					t.Errorf("an outcome within its retention is %s", got.State)
					return
				}
			}
		})
	}
	wg.Wait()
	if swept.Load() == 0 || claims.Load() < few {
		t.Errorf("%d swept, %d claims: too few to show anything", swept.Load(), claims.Load())
	}
	var rows, counted int64
	if err := db.QueryRow("SELECT count(*) FROM semel_records").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	n, err := here.Count(t.Context())
	if counted = n.Records; err != nil || counted != rows {
		t.Errorf("counted %d records, there are %d (%v)", counted, rows, err)
	}
}

// The other process is killed with SIGKILL in the middle of its groups. What it has acknowledged is there afterwards,
// what it has not is whole or absent, and the file needs nothing to go on.
func TestR30_WhatAKilledProcessAcknowledgedIsThere(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, _ := openStore(t, path, sqlitestore.Options{})
	type op struct {
		id      driver.ID
		claim   driver.Claim
		rec     driver.Record
		claimed bool
		settled bool
	}
	for round := range 3 {
		r := openRemote(t, path, nil)
		var mu sync.Mutex
		var ops []*op
		acked := 0
		enough := make(chan struct{})
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for {
					o := &op{id: newID(), claim: ask(semel.Hold)}
					mu.Lock()
					ops = append(ops, o)
					mu.Unlock()
					rec, owned, err := r.Claim(context.Background(), o.id, o.claim)
					if err != nil {
						if !errors.Is(err, errGone) {
							t.Errorf("Claim: %v", err)
						}
						return
					}
					o.rec, o.claimed = rec, owned
					if _, owned, err = r.Settle(context.Background(), o.id, rec.Owner(), done("answer")); err != nil {
						return
					}
					o.settled = owned
					mu.Lock()
					if acked++; acked == 100*(round+1) {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		r.kill(t)
		wg.Wait()
		for _, o := range ops {
			got := load(t, s, o.id)
			switch {
			case o.settled && (got.State != driver.Done || got.Response == nil || string(got.Response.Body) != "answer"):
				t.Errorf("an acknowledged answer: the record is %s", got.State)
			case o.claimed && (got.State != driver.Running && got.State != driver.Done || got.Fence != o.rec.Fence):
				t.Errorf("an acknowledged claim: the record is %s, fence %d, want %d", got.State, got.Fence, o.rec.Fence)
			case got.State != driver.Absent && got.Token != o.claim.Token:
				t.Errorf("a claim that was not acknowledged left half a record: %+v", got)
			}
		}
		id := newID()
		rec := claim(t, s, id, ask(semel.Hold))
		settle(t, s, id, rec.Owner(), done("goes on"))
	}
}

// The process is killed at any point of its transactions: effect and answer are both there, or neither.
func TestR31_KilledAtAnyPointAllOrNothingIsThere(t *testing.T) {
	t.Parallel()
	for _, oneCommit := range []bool{false, true} {
		path := newFile(t)
		s, db := openStore(t, path, sqlitestore.Options{})
		execSQL(t, db, "CREATE TABLE orders (item TEXT NOT NULL)")
		for round := range 3 {
			r := openRemote(t, path, nil)
			var mu sync.Mutex
			acked := map[string]bool{}
			var asked []string
			enough := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for n := 0; ; n++ {
						key := fmt.Sprintf("order-%d-%d-%d", round, i, n)
						mu.Lock()
						asked = append(asked, key)
						mu.Unlock()
						if err := r.order(context.Background(), key, oneCommit); err != nil {
							if !errors.Is(err, errGone) {
								t.Errorf("order: %v", err)
							}
							return
						}
						mu.Lock()
						acked[key] = true
						if len(acked) == 30*(round+1) {
							close(enough)
						}
						mu.Unlock()
					}
				})
			}
			<-enough
			r.kill(t)
			wg.Wait()
			for _, key := range asked {
				var n int
				if err := db.QueryRow("SELECT count(*) FROM orders WHERE item = ?", key).Scan(&n); err != nil {
					t.Fatal(err)
				}
				rec := load(t, s, semel.Identify(nil, semel.KindDo, "shop", key))
				if n > 1 || (n == 1) != (rec.State == driver.Done) || acked[key] && n != 1 {
					t.Errorf("one-commit is %t: %d orders, the record is %s, acknowledged: %t", oneCommit, n, rec.State, acked[key])
				}
				if oneCommit && rec.State != driver.Done && rec.State != driver.Absent {
					t.Errorf("one-commit: the record is %s", rec.State)
				}
			}
		}
	}
}

// A sweep makes way for claims after each small part. Whatever it meets, one call deletes all that has expired, and
// nothing else.
func TestR55_ALongSweepBesideClaimsDeletesAllThatHasExpired(t *testing.T) {
	t.Parallel()
	path, now := newFile(t), newClock()
	s, db := openStore(t, path, sqlitestore.Options{Clock: now.Now})
	const expired, claimers, each = 1050, 4, 50
	var filling sync.WaitGroup
	for range 50 {
		filling.Go(func() {
			for range expired / 50 {
				verbs.Finish(t, s, newID(), ask(semel.Hold))
			}
		})
	}
	filling.Wait()
	now.Advance(2 * time.Hour)
	var claiming sync.WaitGroup
	for range claimers {
		claiming.Go(func() {
			for range each {
				if _, owned, err := s.Claim(context.Background(), newID(), ask(semel.Hold)); err != nil || !owned {
					t.Errorf("claim: owned is %t, error %v", owned, err)
				}
			}
		})
	}
	n, err := s.Sweep(t.Context(), 2*expired)
	if n != expired || err != nil {
		t.Errorf("swept %d of %d, error %v", n, expired, err)
	}
	claiming.Wait()
	var rows, counted int
	if err := db.QueryRow("SELECT (SELECT count(*) FROM semel_records), (SELECT records FROM semel_meta)").Scan(&rows, &counted); err != nil || rows != claimers*each || counted != rows {
		t.Errorf("%d records are left, %d are counted, want %d; error %v", rows, counted, claimers*each, err)
	}
}
