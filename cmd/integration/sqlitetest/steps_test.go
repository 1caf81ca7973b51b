package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

// stepsAgree checks that exactly those records say that there are steps of which there are some.
func stepsAgree(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.Query("SELECT record, (SELECT count(*) FROM semel_steps AS s WHERE s.id = r.id) FROM semel_records AS r")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var data []byte
		var n int
		var rec driver.Record
		if err := errors.Join(rows.Scan(&data, &n), rec.UnmarshalBinary(data)); err != nil {
			t.Fatal(err)
		}
		if rec.Steps != (n > 0) {
			t.Errorf("a record that is %s has %d steps, and says %t", rec.State, n, rec.Steps)
		}
	}
	var stray int
	if err := db.QueryRow("SELECT count(*) FROM semel_steps WHERE id NOT IN (SELECT id FROM semel_records)").Scan(&stray); err != nil || stray != 0 {
		t.Errorf("%d steps without a record, %v", stray, err)
	}
}

// However a record goes, nothing of its steps is left in the database.
func TestR84_StepsGoWithTheirOperation(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, db := openStore(t, newFile(t), sqlitestore.Options{Clock: c.Now})
	count := func(id driver.ID) (n int) {
		t.Helper()
		if err := db.QueryRow("SELECT count(*) FROM semel_steps WHERE id = ?", id[:]).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	begin := func(asked driver.Claim) (driver.ID, driver.Record) {
		id := newID()
		rec := claim(t, s, id, asked)
		saveStep(t, s, id, rec.Owner(), "charge", "7")
		saveStep(t, s, id, rec.Owner(), "ship", "")
		if n := count(id); n != 2 {
			t.Fatalf("%d steps, want 2", n)
		}
		return id, rec
	}
	asked, entombed := ask(semel.Rerun), ask(semel.Rerun)
	entombed.Tombstone = time.Hour
	var gone []driver.ID
	for range 3 {
		swept, rec := begin(asked)
		settle(t, s, swept, rec.Owner(), done("x"))
		tomb, rec := begin(entombed)
		settle(t, s, tomb, rec.Owner(), driver.Outcome{State: driver.Done})
		forgotten, rec := begin(asked)
		settle(t, s, forgotten, rec.Owner(), driver.Outcome{State: driver.Free})
		if forgot, err := s.Forget(t.Context(), forgotten, rec.Owner()); !forgot || err != nil {
			t.Fatal(forgot, err)
		}
		gone = append(gone, swept, tomb, forgotten)
	}
	renewed, rec := begin(asked)
	settle(t, s, renewed, rec.Owner(), done("x"))
	c.Advance(90 * time.Minute)
	claim(t, s, renewed, again(asked))
	if _, err := s.Sweep(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	for _, id := range append(gone, renewed) {
		if n := count(id); n != 0 {
			t.Errorf("%d steps are left of a record that is %s", n, load(t, s, id).State)
		}
	}
	// By hand, as an operator may.
	byHand, _ := begin(asked)
	execSQL(t, db, "DELETE FROM semel_records WHERE id = ?", byHand[:])
	if n := count(byHand); n != 0 {
		t.Errorf("deleted by hand: %d steps are left", n)
	}
	stepsAgree(t, db)
	// Those that a damaged record left behind are nobody's.
	id := newID()
	execSQL(t, db, "INSERT INTO semel_steps (id, name, saved, result) VALUES (?, 'charge', 1, 'stale'), (?, 'ship', 1, 'stale')", id[:], id[:])
	rec = claim(t, s, id, ask(semel.Rerun))
	saveStep(t, s, id, rec.Owner(), "charge", "new")
	if got := steps(t, s, id); len(got) != 1 || string(got["charge"]) != "new" {
		t.Errorf("a new record has the steps of a lost one: %q", got)
	}
}

// The other process is killed with SIGKILL while it saves. What it has acknowledged is there, in the record too, and
// what it has not is there whole or not at all.
func TestR84_StepsThatAKilledProcessAcknowledgedAreThere(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, db := openStore(t, path, sqlitestore.Options{})
	for round := range 2 {
		r := openRemote(t, path, nil)
		type saved struct {
			id   driver.ID
			rec  driver.Record
			name string
		}
		var mu sync.Mutex
		var all []saved
		enough := make(chan struct{})
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				for {
					id := newID()
					rec, _, err := r.Claim(context.Background(), id, ask(semel.Rerun))
					for n := 0; err == nil && n < 4; n++ {
						name := fmt.Sprintf("step %d", n)
						var owned bool
						if owned, err = r.SaveStep(context.Background(), id, rec.Owner(), name, []byte(name)); err != nil {
							break
						}
						if !owned {
							t.Errorf("a step was refused to its owner")
							return
						}
						mu.Lock()
						if all = append(all, saved{id, rec, name}); len(all) == 150*(round+1) {
							close(enough)
						}
						mu.Unlock()
					}
					if err != nil {
						if !errors.Is(err, errGone) {
							t.Errorf("Claim or SaveStep: %v", err)
						}
						return
					}
				}
			})
		}
		<-enough
		r.kill(t)
		wg.Wait()
		for _, a := range all {
			if got, ok := steps(t, s, a.id)[a.name]; !ok || string(got) != a.name {
				t.Errorf("an acknowledged step: %q, %t", got, ok)
			}
			if got := load(t, s, a.id); !got.Steps || got.Owner() != a.rec.Owner() {
				t.Errorf("an acknowledged step: its record is %s, Steps %t", got.State, got.Steps)
			}
		}
		stepsAgree(t, db)
		last := all[len(all)-1]
		saveStep(t, s, last.id, last.rec.Owner(), "by another process", "goes on")
	}
}

// A result for which there is no room is refused as that. What was saved before is there, the record says no more than
// that, and smaller ones still fit.
func TestR60_AStepThatDoesNotFitIsRefusedAlone(t *testing.T) {
	t.Parallel()
	db := openDB(t, newFile(t), "_pragma=max_page_count(120)")
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, later := newID(), newID()
	firstBy, laterBy := claim(t, s, first, ask(semel.Rerun)), claim(t, s, later, ask(semel.Rerun))
	saveStep(t, s, later, laterBy.Owner(), "small", "kept")
	for _, row := range []struct {
		id   driver.ID
		by   driver.Owner
		want int
	}{{first, firstBy.Owner(), 0}, {later, laterBy.Owner(), 1}} {
		owned, err := s.SaveStep(t.Context(), row.id, row.by, "large", []byte(strings.Repeat("x", 1<<20)))
		wants(t, "SaveStep", err, driver.ErrFull, sqlitestore.ErrDiskFull)
		if got := steps(t, s, row.id); owned || len(got) != row.want {
			t.Errorf("owned is %t, and %d steps are saved, want %d", owned, len(got), row.want)
		}
	}
	stepsAgree(t, db)
	// All wait in the line behind a transaction, and are executed together when that ends.
	const n, tooLarge = 12, 5
	var ids [n]driver.ID
	var recs [n]driver.Record
	for i := range ids {
		ids[i] = newID()
		recs[i] = claim(t, s, ids[i], ask(semel.Rerun))
	}
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var errs [n]error
	for i := range ids {
		ctx := watch(t, 1)
		wg.Go(func() {
			result := "small"
			if i == tooLarge {
				result = strings.Repeat("x", 1<<20)
			}
			_, errs[i] = s.SaveStep(ctx, ids[i], recs[i].Owner(), "charge", []byte(result))
		})
		<-ctx.waits
	}
	tx.Rollback()
	wg.Wait()
	for i, err := range errs {
		if i == tooLarge {
			wants(t, "the step that does not fit", err, driver.ErrFull)
			continue
		}
		if got := steps(t, s, ids[i]); err != nil || string(got["charge"]) != "small" {
			t.Errorf("a step in the same group: %v, %q", err, got["charge"])
		}
	}
	stepsAgree(t, db)
	// Small ones, until the disk is full for those too.
	for saved := 0; ; saved++ {
		if _, err = s.SaveStep(t.Context(), first, firstBy.Owner(), fmt.Sprintf("step %d", saved), make([]byte, 500)); err == nil {
			continue
		}
		wants(t, "SaveStep", err, driver.ErrFull)
		if got := steps(t, s, first); len(got) != saved {
			t.Errorf("%d steps are saved, and %d were acknowledged", len(got), saved)
		}
		break
	}
	fresh := newID()
	if rec, owned, err := s.Claim(t.Context(), fresh, ask(semel.Rerun)); err == nil && owned {
		for err == nil {
			_, err = s.SaveStep(t.Context(), fresh, rec.Owner(), driver.NewToken().String(), make([]byte, 100))
		}
		wants(t, "SaveStep of a record without steps", err, driver.ErrFull)
	}
	stepsAgree(t, db)
}

// A step waits for this store's own transaction, as long as its caller wants to, and what is saved can be read
// meanwhile.
func TestAStepWaitsForATransaction(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(driver.Tx) error{
		"commit":   func(tx driver.Tx) error { return tx.Commit(context.Background()) },
		"rollback": func(tx driver.Tx) error { tx.Rollback(); return nil },
	} {
		s, db := openStore(t, newFile(t), sqlitestore.Options{})
		id := newID()
		rec := claim(t, s, id, ask(semel.Rerun))
		saveStep(t, s, id, rec.Owner(), "before", "saved")
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		late, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = s.SaveStep(late, id, rec.Owner(), "late", nil)
		wants(t, "SaveStep whose context ends while a transaction has the lock", err, context.DeadlineExceeded)
		if errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: nobody will execute it: %v", what, err)
		}
		paused := watch(t, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			if owned, err := s.SaveStep(paused, id, rec.Owner(), "waits", []byte("saved")); !owned || err != nil {
				t.Errorf("%s: a step that waited: owned is %t, error %v", what, owned, err)
			}
		})
		<-paused.waits
		if got := steps(t, s, id); len(got) != 1 || string(got["before"]) != "saved" {
			t.Errorf("%s: while the transaction has the lock: %q", what, got)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := steps(t, s, id); len(got) != 2 || string(got["waits"]) != "saved" {
			t.Errorf("%s: %q", what, got)
		}
		stepsAgree(t, db)
	}
}

// The owner is taken over between two steps, by another process: the first is the new owner's, the second is refused.
func TestR48_AStepOfAFencedOwnerIsRefusedAcrossProcesses(t *testing.T) {
	t.Parallel()
	path, c := newFile(t), newClock()
	s, db := openStore(t, path, sqlitestore.Options{Clock: c.Now})
	other := openRemote(t, path, c)
	id, asked := newID(), ask(semel.Rerun)
	rec := claim(t, s, id, asked)
	saveStep(t, s, id, rec.Owner(), "charge", "first owner")
	c.Advance(2 * time.Hour)
	saveStep(t, s, id, rec.Owner(), "late", "in time")
	next := claim(t, other, id, again(asked))
	if got := steps(t, other, id); len(got) != 2 || !next.Steps {
		t.Errorf("the new owner has %d steps, and its record says %t", len(got), next.Steps)
	}
	// This process believes that it knows the record.
	if owned, err := s.SaveStep(t.Context(), id, rec.Owner(), "ship", []byte("fenced")); owned || err != nil {
		t.Errorf("a fenced step: owned is %t, error %v", owned, err)
	}
	saveStep(t, other, id, next.Owner(), "ship", "second owner")
	if got := steps(t, s, id); len(got) != 3 || string(got["ship"]) != "second owner" {
		t.Errorf("%q", got)
	}
	stepsAgree(t, db)
}

// A step whose record can't be written is not saved either, and the others of its group are.
func TestAStepIsSavedWithItsRecordOrNotAtAll(t *testing.T) {
	t.Parallel()
	s, db := openStore(t, newFile(t), sqlitestore.Options{})
	id, other := newID(), newID()
	rec := claim(t, s, id, ask(semel.Rerun))
	otherRec := claim(t, s, other, ask(semel.Rerun))
	execSQL(t, db, fmt.Sprintf("CREATE TRIGGER refuse BEFORE UPDATE ON semel_records WHEN OLD.id = x'%x' BEGIN SELECT RAISE(ABORT, 'refused'); END", id[:]))
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, otherCtx := watch(t, 1), watch(t, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		if owned, err := s.SaveStep(ctx, id, rec.Owner(), "charge", []byte("7")); owned || err == nil {
			t.Errorf("a step whose record can't be written: owned is %t, error %v", owned, err)
		}
	})
	<-ctx.waits
	wg.Go(func() {
		if owned, err := s.SaveStep(otherCtx, other, otherRec.Owner(), "charge", []byte("8")); !owned || err != nil {
			t.Errorf("a step in the same group: owned is %t, error %v", owned, err)
		}
	})
	<-otherCtx.waits
	tx.Rollback()
	wg.Wait()
	if n := len(steps(t, s, id)); n != 0 {
		t.Errorf("%d steps are saved without their record", n)
	}
	stepsAgree(t, db)
	execSQL(t, db, "DROP TRIGGER refuse")
	saveStep(t, s, id, rec.Owner(), "charge", "7")
	stepsAgree(t, db)
}
